// Deciding on the images of a sheet: keys and buttons for one image or many at once.
"use strict";

somnet.review = (() => {
  const { byId, number, images, decisions, sheet } = somnet;
  let run, page;

  const tell = (text) => { byId("note").textContent = text; };

  // The changes that a key means for some rows: pairs of row and decision. null if the person did not choose.
  async function changesFor(rows, key) {
    if (key !== "r") return rows.map((row) => [row, key]);
    const label = await somnet.askLabel.ask(rows);
    if (label === null) return null;
    if (label !== "suggested") return rows.map((row) => [row, `r${label}`]);
    return rows.filter((row) => images.suggestion(row) !== null).map((row) => [row, `r${images.suggestion(row)}`]);
  }

  async function decide(key) {
    const { rows, active, selected, placeOf } = sheet;
    const many = [...selected()];
    const chosen = many.length ? many : active() >= 0 ? [rows()[active()]] : [];
    if (!chosen.length) {
      return tell(sheet.atEnd() ? "This was the last image: ← goes back to it, n opens the next class." : "Walk to an image first, or select some.");
    }
    const changes = key === null ? chosen.map((row) => [row, null]) : await changesFor(chosen, key);
    if (changes === null) return sheet.walkTo(active());
    decisions.set(changes);
    const last = Math.max(...chosen.map(placeOf));
    if (many.length) {
      sheet.select([]);
      const left = many.length - changes.length;
      tell(`${number(changes.length)} images: ${key === null ? "no decision" : decisions.names.get(key)}.` +
        (left ? ` ${number(left)} have no suggestion and stay open.` : ""));
    } else tell("");
    return sheet.walkTo(last + 1);
  }

  async function undo() {
    const rows = await decisions.undo();
    if (!rows.length) return tell("There is nothing to undo.");
    tell(rows.length === 1 ? "One decision undone." : `${number(rows.length)} decisions undone.`);
    const places = rows.map(sheet.placeOf).filter((place) => place >= 0);
    if (places.length) sheet.walkTo(Math.min(...places));
    return undefined;
  }

  function selectBelow() {
    if (!sheet.atEnd()) sheet.select(sheet.rows().subarray(Math.max(0, sheet.active())));
  }

  function drawBar() {
    const count = sheet.selected().size;
    byId("selected-count").textContent = count ? `${number(count)} selected` : "";
    byId("select-none").hidden = count === 0;
    byId("selection-bar").classList.toggle("many", count > 0);
  }

  function walk(event, by) {
    const last = sheet.rows().length - 1;
    if (sheet.atEnd()) sheet.walkTo(by < 0 ? last : last + 1);
    else sheet.walkTo(sheet.active() < 0 ? 0 : Math.max(0, Math.min(sheet.active() + by, last)), { extend: event.shiftKey && sheet.active() >= 0 });
  }

  const KEYS = {
    ArrowLeft: (event) => walk(event, -1), ArrowRight: (event) => walk(event, 1),
    ArrowUp: (event) => walk(event, -sheet.columns()), ArrowDown: (event) => walk(event, sheet.columns()),
    k: () => decide("k"), d: () => decide("d"), s: () => decide("s"), r: () => decide("r"), Delete: () => decide(null),
    u: undo, a: selectBelow, Escape: () => sheet.select([]),
    n: () => page.nextClass(1), p: () => page.nextClass(-1),
    "/": () => byId("filter-search").focus(), " ": () => { if (sheet.active() >= 0) sheet.toggle(sheet.active()); },
  };

  function onKey(event) {
    if (document.querySelector("dialog[open]") || event.target.closest("select, input, textarea")) return;
    if ((event.ctrlKey || event.metaKey) && event.key === "a") {
      event.preventDefault();
      sheet.select(sheet.rows());
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if ([" ", "Enter"].includes(event.key) && event.target.closest("button, summary, a:not(.tile)")) return;
    if (!Object.hasOwn(KEYS, event.key)) return;
    event.preventDefault(); // a letter would be typed into what the key opens
    KEYS[event.key](event);
  }

  // page: {nextClass(step)}.
  async function start(thePage) {
    page = thePage;
    run = await somnet.load("run");
    await somnet.askLabel.start();
    for (const [key, name] of decisions.names) byId(`all-${name}`).addEventListener("click", () => decide(key));
    byId("select-below").addEventListener("click", selectBelow);
    byId("select-none").addEventListener("click", () => sheet.select([]));
    byId("select-mode").addEventListener("click", (event) => {
      const on = byId("sheet").classList.toggle("selecting");
      event.currentTarget.setAttribute("aria-pressed", String(on));
    });
    byId("undo").addEventListener("click", undo);
    const drawUndo = () => { byId("undo").disabled = !decisions.canUndo(); };
    drawUndo();
    document.addEventListener("decisions", drawUndo);
    document.addEventListener("selection", drawBar);
    document.addEventListener("keydown", onKey);
    document.addEventListener("decisions-not-kept", (event) => tell(event.detail));
    drawBar();
  }

  return { start, decide, undo, changesFor, tell, run: () => run };
})();
