// The image card: picture, heat map, boxes, scores, and the decision.
"use strict";

somnet.card = (() => {
  const { make, byId, number, decisions, images, sheet } = somnet;
  const GRID = 128; // cells of the heat map along its longer side
  // Cividis, which looks the same to everybody; [share, red, green, blue].
  const COLOURS = [[0, 0, 34, 78], [0.25, 65, 77, 107], [0.5, 124, 123, 120], [0.75, 188, 175, 111], [1, 254, 232, 56]];
  const visible = { heat: false, boxes: true, dropped: false };
  let run, page, row = null, cards = null, at = 0, waiting = null;
  let served = false; // by somnet review, which has the images themselves
  let done = false; // the last image was decided: keys for the next one must not change it

  // The image so many steps along the sheet, or null.
  function beside(by) {
    const place = sheet.placeOf(row);
    return place < 0 ? null : sheet.rows()[place + by] ?? null;
  }

  function step(by) {
    const to = beside(by);
    if (to !== null) go(to);
    else if (by > 0) byId("card-end").hidden = false;
  }

  function go(to) {
    if (waiting !== null) return; // no key counts for an image that is not shown yet
    history.replaceState(null, "", page.address(to));
    show(to);
  }

  async function show(wanted) {
    const known = images.cardIfLoaded(wanted);
    if (known) return draw(wanted, ...known);
    waiting = wanted;
    const loaded = await images.card(wanted);
    if (waiting === wanted) draw(wanted, ...loaded);
    return undefined;
  }

  function draw(wanted, loaded, position) {
    [row, cards, at, waiting, done] = [wanted, loaded, position, null, false];
    byId("card-name").replaceChildren(make("bdi", { title: cards.name[at] }, cards.name[at]));
    const place = sheet.placeOf(row);
    byId("card-place").textContent = place < 0 ? "" : `${number(place + 1)} of ${number(sheet.rows().length)}`;
    byId("card-why").replaceChildren(...Object.entries(cards.why[at]).map(([state, text]) =>
      make("p", { class: "why", "data-state": state }, text)));
    const suggestion = images.suggestion(row);
    byId("card-suggestion").hidden = !(suggestion !== null && images.columns.sure[row]);
    byId("card-suggestion").replaceChildren("Suggested label: ", make("b", {}, make("bdi", {}, run.classes[suggestion] ?? "")));
    byId("card-end").hidden = true;
    byId("card-note").textContent = "";
    drawScores();
    drawPicture();
    drawTwins();
    drawSimilar();
    drawRegions();
    drawDecision();
    byId("card-previous").disabled = beside(-1) === null;
    byId("card-next").disabled = beside(1) === null;
    if (!byId("card").open) {
      byId("card").showModal();
      byId("card").focus(); // and not its first button
    }
    byId("card").scrollTop = 0;
  }

  function hide() {
    if (byId("card").open) byId("card").close();
  }

  // A slot as a link to its place on the memory map.
  function slotLink(regions, region) {
    if (!regions.slot) return "–";
    const slot = String(regions.slot[region]);
    return make("a", { href: `memory.html#slot=${slot}` }, slot);
  }

  function drawScores() {
    const regions = cards.regions[at];
    const { label, seen, score } = images.columns;
    const lines = [["given label", run.classes[label[row]] ?? "–"]];
    if (regions) {
      lines.push(
        ["model sees", run.classes[seen[row]] ?? "–"],
        ["label_score", score[row].toFixed(3)],
        ["background_score", cards.background[at].toFixed(3)]);
      if (regions.slot) lines.push(["memory slot of its best region", slotLink(regions, regions.best)]);
    }
    byId("card-scores").replaceChildren(...lines.map(([name, value]) =>
      make("div", {}, make("dt", {}, name), make("dd", {}, make("bdi", {}, value)))));
  }

  function drawPicture() {
    const [width, height] = cards.regions[at]?.size ?? [4, 3];
    const have = images.columns.pictured[row] === 1;
    const image = byId("card-image");
    image.hidden = !have;
    byId("card-missing").hidden = have;
    image.alt = cards.name[at];
    if (have) image.src = somnet.picture(row);
    else image.removeAttribute("src");
    byId("stage").style.aspectRatio = `${width} / ${height}`;
    byId("stage").style.setProperty("--shape", String(width / height));
    byId("boxes").setAttribute("viewBox", `0 0 ${width} ${height}`);
    drawBoxes();
    drawHeat();
  }

  function boxesOf(regions) {
    if (!regions) return [];
    return regions.weight.map((weight, region) => ({
      region, weight, best: region === regions.best, box: regions.box.slice(4 * region, 4 * region + 4),
    }));
  }

  function drawBoxes() {
    const regions = cards.regions[at];
    const kinds = boxesOf(regions).filter(({ weight, best }) => (weight > 0 || best ? visible.boxes : visible.dropped));
    kinds.sort((a, b) => a.best - b.best);
    byId("boxes").replaceChildren(...kinds.map(({ region, weight, best, box: [x1, y1, x2, y2] }) => make("rect", {
      class: best ? "box best" : weight > 0 ? "box kept" : "box dropped", "data-region": region,
      x: x1, y: y1, width: x2 - x1, height: y2 - y1, "vector-effect": "non-scaling-stroke",
    })));
  }

  // Every cell of the grid has the summed weight of the boxes over it.
  function summedWeights(regions) {
    const [width, height] = regions.size;
    const scale = GRID / Math.max(width, height);
    const [columns, lines] = [Math.max(1, Math.round(width * scale)), Math.max(1, Math.round(height * scale))];
    const heat = new Float64Array(columns * lines);
    for (const { weight, box } of boxesOf(regions)) {
      const [x1, y1, x2, y2] = box.map((value) => Math.round(value * scale));
      if (weight > 0) for (let y = y1; y < Math.min(y2, lines); y++) {
        for (let x = x1; x < Math.min(x2, columns); x++) heat[y * columns + x] += weight;
      }
    }
    return { heat, columns, lines };
  }

  function colour(share) {
    const upper = Math.max(1, COLOURS.findIndex(([stop]) => share <= stop));
    const [low, high] = [COLOURS[upper - 1], COLOURS[upper]];
    const mix = (share - low[0]) / (high[0] - low[0]);
    return [1, 2, 3].map((channel) => Math.round(low[channel] + mix * (high[channel] - low[channel])));
  }

  function paint(canvas, columns, lines, shareOf) {
    [canvas.width, canvas.height] = [columns, lines];
    const context = canvas.getContext("2d");
    const pixels = context.createImageData(columns, lines);
    for (let cell = 0; cell < columns * lines; cell++) pixels.data.set([...colour(Math.min(1, shareOf(cell))), 255], 4 * cell);
    context.putImageData(pixels, 0, 0);
  }

  // With a server: what the network itself sees, drawn as predict does it.
  function drawEvidence() {
    const shown = visible.heat && images.columns.pictured[row] === 1;
    const address = `heat/${row}.jpg`;
    byId("heat-image").hidden = !shown;
    if (shown && byId("heat-image").getAttribute("src") !== address) {
      byId("toggle-heat").setAttribute("aria-busy", "true"); // the first one waits for the network to load
      byId("heat-image").setAttribute("src", address);
    }
    byId("heat").hidden = byId("scale").hidden = true;
  }

  function drawHeat() {
    if (served) return void drawEvidence();
    byId("heat").hidden = byId("scale").hidden = !visible.heat || !cards.regions[at];
    if (!visible.heat || !cards.regions[at]) return;
    const { heat, columns, lines } = summedWeights(cards.regions[at]);
    const top = Math.max(...heat, 1e-9);
    paint(byId("heat"), columns, lines, (cell) => heat[cell] / top);
    paint(byId("scale-bar"), 200, 1, (cell) => cell / 199);
    byId("scale-top").textContent = top.toFixed(2);
  }

  function twin({ row: other, name, split, label, picture }) {
    const source = other !== null && images.columns.pictured[other] ? somnet.picture(other) : picture;
    const frame = make("span", { class: "thumb" }, source ? make("img", { src: source, alt: "" }) : make("span", { class: "missing small" }, "no picture"));
    const told = make("span", { class: "caption" }, make("bdi", { class: "clip" }, images.base(name)),
      make("span", { class: split === "train" ? "muted" : "bad" }, split === "train" ? "" : `in ${split} `, make("bdi", { class: "clip" }, label)));
    return other === null ? make("span", { title: name }, frame, told) : make("a", { href: page.address(other), title: name }, frame, told);
  }

  function drawTwins() {
    const twins = cards.twins?.[at] ?? [];
    byId("twins").hidden = twins.length === 0;
    byId("twin-list").replaceChildren(...twins.map(twin));
  }

  // Clean images of the class that was given and of the one that the model sees, to compare with; and the nearest of all.
  function drawSimilar() {
    const names = { given: run.classes[images.columns.label[row]], seen: run.classes[images.columns.seen[row]] };
    for (const kind of ["given", "seen", "nearest"]) {
      const found = cards[kind]?.[at] ?? [], box = byId(`similar-${kind}`);
      box.hidden = found.length === 0;
      if (names[kind]) box.querySelector("bdi").textContent = names[kind];
      box.querySelector(".twins").replaceChildren(...found.map((other) => sheet.tile(other, page.address(other), { withClass: kind === "nearest" })));
    }
  }

  function openOriginal() {
    if (!served || byId("open-original").hidden) return;
    byId("original-image").setAttribute("src", `original/${row}.jpg`);
    byId("original").showModal();
  }

  function drawRegions() {
    const regions = cards.regions[at];
    const cell = (name, region, digits) =>
      make("td", { class: "number" }, regions[name] ? regions[name][region].toFixed(digits) : "–");
    const rows = boxesOf(regions).sort((a, b) => b.weight - a.weight || a.region - b.region);
    byId("region-list").hidden = !regions;
    byId("regions").replaceChildren(...rows.map(({ region, weight, best }) => {
      const what = [region === 0 ? "whole image" : `box ${region}`, best ? "best" : weight > 0 ? "kept" : "dropped"];
      return make("tr", { class: weight > 0 || best ? "" : "muted",
        onpointerenter: () => point(region), onpointerleave: () => point(null) },
      make("td", {}, what.join(", ")), make("td", { class: "number" }, weight.toFixed(3)),
      make("td", { class: "number" }, slotLink(regions, region)), cell("d", region, 3), cell("r", region, 4), cell("a", region, 3));
    }));
  }

  function point(region) {
    byId("boxes").querySelector(".pointed")?.remove();
    if (region === null) return;
    const [x1, y1, x2, y2] = cards.regions[at].box.slice(4 * region, 4 * region + 4);
    byId("boxes").append(make("rect", { class: "box pointed", x: x1, y: y1, width: x2 - x1, height: y2 - y1, "vector-effect": "non-scaling-stroke" }));
  }

  function toggle(what) {
    visible[what] = !visible[what];
    byId(`toggle-${what}`).setAttribute("aria-pressed", String(visible[what]));
    drawBoxes();
    drawHeat();
  }

  // -------------------------------------------------------------------------------------------- decision

  function drawDecision() {
    if (row === null) return;
    const decision = decisions.get(row);
    for (const [key, name] of decisions.names) byId(`mark-${name}`).setAttribute("aria-pressed", String(decision?.[0] === key));
    byId("mark-none").disabled = decision === null;
    byId("card-label").textContent = decision?.[0] === "r" ? `as ${run.classes[Number(decision.slice(1))]}` : "";
  }

  // A key counts for an image once: behind the last one there is nothing to decide, a click still changes it.
  async function decide(key, { byKey = false } = {}) {
    if (waiting !== null || (byKey && done)) return;
    const mine = row;
    const changes = key === null ? [[mine, null]] : await somnet.review.changesFor([mine], key);
    if (changes === null || mine !== row) return;
    decisions.set(changes);
    done = key !== null && beside(1) === null;
    if (key !== null && byId("card").open) step(1); // who has closed it meanwhile does not want the next one
  }

  async function undo() {
    const rows = await decisions.undo();
    if (rows.length === 1 && sheet.placeOf(rows[0]) >= 0) go(rows[0]);
  }

  function onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("select")) return;
    const does = new Map([
      ["ArrowRight", () => step(1)], ["ArrowLeft", () => step(-1)], ["ArrowDown", () => step(1)], ["ArrowUp", () => step(-1)],
      ["h", () => toggle("heat")], ["b", () => toggle("boxes")], ["x", () => toggle("dropped")], ["u", undo], ["o", openOriginal],
      ...[..."kdsr"].map((key) => [key, () => decide(key, { byKey: true })]),
    ]).get(event.key);
    if (!does) return;
    event.preventDefault();
    does();
  }

  // thePage: {address(row), closed()}, the addresses of the page with and without the card.
  async function start(thePage) {
    page = thePage;
    run = await somnet.load("run");
    ({ served } = await somnet.load("store"));
    byId("open-original").hidden = !served;
    byId("open-original").addEventListener("click", openOriginal);
    byId("original").addEventListener("click", () => byId("original").close());
    for (const ended of ["load", "error"]) {
      byId("heat-image").addEventListener(ended, () => byId("toggle-heat").removeAttribute("aria-busy"));
    }
    byId("heat-image").addEventListener("error", () => {
      byId("heat-image").hidden = true;
      if (visible.heat) byId("card-note").textContent = "There is no evidence to show of this image.";
    });
    for (const what of ["heat", "boxes", "dropped"]) byId(`toggle-${what}`).addEventListener("click", () => toggle(what));
    for (const [key, name] of decisions.names) byId(`mark-${name}`).addEventListener("click", () => decide(key));
    byId("mark-none").addEventListener("click", () => decide(null));
    byId("card-previous").addEventListener("click", () => step(-1));
    byId("card-next").addEventListener("click", () => step(1));
    byId("card-close").addEventListener("click", hide);
    byId("card").addEventListener("keydown", onKey);
    byId("card").addEventListener("click", (event) => { if (event.target === byId("card")) hide(); });
    byId("card").addEventListener("close", () => {
      waiting = null; // what is loaded still would open it again
      history.replaceState(null, "", page.closed());
      const place = sheet.placeOf(row);
      if (place >= 0) sheet.walkTo(place);
    });
    document.addEventListener("decisions", drawDecision);
    document.addEventListener("decisions-not-kept", (event) => { byId("card-note").textContent = event.detail; });
  }

  return { start, show, hide };
})();
