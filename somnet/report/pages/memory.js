// The memory page: mouse and keys move a cursor over the map, zoom it, choose what it shows, and open slots.
"use strict";

(() => {
  const { make, byId, number } = somnet;
  const { state, unpack, short } = memoryMap;
  const { draw, describeLayer, swatch, width, smallestCell, blockSize } = mapDrawing;
  const CLOSEST = 10; // slots per side, at the largest zoom
  const LEGEND_CLASSES = 60; // more are chosen from the list alone
  const canvas = byId("map");

  // ------------------------------------------------------------------------------------------------ zoom

  function show(span, row, column) {
    const wide = Math.max(Math.min(span, state.map.side), Math.min(CLOSEST, state.map.side));
    const fit = (middle) => Math.max(0, Math.min(state.map.side - wide, Math.round(middle - wide / 2)));
    state.view = { span: wide, row: fit(row + 0.5), column: fit(column + 0.5) };
    byId("zoom-out").disabled = byId("zoom-all").disabled = wide === state.map.side;
    byId("zoom-in").disabled = wide === Math.min(CLOSEST, state.map.side);
    canvas.dataset.span = wide;
    describeLayer();
    draw();
  }

  const zoom = (factor) => show(Math.round(state.view.span * factor), state.cursor.row, state.cursor.column);

  function follow() {
    const { span, row, column } = state.view;
    const into = (place, first) => Math.min(Math.max(first, place - span + 1), place);
    state.view = { span, row: into(state.cursor.row, row), column: into(state.cursor.column, column) };
    draw();
  }

  function move(rows, columns) {
    const block = blockSize();
    const step = (place, by) => Math.max(0, Math.min(state.map.side - 1, place + by * block));
    state.cursor = { row: step(state.cursor.row, rows), column: step(state.cursor.column, columns) };
    state.pointed = null;
    follow();
  }

  // A block is looked at more closely, a slot is opened.
  function enter(at) {
    state.cursor = at;
    if (blockSize() > 1) {
      let span = state.view.span;
      do span = Math.max(CLOSEST, Math.floor(span / 2));
      while (span > CLOSEST && span > Math.floor(width() / smallestCell() / 2));
      show(span, at.row, at.column);
    } else open(at.row * state.map.side + at.column);
  }

  // ------------------------------------------------------------------------------------------------ slot

  function bar(value, top) {
    const length = top ? Math.max(value > 0 ? 0.5 : 0, (100 * value) / top) : 0;
    return make("div", { class: "value-bar" },
      make("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
        make("rect", { x: 0, y: 0, width: length, height: 10 })),
      make("span", {}, short(value)));
  }

  function roi(slot, rois, place) {
    const name = rois.name[place], given = state.classes[rois.label[place]] ?? "";
    const frame = make("span", { class: "thumb" });
    if (rois.crop[place]) {
      const file = `crops/${Math.floor(slot / state.map.slotsPerFile)}/${slot}-${place}.jpg`;
      frame.append(make("img", { src: file, alt: "", loading: "lazy", decoding: "async" }));
    } else frame.append(make("span", { class: "missing small" }, "no picture"));
    const what = rois.region[place] ? `region ${rois.region[place]}` : "whole image";
    return make("a", { class: "roi", href: `class.html#${rois.label[place]}/${rois.row[place]}`, title: `${name}, ${what}` },
      frame, make("span", { class: "caption" }, make("bdi", { class: "clip" }, given),
        make("span", {}, `${rois.similarity[place].toFixed(2)} · ${rois.region[place] ? "region" : "image"}`)));
  }

  async function open(slot) {
    const [row, column] = [Math.floor(slot / state.map.side), slot % state.map.side];
    state.opened = state.cursor = { row, column };
    history.replaceState(null, "", `#slot=${slot}`);
    draw();
    const details = (await somnet.load(`slots-${Math.floor(slot / state.map.slotsPerFile)}`))[slot % state.map.slotsPerFile];
    if (state.opened.row * state.map.side + state.opened.column !== slot) return; // another one was opened meanwhile
    byId("slot-none").hidden = true;
    byId("slot-open").hidden = false;
    byId("slot-title").textContent = `Slot ${slot}`;
    const facts = [["place", `row ${row + 1}, column ${column + 1}`], ["regions won", number(state.map.hits[slot])],
      ["distance to its neighbours", state.map.distance[slot].toFixed(3)]];
    byId("slot-facts").replaceChildren(...facts.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
    byId("slot-rois").replaceChildren(...details.rois.row.map((_, place) => roi(slot, details.rois, place)));
    byId("slot-empty").hidden = details.rois.row.length > 0;
    const [topD, topR] = [Math.max(...details.d), Math.max(...details.r)];
    byId("slot-scores").replaceChildren(...details.classes.map((one, place) => make("tr", { class: one === state.chosen ? "chosen" : null },
      make("td", { class: "name" }, make("bdi", {}, state.classes[one])),
      make("td", { class: "bar-cell" }, bar(details.d[place], topD)),
      make("td", { class: "bar-cell" }, bar(details.r[place], topR)),
      make("td", { class: "number" }, short(details.d[place] * details.r[place])))));
    byId("slot-more").textContent = details.classes.length < state.classes.length
      ? `The ${details.classes.length} classes with the largest S of ${number(state.classes.length)}.` : "";
    byId("slot").dataset.slot = slot;
  }

  // --------------------------------------------------------------------------------------------- controls

  const needsPlane = (name) => name === "d" || name === "r" || name === "s";

  let choices = 0, asked = "classes"; // the layer that was chosen last, which may still be loading
  async function choose(name, label) {
    const mine = ++choices;
    asked = name;
    const next = needsPlane(name) ? label ?? state.planes?.label ?? 0 : label; // planes stay with their class
    if (needsPlane(name) && state.planes?.label !== next) {
      const plane = await somnet.load(`plane-${next}`);
      if (mine !== choices) return; // something else was chosen meanwhile
      const [d, r] = [unpack(plane.d), unpack(plane.r)];
      state.planes = { label: next, d, r, s: d.map((value, slot) => value * r[slot]) };
    }
    [state.layer, state.chosen] = [name, next];
    const list = byId("plane-class");
    list.disabled = !needsPlane(name) && name !== "classes";
    list.options[0].hidden = list.options[0].disabled = needsPlane(name);
    list.value = state.chosen === null ? "" : String(state.chosen);
    for (const button of document.querySelectorAll("button[data-layer]")) {
      button.setAttribute("aria-pressed", String(button.dataset.layer === name));
    }
    byId("class-legend").hidden = name !== "classes";
    for (const button of byId("class-legend").children) {
      button.setAttribute("aria-pressed", String(Number(button.dataset.label) === state.chosen));
    }
    canvas.dataset.layer = name;
    canvas.dataset.label = list.value;
    show(state.view.span, state.view.row + state.view.span / 2 - 0.5, state.view.column + state.view.span / 2 - 0.5);
  }

  function drawLegend() {
    if (state.classes.length > LEGEND_CLASSES) return;
    byId("class-legend").replaceChildren(...state.classes.map((name, place) => make("button",
      { "data-label": place, "aria-pressed": "false",
        onclick: () => choose("classes", state.chosen === place ? null : place) },
      swatch(place), make("span", { class: "clip" }, `${place + 1} `, make("bdi", {}, name)))));
  }

  function under(event) {
    const box = canvas.getBoundingClientRect();
    const place = (at, first) => Math.max(0, Math.min(state.map.side - 1, Math.floor(first + (at / box.width) * state.view.span)));
    return { row: place(event.clientY - box.top, state.view.row), column: place(event.clientX - box.left, state.view.column) };
  }

  const KEYS = {
    ArrowUp: () => move(-1, 0), ArrowDown: () => move(1, 0), ArrowLeft: () => move(0, -1), ArrowRight: () => move(0, 1),
    Enter: () => enter(state.cursor), " ": () => enter(state.cursor),
    "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: () => show(state.map.side, 0, 0),
  };

  function listen() {
    for (const button of document.querySelectorAll("button[data-layer]")) {
      button.addEventListener("click", () => choose(button.dataset.layer, null));
    }
    byId("plane-class").addEventListener("change", (event) => {
      choose(asked, event.target.value === "" ? null : Number(event.target.value));
    });
    byId("zoom-in").addEventListener("click", () => zoom(0.5));
    byId("zoom-out").addEventListener("click", () => zoom(2));
    byId("zoom-all").addEventListener("click", () => show(state.map.side, 0, 0));
    canvas.addEventListener("keydown", (event) => {
      const act = !event.ctrlKey && !event.metaKey && !event.altKey && KEYS[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    });
    let pressed = null; // where a drag began, and what was shown then
    canvas.addEventListener("pointerdown", (event) => {
      pressed = { x: event.clientX, y: event.clientY, view: state.view, moved: false };
    });
    canvas.addEventListener("pointermove", (event) => {
      const cell = width() / state.view.span;
      if (pressed && event.buttons && state.view.span < state.map.side && event.pointerType === "mouse") {
        const by = (now, then) => Math.round((then - now) / cell);
        const fit = (place) => Math.max(0, Math.min(state.map.side - state.view.span, place));
        const next = {
          row: fit(pressed.view.row + by(event.clientY, pressed.y)),
          column: fit(pressed.view.column + by(event.clientX, pressed.x)),
        };
        pressed.moved ||= next.row !== state.view.row || next.column !== state.view.column;
        state.view = { ...state.view, ...next };
      }
      state.pointed = event.pointerType === "mouse" ? under(event) : null;
      draw();
    });
    canvas.addEventListener("pointerleave", () => { state.pointed = null; draw(); });
    canvas.addEventListener("click", (event) => {
      if (!pressed?.moved) enter(under(event));
      pressed = null;
      const below = byId("slot").getBoundingClientRect().top > innerHeight - 120; // on a phone
      if (below && state.opened !== null && blockSize() === 1) byId("slot").scrollIntoView({ behavior: "smooth" });
    });
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return; // else the page could not be scrolled
      event.preventDefault();
      state.cursor = under(event);
      zoom(event.deltaY < 0 ? 0.5 : 2);
    }, { passive: false });
    for (const name of ["focus", "blur"]) canvas.addEventListener(name, draw);
    addEventListener("resize", () => { describeLayer(); draw(); });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { drawLegend(); draw(); });
    addEventListener("hashchange", openFromAddress);
  }

  function openFromAddress() {
    const slot = Number(/^#slot=(\d+)$/.exec(location.hash)?.[1] ?? -1);
    if (slot < 0 || slot >= state.map.side * state.map.side) return;
    state.cursor = { row: Math.floor(slot / state.map.side), column: slot % state.map.side };
    if (blockSize() > 1) show(2 * CLOSEST, state.cursor.row, state.cursor.column);
    open(slot);
    follow();
  }

  async function begin() {
    const [run, map] = await Promise.all([somnet.load("run"), somnet.load("memory")]);
    state.map = { ...map, distance: unpack(map.distance) };
    state.classes = run.classes;
    const dead = state.map.hits.filter((hits) => hits === 0).length;
    byId("map-summary").textContent = `${number(state.map.side)} × ${number(state.map.side)} slots, ${number(dead)} of them dead. ` +
      `${number(state.map.hits.reduce((sum, hits) => sum + hits, 0))} regions of ${number(run.images)} training images, each beside those it resembles.`;
    byId("dead-note").hidden = dead === 0;
    byId("plane-class").append(make("option", { value: "" }, "all classes"),
      ...state.classes.map((name, place) => make("option", { value: place }, name)));
    byId("zoom").hidden = byId("zoom-keys").hidden = state.map.side <= CLOSEST * 1.5;
    drawLegend();
    listen();
    const busiest = state.map.hits.reduce((best, hits, slot) => (hits > state.map.hits[best] ? slot : best), 0);
    state.cursor = { row: Math.floor(busiest / state.map.side), column: busiest % state.map.side };
    show(state.map.side, 0, 0);
    await choose("classes", null);
    openFromAddress();
    document.documentElement.dataset.ready = "";
  }

  begin();
})();
