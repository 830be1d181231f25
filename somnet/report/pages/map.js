// The map of the images: drawn around, moved, zoomed, walked; what is within the lasso is listed below it.
"use strict";

somnet.imageMap = (() => {
  const { make, byId, number, images, sheet, filters } = somnet;
  const points = somnet.mapPoints;
  const STEP = 1.6; // of a zoom
  const LEGEND = 60; // classes; more are chosen from the list alone
  let run, page, canvas, tool = "lasso";
  let lasso = null; // mask by row of the images that were drawn around

  // ------------------------------------------------------------------------------------------------ lasso

  // What the list shows of the rows that the filter lets through.
  function show(rows) {
    points.show(rows);
    drawLegend();
    const chosen = lasso ? rows.filter((row) => lasso[row]) : rows;
    byId("lasso-note").hidden = lasso === null;
    byId("lasso-count").textContent = `${number(chosen.length)} ${chosen.length === 1 ? "image" : "images"} selected on the map`;
    return chosen;
  }

  async function choose(rows) {
    lasso = rows === null ? null : new Uint8Array(run.rows);
    rows?.forEach((row) => { lasso[row] = 1; });
    points.marks.inside = lasso;
    await page.redraw();
    if (rows) sheet.select(sheet.rows());
  }

  const chooseOrNone = (rows) => choose(rows.length ? rows : null);

  // ------------------------------------------------------------------------------------------------ point

  // Show an image beside the map, and lines to those that resemble it; null: none.
  async function pointAt(row) {
    if (points.marks.point === row) return;
    [points.marks.point, points.marks.near] = [row, []];
    points.draw();
    byId("point-none").hidden = row !== null;
    byId("point-open").hidden = row === null;
    if (row === null) return;
    const tile = (one) => sheet.tile(one, page.address(one), { withClass: true });
    byId("point-tile").replaceChildren(tile(row));
    const [cards, at] = await images.card(row);
    if (points.marks.point !== row) return; // the mouse is elsewhere by now
    points.marks.near = cards.nearest[at];
    byId("point-nearest").replaceChildren(...cards.nearest[at].map(tile));
    sheet.dressAll();
    points.draw();
  }

  function walk(right, down) {
    const from = points.marks.point ?? points.rowAt(canvas.clientWidth / 2, canvas.clientHeight / 2, Infinity);
    const to = points.marks.point === null ? from : points.rowBeside(from, right, down);
    if (to === null) return;
    pointAt(to);
    const [left, top] = points.toScreen(to), room = 40;
    const out = (place, side) => (place < room ? room - place : place > side - room ? side - room - place : 0);
    points.moveBy(out(left, canvas.clientWidth), out(top, canvas.clientHeight));
  }

  function openCard() {
    if (points.marks.point !== null) location.hash = page.address(points.marks.point);
  }

  // --------------------------------------------------------------------------------------------- controls

  function press(buttons, wanted) {
    for (const button of buttons) button.setAttribute("aria-pressed", String(button === wanted));
  }

  function swatch([red, green, blue]) {
    const made = make("canvas", { width: 14, height: 14 }), brush = made.getContext("2d");
    brush.fillStyle = `rgb(${red} ${green} ${blue})`;
    brush.fillRect(0, 0, 14, 14);
    return made;
  }

  function drawLegend() {
    const entries = points.legend(), now = filters.values();
    const chosen = (filter) => Object.entries(filter).every(([field, value]) => now[field] === value);
    byId("points-legend").replaceChildren(...(entries.length > LEGEND ? [] : entries).map(({ name, colour, filter }) => {
      const none = Object.fromEntries(Object.keys(filter).map((field) => [field, { class: "", kind: "all", decision: "any" }[field]]));
      return make("button", { "aria-pressed": String(chosen(filter)),
        onclick: () => { filters.put({ ...now, ...(chosen(filter) ? none : filter) }); filters.changed(); } },
      swatch(colour), make("span", { class: "clip" }, make("bdi", {}, name)));
    }));
  }

  const KEYS = {
    ArrowLeft: () => walk(-1, 0), ArrowRight: () => walk(1, 0), ArrowUp: () => walk(0, -1), ArrowDown: () => walk(0, 1),
    Enter: openCard, "+": () => zoom(STEP), "=": () => zoom(STEP), "-": () => zoom(1 / STEP), 0: () => points.look({ x: 0.5, y: 0.5 }, 1),
  };

  // Around the image that is pointed at, if it can be seen.
  function zoom(factor) {
    const at = points.marks.point === null ? [] : points.toScreen(points.marks.point);
    const inside = at.length && at[0] > 0 && at[1] > 0 && at[0] < canvas.clientWidth && at[1] < canvas.clientHeight;
    points.zoomAt(factor, ...(inside ? at : []));
  }

  function listenToKeys() {
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey && event.key !== "+" || !Object.hasOwn(KEYS, event.key)) return;
      event.preventDefault();
      event.stopPropagation(); // the list below is walked with the same keys
      KEYS[event.key]();
    });
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]") || event.target.closest("select, input")) return;
      if (event.key === "v") chooseOrNone(points.inView());
      if (event.key === "Escape" && lasso) choose(null);
    });
  }

  function listenToMouse() {
    let start = null; // {at, before, moves, far}: where a button was pressed, and what it does
    const at = (event) => {
      const { left, top } = canvas.getBoundingClientRect();
      return [event.clientX - left, event.clientY - top];
    };
    const fingers = new Map(); // that touch the map: pointer -> place
    const pair = () => {
      const [[ax, ay], [bx, by]] = fingers.values();
      return { far: Math.max(1, Math.hypot(ax - bx, ay - by)), left: (ax + bx) / 2, top: (ay + by) / 2 };
    };
    // Two fingers move the map and zoom it: what was between them stays between them.
    const pinch = (event) => {
      const before = pair();
      fingers.set(event.pointerId, at(event));
      const after = pair();
      points.zoomAt(after.far / before.far, before.left, before.top);
      points.moveBy(after.left - before.left, after.top - before.top);
    };
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      canvas.setPointerCapture(event.pointerId);
      fingers.set(event.pointerId, at(event));
      if (fingers.size > 1) { // what the first one began was meant for both
        [start, points.marks.lasso] = [null, null];
        points.draw();
        return;
      }
      start = { at: at(event), before: at(event), moves: tool === "move" || event.shiftKey, far: false };
    });
    canvas.addEventListener("pointermove", (event) => {
      if (fingers.size > 1) {
        if (fingers.size === 2) pinch(event);
        return;
      }
      const [left, top] = at(event);
      if (fingers.has(event.pointerId)) fingers.set(event.pointerId, [left, top]);
      if (start === null) {
        if (event.pointerType === "mouse") pointAt(points.rowAt(left, top) ?? points.marks.point);
        return;
      }
      if (!start.far && Math.hypot(left - start.at[0], top - start.at[1]) < 5) return;
      if (!start.far && !start.moves) points.marks.lasso = [start.at];
      start.far = true;
      canvas.classList.toggle("moving", start.moves);
      if (start.moves) points.moveBy(left - start.before[0], top - start.before[1]);
      else points.marks.lasso.push([left, top]);
      start.before = [left, top];
      points.draw();
    });
    const end = (event) => {
      fingers.delete(event.pointerId);
      if (start === null) return;
      const { far, moves } = start, line = points.marks.lasso;
      [start, points.marks.lasso] = [null, null];
      canvas.classList.remove("moving");
      if (far && !moves && event.type === "pointerup") chooseOrNone(points.within(line));
      else if (!far && event.type === "pointerup") pointAt(points.rowAt(...at(event), 24));
      points.draw();
    };
    canvas.addEventListener("pointerup", end);
    canvas.addEventListener("pointercancel", end);
    canvas.addEventListener("dblclick", openCard);
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return; // else the page could not be scrolled
      event.preventDefault();
      points.zoomAt(event.deltaY < 0 ? STEP : 1 / STEP, ...at(event));
    }, { passive: false });
  }

  function listenToButtons() {
    const [colours, tools] = ["colour", "tool"].map((what) => [...document.querySelectorAll(`button[data-${what}]`)]);
    for (const button of colours) {
      button.addEventListener("click", () => { press(colours, button); points.colourBy(button.dataset.colour); drawLegend(); });
    }
    for (const button of tools) {
      button.addEventListener("click", () => {
        press(tools, button);
        tool = button.dataset.tool;
        canvas.classList.toggle("move", tool === "move");
      });
    }
    byId("zoom-in").addEventListener("click", () => zoom(STEP));
    byId("zoom-out").addEventListener("click", () => zoom(1 / STEP));
    byId("zoom-all").addEventListener("click", () => points.look({ x: 0.5, y: 0.5 }, 1));
    byId("select-view").addEventListener("click", () => chooseOrNone(points.inView()));
    byId("lasso-clear").addEventListener("click", () => choose(null));
  }

  // thePage: {address(row), redraw()}: the address of an image's card, and the list anew.
  async function start(thePage) {
    [page, canvas, run] = [thePage, byId("points"), await somnet.load("run")];
    await points.start(await somnet.load("map"), () => {
      byId("zoom-out").disabled = byId("zoom-all").disabled = points.view.zoom === 1;
    });
    listenToKeys();
    listenToMouse();
    listenToButtons();
  }

  return { start, show, choose, pointAt };
})();
