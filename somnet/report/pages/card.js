// The image card: picture, heat map, boxes, scores, and the decision.
"use strict";

const imageCard = (() => {
  const { make, byId, decisions } = somnet;
  const GRID = 128; // cells of the heat map along its longer side
  // Cividis, which looks the same to everybody; [share, red, green, blue].
  const COLOURS = [[0, 0, 34, 78], [0.25, 65, 77, 107], [0.5, 124, 123, 120], [0.75, 188, 175, 111], [1, 254, 232, 56]];
  const visible = { heat: false, boxes: true, dropped: false };
  let place = null, cards = null, at = 0, waiting = null;

  const row = () => classPage.current().rows[place];
  const step = (by) => go(classPage.walk.step(place, by));

  function go(to) {
    if (to === null || waiting !== null) return; // no key counts for an image that is not shown yet
    history.replaceState(null, "", `#${classPage.current().label}/${classPage.current().rows[to]}`);
    show(to);
  }

  async function show(wanted) {
    const known = classPage.cardIfLoaded(wanted);
    if (known) return draw(wanted, ...known);
    waiting = wanted;
    const loaded = await classPage.card(wanted);
    if (waiting === wanted) draw(wanted, ...loaded);
    return undefined;
  }

  function draw(wanted, loaded, position) {
    [place, cards, at, waiting] = [wanted, loaded, position, null];
    const run = classPage.run();
    const current = classPage.current();
    byId("card-name").replaceChildren(make("bdi", {}, cards.name[at]));
    byId("card-place").textContent = classPage.walk.where(place);
    byId("card-why").textContent = cards.why[at];
    byId("card-why").dataset.state = current.states[place];
    const suggestion = classPage.suggested(cards, at);
    byId("card-suggestion").hidden = !(suggestion !== null && cards.sure[at]);
    byId("card-suggestion").replaceChildren("Suggested label: ", make("b", {}, make("bdi", {}, run.classes[suggestion] ?? "")));
    drawScores(run, current);
    drawPicture(current);
    drawRegions();
    byId("new-label").value = suggestion === null ? "" : String(suggestion);
    drawDecision();
    byId("card-previous").disabled = classPage.walk.step(place, -1) === null;
    byId("card-next").disabled = classPage.walk.step(place, 1) === null;
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

  function drawScores(run, current) {
    const regions = cards.regions[at];
    const best = regions.best;
    const bestOf = (name, digits) => (regions[name] ? regions[name][best].toFixed(digits) : "–");
    const lines = [
      ["given label", run.classes[current.label]],
      ["model sees", run.classes[cards.predicted[at]]],
      ["label_score", cards.score[at].toFixed(3)],
      ["background_score", cards.background[at].toFixed(3)],
      ["winner slot of the best region", slotLink(regions, best)],
      ["d-, r- and a-score of it", `${bestOf("d", 3)} · ${bestOf("r", 4)} · ${bestOf("a", 3)}`],
    ];
    byId("card-scores").replaceChildren(...lines.map(([name, value]) =>
      make("div", {}, make("dt", {}, name), make("dd", {}, make("bdi", {}, value)))));
  }

  function drawPicture(current) {
    const [width, height] = cards.regions[at].size;
    const have = current.pictures[place] === "1";
    const image = byId("card-image");
    image.hidden = !have;
    byId("card-missing").hidden = have;
    image.alt = cards.name[at];
    if (have) image.src = somnet.picture(row());
    else image.removeAttribute("src");
    byId("stage").style.aspectRatio = `${width} / ${height}`;
    byId("stage").style.setProperty("--shape", String(width / height));
    byId("boxes").setAttribute("viewBox", `0 0 ${width} ${height}`);
    drawBoxes();
    drawHeat();
  }

  function boxesOf(regions) {
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

  function drawHeat() {
    byId("heat").hidden = byId("scale").hidden = !visible.heat;
    if (!visible.heat) return;
    const { heat, columns, lines } = summedWeights(cards.regions[at]);
    const top = Math.max(...heat, 1e-9);
    paint(byId("heat"), columns, lines, (cell) => heat[cell] / top);
    paint(byId("scale-bar"), 200, 1, (cell) => cell / 199);
    byId("scale-top").textContent = top.toFixed(2);
  }

  function drawRegions() {
    const regions = cards.regions[at];
    const cell = (name, region, digits) =>
      make("td", { class: "number" }, regions[name] ? regions[name][region].toFixed(digits) : "–");
    const rows = boxesOf(regions).sort((a, b) => b.weight - a.weight || a.region - b.region);
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
    if (place === null) return;
    const decision = decisions.get(row());
    for (const [key, name] of Object.entries(decisions.names)) {
      byId(`mark-${name}`).setAttribute("aria-pressed", String(decision?.[0] === key));
    }
    byId("mark-none").disabled = decision === null;
    if (decision?.[0] === "r") byId("new-label").value = decision.slice(1);
  }

  function decide(decision) {
    if (waiting !== null) return;
    decisions.set([[row(), decision]]);
    if (decision !== null) step(1);
  }

  function relabel() {
    const label = byId("new-label").value;
    if (label === "") byId("new-label").focus();
    else decide(`r${label}`);
  }

  function undo() {
    const rows = decisions.undo();
    const back = rows.length === 1 ? classPage.current().rows.indexOf(rows[0]) : -1;
    if (back >= 0) go(back);
  }

  function onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("select")) return;
    const does = {
      ArrowRight: () => step(1), ArrowLeft: () => step(-1), ArrowDown: () => step(1), ArrowUp: () => step(-1),
      h: () => toggle("heat"), b: () => toggle("boxes"), x: () => toggle("dropped"),
      k: () => decide("k"), d: () => decide("d"), r: relabel, u: undo,
    }[event.key];
    if (!does) return;
    event.preventDefault();
    does();
  }

  function start() {
    const { classes } = classPage.run();
    byId("new-label").replaceChildren(make("option", { value: "" }, "new label …"), ...classes.map((name, label) =>
      make("option", { value: label }, name.slice(0, 60))));
    byId("new-label").addEventListener("change", relabel);
    for (const what of ["heat", "boxes", "dropped"]) byId(`toggle-${what}`).addEventListener("click", () => toggle(what));
    byId("mark-keep").addEventListener("click", () => decide("k"));
    byId("mark-drop").addEventListener("click", () => decide("d"));
    byId("mark-relabel").addEventListener("click", relabel);
    byId("mark-none").addEventListener("click", () => decide(null));
    byId("card-previous").addEventListener("click", () => step(-1));
    byId("card-next").addEventListener("click", () => step(1));
    byId("card-close").addEventListener("click", hide);
    byId("card").addEventListener("keydown", onKey);
    byId("card").addEventListener("click", (event) => { if (event.target === byId("card")) hide(); });
    byId("card").addEventListener("close", () => {
      history.replaceState(null, "", `#${classPage.current().label}`);
      classPage.walk.leave(place);
    });
    document.addEventListener("decisions", drawDecision);
  }

  return { start, show, hide };
})();
