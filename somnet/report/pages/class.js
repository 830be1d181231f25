// A class page: the images of a class, worst first, with a live threshold and clean exemplars.
"use strict";

(() => {
  const { make, byId, number, images, decisions, filters, sheet } = somnet;
  const BARS = 50, EXEMPLARS = 12;
  let run, current = null, asked = 0;

  const threshold = () => Number(byId("threshold").value);
  const goes = (row) => images.columns.score[row] < threshold() / 100;
  const going = (rows) => rows.filter((row) => goes(row) && !images.is(row, "unreadable"));
  const address = (row) => `#${current.label}/${row}`;

  async function open(label) {
    if (current?.label === label) return;
    const all = images.worstFirst().filter((row) => images.columns.label[row] === label);
    current = { label, name: run.classes[label], all, rows: all.filter((row) => !images.is(row, "unreadable")) };
    byId("class-name").textContent = current.name;
    document.title = `${current.name} – ${document.title.split(" – ").at(-1)}`;
    byId("class-choice").value = String(label);
    drawExemplars();
    await drawSheet();
    moveThreshold();
  }

  function counts() {
    const counted = run.kinds.map(({ name, title }) => [current.all.filter((row) => images.is(row, name)).length, title.toLowerCase()]);
    return counted.toReversed().filter(([count]) => count).map(([count, title]) => `${number(count)} ${count === 1 ? title.replace(/s$/, "") : title}`).join(" · ");
  }

  // ------------------------------------------------------------------------------------------- threshold

  function histogram() {
    const [agrees, differs] = [new Array(BARS).fill(0), new Array(BARS).fill(0)];
    for (const row of current.rows) {
      (images.suggestion(row) === null ? agrees : differs)[Math.min(BARS - 1, Math.floor(images.columns.score[row] * BARS))]++;
    }
    return { agrees, differs };
  }

  function drawHistogram() {
    const { agrees, differs } = histogram();
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
    byId("class-counts").textContent = `${number(current.all.length)} images · ${counts()}`;
    const [mine, all] = [going(current.rows).length, run.below[at]];
    byId("would-go").replaceChildren(
      "Below ", make("b", {}, (at / 100).toFixed(2)), ": ", make("b", {}, number(mine)),
      ` of ${number(current.rows.length)} images here would go, `, make("b", {}, number(all)),
      ` of ${number(run.images)} in all classes.`);
    byId("clean-command").textContent = `somnet clean --threshold ${(at / 100).toFixed(2)}`;
    byId("drop-class").textContent = `Drop these ${number(mine)}`;
    byId("drop-all").textContent = `Drop ${number(all)} in all classes`;
    byId("drop-class").disabled = mine === 0;
    byId("drop-all").disabled = all === 0;
    if (filters.values().kind === "go") drawSheet();
    else sheet.dressAll();
  }

  function dropUndecided(rows, where) {
    const open = Array.from(rows).filter((row) => decisions.get(row) === null);
    if (open.length) decisions.set(open.map((row) => [row, "d"]));
    const rest = rows.length - open.length;
    byId("bulk-note").textContent = `${number(open.length)} images ${where} marked drop.` +
      (rest ? ` ${number(rest)} had a decision, which stays.` : "");
  }

  // ----------------------------------------------------------------------------------------------- sheet

  async function drawSheet() {
    const mine = ++asked;
    const wanted = filters.chosen(current.label);
    const onlyGoing = wanted.kind === "go";
    const rows = await images.choose(onlyGoing ? { ...wanted, kind: "all" } : wanted,
      (row) => !images.is(row, "unreadable") && (!onlyGoing || goes(row)));
    if (mine !== asked) return; // something else was asked for meanwhile
    sheet.show(rows);
    byId("nothing").hidden = rows.length > 0;
    byId("filter-reset").hidden = !filters.differs();
    byId("list-count").textContent = `${number(rows.length)} of ${number(current.rows.length)} images`;
  }

  function drawExemplars() {
    const clean = current.rows.filter((row) => images.is(row, "clean"));
    const best = Array.from(clean.slice(-EXEMPLARS)).reverse();
    byId("exemplars").replaceChildren(...best.map((row) => sheet.tile(row, address(row))));
    byId("no-exemplars").hidden = best.length > 0;
    sheet.dressAll();
  }

  // ------------------------------------------------------------------------------------------------ page

  async function nextClass(step) {
    const at = run.order.indexOf(current.label) + step;
    history.pushState(null, "", `#${run.order[(at + run.order.length) % run.order.length]}`);
    await follow();
    sheet.walkTo(0);
    somnet.review.tell(`Class ${current.name}.`);
  }

  async function follow() {
    const [label, row] = location.hash.slice(1).split("/");
    const asks = label === "" ? run.order[0] : Number(label);
    if (!run.order.includes(asks)) return;
    await open(asks);
    if (row !== undefined && current.rows.includes(Number(row))) somnet.card.show(Number(row));
    else somnet.card.hide();
  }

  async function start() {
    run = await somnet.load("run");
    await Promise.all([decisions.open(), images.open()]);
    if (!run.order.length) return;
    byId("class-choice").replaceChildren(...run.order.map((label) =>
      make("option", { value: label }, `${run.classes[label].slice(0, 60)} (${number(run.counts[label])})`)));
    byId("threshold").value = run.threshold;
    filters.start(run, "class", { kind: "all" }, drawSheet);
    await sheet.start({ address, dress: (made, row) => made.classList.toggle("removed", goes(row)) });
    await somnet.review.start({ nextClass });
    await somnet.card.start({ address, closed: () => `#${current.label}` });
    byId("class-choice").addEventListener("change", (event) => { location.hash = `#${event.target.value}`; });
    byId("previous-class").addEventListener("click", () => nextClass(-1));
    byId("next-class").addEventListener("click", () => nextClass(1));
    byId("threshold").addEventListener("input", moveThreshold);
    addEventListener("resize", drawHistogram);
    byId("drop-class").addEventListener("click", () => dropUndecided(going(current.rows), "of this class"));
    byId("drop-all").addEventListener("click", () => dropUndecided(going(images.worstFirst()).filter((row) => images.columns.label[row] >= 0), "of all classes"));
    addEventListener("hashchange", follow);
    await follow();
    document.documentElement.dataset.ready = "";
  }

  document.addEventListener("DOMContentLoaded", start);
})();
