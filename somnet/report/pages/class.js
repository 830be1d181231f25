// A class page: histogram with a live threshold, exemplars, and the contact sheet. card.js shows one image.
"use strict";

const classPage = (() => {
  const { make, byId, number, decisions } = somnet;
  const CHUNK = 100; // tiles added at a time
  let run, current, shown = [], drawn = 0, active = 0;

  const threshold = () => Number(byId("threshold").value);
  const removedRows = () => current.rows.slice(0, current.below[threshold()]); // the lowest scores come first
  const isRemoved = (place) => place < current.below[threshold()];

  async function open(label) {
    if (current?.label !== label) {
      const content = await somnet.load(`class-${label}`);
      current = { label, name: run.classes[label], ...content };
      byId("class-name").textContent = current.name;
      document.title = `${current.name} – ${document.title.split(" – ").at(-1)}`;
      byId("class-choice").value = String(label);
      drawExemplars();
      byId("filter").value = "all";
      drawSheet();
      moveThreshold();
    }
  }

  function counts() {
    const named = { l: "wrong labels", o: "outliers", b: "background noise", d: "duplicates", c: "clean" };
    const counted = Object.entries(named).map(([state, name]) => [current.states.split(state).length - 1, name]);
    return counted.filter(([count]) => count).map(([count, name]) => `${number(count)} ${name}`).join(" · ");
  }

  // ------------------------------------------------------------------------------------------- threshold

  function drawHistogram() {
    const { agrees, differs } = current.histogram;
    const most = Math.max(1, ...agrees.map((count, bin) => count + differs[bin]));
    const [width, height, left] = [byId("histogram").clientWidth, 120, 4];
    const step = (width - 2 * left) / agrees.length;
    const line = left + (threshold() / 100) * (width - 2 * left);
    const shapes = [];
    agrees.forEach((count, bin) => {
      const x = left + bin * step;
      const [low, high] = [(differs[bin] / most) * height, (count / most) * height];
      const look = { class: (bin + 1) / agrees.length <= threshold() / 100 + 1e-9 ? "" : "spared" };
      const at = { x: x + 0.5, width: step - 1 };
      const tip = `label_score ${(bin / agrees.length).toFixed(2)} to ${((bin + 1) / agrees.length).toFixed(2)}: ` +
        `${differs[bin]} seen as another class, ${count} agreed`;
      shapes.push(make("g", look, make("title", {}, tip),
        make("rect", { ...at, y: height - low, height: low, class: "fill-label" }),
        make("rect", { ...at, y: height - low - high, height: high, class: "fill-agrees" })));
    });
    shapes.push(make("line", { class: "axis", x1: left, x2: width - left, y1: height + 0.5, y2: height + 0.5 }));
    for (const tick of [0, 0.25, 0.5, 0.75, 1]) {
      const anchor = tick === 0 ? "start" : tick === 1 ? "end" : "middle";
      shapes.push(make("text", { x: left + tick * (width - 2 * left), y: height + 16, "text-anchor": anchor }, String(tick)));
    }
    shapes.push(make("text", { x: width / 2, y: height + 30, "text-anchor": "middle" }, "label_score, low is bad"));
    shapes.push(make("line", { class: "threshold-line", x1: line, x2: line, y1: 0, y2: height }));
    byId("histogram").replaceChildren(...shapes);
  }

  function moveThreshold() {
    const at = threshold();
    drawHistogram();
    byId("class-counts").textContent = `${number(current.rows.length)} images · ${counts()}`;
    const [mine, all] = [current.below[at], run.below[at]];
    byId("would-go").replaceChildren(
      "Below ", make("b", {}, (at / 100).toFixed(2)), ": ", make("b", {}, number(mine)),
      ` of ${number(current.rows.length)} images here would go, `, make("b", {}, number(all)),
      ` of ${number(run.images)} in all classes.`);
    byId("clean-command").textContent = `somnet clean --threshold ${(at / 100).toFixed(2)}`;
    byId("drop-class").textContent = `Drop these ${number(mine)}`;
    byId("drop-all").textContent = `Drop ${number(all)} in all classes`;
    byId("drop-class").disabled = mine === 0;
    byId("drop-all").disabled = all === 0;
    if (byId("filter").value === "go") drawSheet();
    else dressAll();
  }

  function dropUndecided(rows, where) {
    const open = rows.filter((row) => decisions.get(row) === null);
    if (open.length) decisions.set(open.map((row) => [row, "d"]));
    const rest = rows.length - open.length;
    byId("bulk-note").textContent = `${number(open.length)} images ${where} marked drop.` +
      (rest ? ` ${number(rest)} had a decision, which stays.` : "");
  }

  async function dropInAllClasses() {
    const at = threshold();
    const rows = [];
    for (let label = 0; label < run.classes.length; label++) {
      const other = await somnet.load(`class-${label}`);
      rows.push(other.rows.slice(0, other.below[at]));
    }
    dropUndecided(rows.flat(), "of all classes");
  }

  // ----------------------------------------------------------------------------------------------- sheet

  // What the cards of an image and its neighbours show, and where in there the image is.
  const fileOf = (place) => `class-${current.label}-${Math.floor(place / run.imagesPerFile)}`;
  const card = async (place) => [await somnet.load(fileOf(place)), place % run.imagesPerFile];
  const cardIfLoaded = (place) => {
    const cards = somnet.loaded(fileOf(place));
    return cards && [cards, place % run.imagesPerFile];
  };

  function tile(place) {
    const row = current.rows[place];
    const made = make("a", { class: "tile", href: `#${current.label}/${row}`, "data-place": place, role: "listitem" });
    const frame = make("span", { class: "thumb" });
    if (current.pictures[place] === "1") {
      frame.append(make("img", { src: somnet.picture(row), alt: "", loading: "lazy", decoding: "async" }));
    } else frame.append(make("span", { class: "missing small" }, "no picture"));
    const score = make("span", { class: "score" });
    const name = make("bdi", { class: "clip" });
    made.append(frame, make("span", { class: "caption" }, score, name));
    const label = current.label;
    card(place).then(([cards, at]) => {
      if (current.label !== label) return;
      score.textContent = cards.score[at].toFixed(2);
      const other = cards.predicted[at] !== label;
      name.textContent = other ? `${cards.sure[at] ? "→ " : "? "}${run.classes[cards.predicted[at]]}` : cards.name[at];
      made.title = cards.name[at];
      made.setAttribute("aria-label", `${cards.name[at]}, label_score ${cards.score[at].toFixed(2)}`);
    });
    return made;
  }

  // The marks of the tiles: state, whether the image would go, and the decision.
  function dressAll(tiles = document.querySelectorAll("[data-place]")) {
    for (const made of tiles) {
      const place = Number(made.dataset.place);
      const decision = decisions.get(current.rows[place]);
      made.dataset.state = current.states[place];
      made.classList.toggle("removed", isRemoved(place));
      made.dataset.decision = decision ? decision[0] : "";
      made.dataset.word = decision ? decisions.word(decision, run.classes) : "";
    }
  }

  function wanted(place) {
    const choice = byId("filter").value;
    if (choice === "all") return true;
    if (choice === "go") return isRemoved(place);
    if (choice === "open") return decisions.get(current.rows[place]) === null;
    return current.states[place] === choice;
  }

  function drawSheet() {
    shown = current.rows.map((_, place) => place).filter(wanted);
    byId("sheet").replaceChildren();
    byId("nothing").hidden = shown.length > 0;
    byId("sheet-title").textContent = `Worst first · ${number(shown.length)}`;
    drawn = 0;
    active = 0;
    drawMore();
  }

  function drawMore() {
    const next = shown.slice(drawn, drawn + CHUNK);
    const tiles = next.map(tile);
    dressAll(tiles);
    byId("sheet").append(...tiles);
    drawn += next.length;
    byId("more").hidden = drawn >= shown.length;
    rove();
  }

  function drawExemplars() {
    byId("exemplars").replaceChildren(...current.exemplars.map(tile));
    byId("no-exemplars").hidden = current.exemplars.length > 0;
  }

  // One tile of the sheet is in the tab order; the arrows move it.
  function rove() {
    [...byId("sheet").children].forEach((made, at) => { made.tabIndex = at === active ? 0 : -1; });
  }

  function walkTo(at) {
    if (at < 0 || at >= shown.length) return;
    while (at >= drawn) drawMore();
    active = at;
    rove();
    byId("sheet").children[at].focus();
  }

  function columns() {
    const tiles = [...byId("sheet").children];
    const below = tiles.findIndex((made) => made.offsetTop > tiles[0].offsetTop);
    return below < 0 ? tiles.length : below;
  }

  function suggested(cards, at) {
    return cards.predicted[at] === current.label ? null : cards.predicted[at];
  }

  async function mark(place, key) {
    const row = current.rows[place];
    if (key !== "r") return decisions.set([[row, key]]);
    const label = suggested(...(await card(place)));
    if (label !== null) decisions.set([[row, `r${label}`]]);
    return undefined;
  }

  function onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || byId("card").open) return;
    if (event.target.closest("select, input, textarea")) return;
    if (event.key === "u") return void decisions.undo();
    if (!shown.length) return;
    const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns(), ArrowDown: columns() };
    const onTile = event.target.closest("#sheet .tile");
    if (event.key in moves && (onTile || event.key === "ArrowRight" || event.key === "ArrowLeft")) {
      event.preventDefault();
      walkTo(onTile ? active + moves[event.key] : active);
    } else if ("kdr".includes(event.key) && onTile) {
      mark(shown[active], event.key).then(() => walkTo(Math.min(active + 1, shown.length - 1)));
    }
  }

  // ------------------------------------------------------------------------------------------------ page

  function fillChoice() {
    const options = run.order.map((label) => {
      const made = make("option", { value: label });
      made.textContent = `${run.classes[label].slice(0, 60)} (${number(run.counts[label])})`;
      return made;
    });
    byId("class-choice").replaceChildren(...options);
  }

  function neighbour(step) {
    const at = run.order.indexOf(current.label) + step;
    location.hash = `#${run.order[(at + run.order.length) % run.order.length]}`;
  }

  async function follow() {
    const [label, row] = location.hash.slice(1).split("/");
    const asked = label === "" ? run.order[0] : Number(label);
    if (!run.order.includes(asked)) return;
    await open(asked);
    const place = row === undefined ? -1 : current.rows.indexOf(Number(row));
    if (place >= 0) imageCard.show(place);
    else imageCard.hide();
  }

  async function start() {
    run = await somnet.load("run");
    await decisions.open();
    if (!run.order.length) return;
    fillChoice();
    byId("threshold").value = run.threshold;
    byId("class-choice").addEventListener("change", (event) => { location.hash = `#${event.target.value}`; });
    byId("previous-class").addEventListener("click", () => neighbour(-1));
    byId("next-class").addEventListener("click", () => neighbour(1));
    byId("threshold").addEventListener("input", moveThreshold);
    addEventListener("resize", drawHistogram);
    byId("filter").addEventListener("change", drawSheet);
    byId("drop-class").addEventListener("click", () => dropUndecided(removedRows(), "of this class"));
    byId("drop-all").addEventListener("click", dropInAllClasses);
    byId("undo").addEventListener("click", () => decisions.undo());
    byId("more").addEventListener("click", drawMore);
    new IntersectionObserver((entries) => { if (entries.some((one) => one.isIntersecting)) drawMore(); }, { rootMargin: "600px" })
      .observe(byId("more"));
    byId("sheet").addEventListener("focusin", (event) => {
      active = [...byId("sheet").children].indexOf(event.target.closest(".tile"));
      rove();
    });
    document.addEventListener("keydown", onKey);
    document.addEventListener("decisions", () => {
      dressAll();
      byId("undo").disabled = !decisions.canUndo();
    });
    document.addEventListener("decisions-not-kept", () => {
      byId("bulk-note").textContent = "This browser does not keep decisions: download them before you leave.";
    });
    addEventListener("hashchange", follow);
    imageCard.start();
    await follow();
    document.documentElement.dataset.ready = "";
  }

  // What the card needs to know of the class it walks through.
  const walk = {
    step: (place, by) => {
      const list = shown.includes(place) ? shown : current.rows.map((_, at) => at);
      return list[list.indexOf(place) + by] ?? null;
    },
    where: (place) => {
      const list = shown.includes(place) ? shown : current.rows.map((_, at) => at);
      return `${number(list.indexOf(place) + 1)} of ${number(list.length)}`;
    },
    leave: (place) => walkTo(shown.indexOf(place)),
  };

  return { start, card, cardIfLoaded, walk, suggested, run: () => run, current: () => current };
})();

document.addEventListener("DOMContentLoaded", classPage.start);
