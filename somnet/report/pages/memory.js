// The memory map: a grid of slots, drawn on a canvas, with a cursor that mouse and keys move.
"use strict";

(() => {
  const { make, byId, number } = somnet;
  const SMALLEST_CELL = { classes: 15 }; // pixels; below it slots are drawn as blocks of several
  const SMALLEST_PLAIN_CELL = 9;
  const CLOSEST = 10; // slots a side, at the largest zoom
  const MOST_SLICES = 24; // of a pie; smaller ones are drawn as one
  const LEGEND_CLASSES = 60; // more are chosen from the list alone

  // Cividis: even steps to the eye, the same for people who do not see red or green.
  const CIVIDIS = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"];
  // Okabe and Ito's colours; beyond seven classes they come again with stripes, then with dots, then anew.
  const COLOURS = ["#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7"];

  const NOTES = {
    hits: () => "How many regions have the slot as their winner.",
    classes: () => "Given labels of each slot’s regions; the number names the largest class.",
    distance: () => "U-matrix: mean cosine distance to the slots beside; bright ridges part clusters.",
    d: (name) => `D: how much a slot is about ${name} and nothing else.`,
    r: (name) => `R: how much of ${name} lies in a slot.`,
    s: (name) => `S = D × R: prototypes of ${name}, slots that are full of it and of nothing else.`,
  };
  const UNITS = { hits: "regions", distance: "cosine distance", d: "d-value", r: "r-value", s: "d × r" };

  const canvas = byId("map");
  const screen = canvas.getContext("2d");
  const base = make("canvas"); // the slots without cursor and outlines, which move far more often
  let pen = screen, painted = null; // painted: what the base shows, and its largest value
  let map, classes, colours;
  let layer = "hits", chosen = null, planes = null; // chosen: class of the planes, or the one that pies show alone
  let view = null; // {row, column, span}: the square of slots that is shown
  let cursor = { row: 0, column: 0 }, opened = null, pointed = null;

  // ---------------------------------------------------------------------------------------------- values

  function unpack({ top, levels }) {
    const bytes = Uint8Array.from(atob(levels), (sign) => sign.charCodeAt(0));
    return Float32Array.from(bytes, (level) => (level / 255) * top);
  }

  function values() {
    if (layer === "hits" || layer === "classes") return map.hits;
    if (layer === "distance") return map.distance;
    return planes[layer];
  }

  // The slots of the block whose first one is at a row and column.
  function* slotsOf(row, column, block) {
    for (let r = row; r < Math.min(row + block, map.side); r++) {
      for (let c = column; c < Math.min(column + block, map.side); c++) yield r * map.side + c;
    }
  }

  // Hits add up, distances are averaged, and of a plane the largest value counts: that is what one looks for.
  function blockValue(row, column, block) {
    const all = values();
    let sum = 0, most = 0, count = 0;
    for (const slot of slotsOf(row, column, block)) {
      sum += all[slot];
      most = Math.max(most, all[slot]);
      count += 1;
    }
    if (layer === "hits" || layer === "classes") return sum;
    return layer === "distance" ? sum / count : most;
  }

  function blockHits(row, column, block) {
    let hits = 0;
    for (const slot of slotsOf(row, column, block)) hits += map.hits[slot];
    return hits;
  }

  // Hits by class, the largest first; what a slot's own pie leaves out is class -1.
  function slices(row, column, block) {
    const found = new Map();
    for (const slot of slotsOf(row, column, block)) {
      let rest = map.hits[slot];
      for (let place = slot * map.slices; place < (slot + 1) * map.slices; place++) {
        const hits = map.sliceHits[place];
        if (!hits) continue;
        found.set(map.sliceClass[place], (found.get(map.sliceClass[place]) ?? 0) + hits);
        rest -= hits;
      }
      if (rest) found.set(-1, (found.get(-1) ?? 0) + rest);
    }
    const others = found.get(-1) ?? 0;
    found.delete(-1);
    const sorted = [...found].sort((a, b) => b[1] - a[1]);
    const rest = sorted.slice(MOST_SLICES).reduce((sum, [, hits]) => sum + hits, others);
    return [...sorted.slice(0, MOST_SLICES), ...(rest ? [[-1, rest]] : [])];
  }

  // --------------------------------------------------------------------------------------------- drawing

  const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

  function shade(share) {
    const place = Math.min(Math.max(share, 0), 1) * (CIVIDIS.length - 1);
    const low = Math.min(Math.floor(place), CIVIDIS.length - 2);
    const [from, to] = [rgb(CIVIDIS[low]), rgb(CIVIDIS[low + 1])];
    return `rgb(${from.map((part, at) => Math.round(part + (to[at] - part) * (place - low))).join(" ")})`;
  }

  function theme() {
    const style = getComputedStyle(document.documentElement);
    const names = ["paper", "panel", "ink", "muted", "line", "accent"];
    return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  }

  function pattern(colour, kind, paper) {
    if (kind === 0) return colour;
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const brush = tile.getContext("2d");
    brush.fillStyle = colour;
    brush.fillRect(0, 0, 6, 6);
    brush.fillStyle = paper;
    if (kind === 1) brush.fillRect(0, 0, 6, 2);
    else brush.fillRect(1, 1, 2, 2);
    return pen.createPattern(tile, "repeat");
  }

  const fills = new Map(); // made once: a map of many slots needs each of them thousands of times
  function classFill(number, paper) {
    const [colour, kind] = [number % COLOURS.length, Math.floor(number / COLOURS.length) % 3];
    const key = `${colour} ${kind} ${paper}`;
    if (!fills.has(key)) fills.set(key, pattern(COLOURS[colour], kind, paper));
    return fills.get(key);
  }

  const width = () => canvas.clientWidth || 1;
  function blockSize() {
    const smallest = SMALLEST_CELL[layer] ?? SMALLEST_PLAIN_CELL;
    return Math.max(1, Math.ceil((smallest * view.span) / width()));
  }

  function* blocks() {
    const block = blockSize();
    const first = (place) => Math.floor(place / block) * block;
    for (let row = first(view.row); row < view.row + view.span; row += block) {
      for (let column = first(view.column); column < view.column + view.span; column += block) {
        if (row < map.side && column < map.side) yield [row, column, block];
      }
    }
  }

  let waiting = false;
  function draw() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      drawNow();
    });
  }

  function drawNow() {
    const size = width(), ratio = devicePixelRatio || 1, cell = size / view.span;
    colours = theme();
    const state = [layer, chosen, view.row, view.column, view.span, size, ratio, colours.paper].join();
    if (painted?.state !== state) painted = { state, top: paint(size, ratio, cell) };
    canvas.width = canvas.height = base.width;
    screen.drawImage(base, 0, 0);
    screen.setTransform(ratio, 0, 0, ratio, 0, 0);
    if (opened !== null) outline(opened.row, opened.column, 1, cell, colours.ink, 3, true);
    const block = blockSize();
    const at = (place) => Math.floor(place / block) * block;
    if (pointed && !sameBlock(pointed, cursor, block)) outline(at(pointed.row), at(pointed.column), block, cell, colours.ink, 1.5);
    if (document.activeElement === canvas || opened === null) {
      outline(at(cursor.row), at(cursor.column), block, cell, colours.accent, 3, true);
    }
    drawScale(painted.top);
    describeHere(block);
  }

  function paint(size, ratio, cell) {
    base.width = base.height = Math.round(size * ratio);
    pen = base.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.fillStyle = colours.panel;
    pen.fillRect(0, 0, size, size);
    const shown = [...blocks()].map(([row, column, block]) => ({
      row, column, block, value: blockValue(row, column, block), hits: blockHits(row, column, block),
    }));
    const top = layer === "hits" || layer === "classes" ? Math.max(1, ...shown.map(({ value }) => value)) : topOf(values());
    for (const one of shown) {
      const x = (one.column - view.column) * cell, y = (one.row - view.row) * cell;
      const w = Math.min(one.block, map.side - one.column) * cell, h = Math.min(one.block, map.side - one.row) * cell;
      const gap = cell * one.block > 14 ? 1 : 0.5;
      if (layer === "classes") drawPie(one, x, y, Math.min(w, h), top);
      else {
        pen.fillStyle = layer === "hits" && one.hits === 0 ? colours.panel : shade(one.value / (top || 1));
        pen.fillRect(x + gap / 2, y + gap / 2, w - gap, h - gap);
      }
      if (one.hits === 0) cross(x + w / 2, y + h / 2, Math.min(w, h, 40), one.value / (top || 1));
    }
    pen = screen;
    return top;
  }

  const sameBlock = (a, b, block) =>
    Math.floor(a.row / block) === Math.floor(b.row / block) && Math.floor(a.column / block) === Math.floor(b.column / block);

  function topOf(all) {
    let top = 0;
    for (const value of all) top = Math.max(top, value);
    return top;
  }

  function drawPie({ row, column, block, hits }, x, y, side, top) {
    if (!hits) return;
    const radius = side * 0.47 * (0.45 + 0.55 * Math.sqrt(hits / top));
    let angle = -Math.PI / 2;
    const parts = slices(row, column, block);
    for (const [number, count] of parts) {
      const next = angle + (2 * Math.PI * count) / hits;
      pen.beginPath();
      pen.moveTo(x + side / 2, y + side / 2);
      pen.arc(x + side / 2, y + side / 2, radius, angle, next);
      pen.closePath();
      const fade = number < 0 || (chosen !== null && number !== chosen);
      pen.fillStyle = fade ? colours.line : classFill(number, colours.paper);
      pen.fill();
      angle = next;
    }
    if (radius > 11) {
      pen.beginPath();
      pen.arc(x + side / 2, y + side / 2, radius * 0.56, 0, 2 * Math.PI);
      pen.fillStyle = colours.panel;
      pen.fill();
      pen.fillStyle = colours.ink;
      pen.font = `600 ${Math.min(14, Math.round(radius * 0.62))}px system-ui, sans-serif`;
      pen.textAlign = "center";
      pen.textBaseline = "middle";
      pen.fillText(String(parts[0][0] + 1), x + side / 2, y + side / 2 + 0.5);
    }
  }

  function cross(x, y, side, share) {
    const reach = Math.max(1.5, side * 0.16);
    const onDark = layer !== "hits" && layer !== "classes" && share < 0.55;
    pen.strokeStyle = layer === "hits" || layer === "classes" ? colours.muted : onDark ? "#ffffffb0" : "#000000a0";
    pen.lineWidth = side > 20 ? 1.75 : 1;
    pen.beginPath();
    pen.moveTo(x - reach, y - reach);
    pen.lineTo(x + reach, y + reach);
    pen.moveTo(x + reach, y - reach);
    pen.lineTo(x - reach, y + reach);
    pen.stroke();
  }

  function outline(row, column, block, cell, colour, thick, halo = false) {
    const x = (column - view.column) * cell, y = (row - view.row) * cell, side = block * cell;
    const inset = thick / 2;
    if (halo) {
      pen.strokeStyle = colours.paper;
      pen.lineWidth = thick + 3;
      pen.strokeRect(x + inset, y + inset, side - thick, side - thick);
    }
    pen.strokeStyle = colour;
    pen.lineWidth = thick;
    pen.strokeRect(x + inset, y + inset, side - thick, side - thick);
  }

  const short = (value) =>
    Number.isInteger(value) ? number(value) : value < 0.0005 ? "<0.001" : value.toFixed(3);

  function drawScale(top) {
    byId("scale").hidden = layer === "classes";
    const brush = byId("scale-bar").getContext("2d");
    for (let x = 0; x < 256; x++) {
      brush.fillStyle = shade(x / 255);
      brush.fillRect(x, 0, 1, 1);
    }
    byId("scale-high").textContent = Number.isInteger(top) ? number(top) : top.toPrecision(2);
    byId("scale-unit").textContent = UNITS[layer] ?? "";
  }

  // ----------------------------------------------------------------------------------------------- words

  function describeHere(block) {
    const at = pointed ?? cursor;
    const row = Math.floor(at.row / block) * block, column = Math.floor(at.column / block) * block;
    const hits = blockHits(row, column, block);
    const parts = [];
    if (block === 1) parts.push(make("b", {}, `Slot ${row * map.side + column}`), ` · row ${row + 1}, column ${column + 1} · `);
    else {
      const [lastRow, lastColumn] = [Math.min(row + block, map.side), Math.min(column + block, map.side)];
      parts.push(make("b", {}, `${block} × ${block} slots`), ` · rows ${row + 1}–${lastRow}, columns ${column + 1}–${lastColumn} · `);
    }
    if (!hits) parts.push("dead");
    else {
      parts.push(`${number(hits)} region${hits === 1 ? "" : "s"}`);
      const [first] = slices(row, column, block);
      if (first[0] >= 0) parts.push(", ", `${Math.round((100 * first[1]) / hits)} % `, make("bdi", {}, classes[first[0]]));
    }
    if (layer !== "hits" && layer !== "classes") parts.push(` · ${UNITS[layer]} ${short(blockValue(row, column, block))}`);
    byId("map-here").replaceChildren(...parts);
  }

  function describeLayer() {
    const block = blockSize();
    const blocks = block === 1 ? "" : ` Each square stands for ${block} × ${block} slots` +
      ({ hits: ", their hits added up.", classes: ", their regions together.", distance: ", averaged." }[layer] ?? ", the largest value of them.");
    byId("layer-note").replaceChildren(NOTES[layer](classes[chosen]), blocks);
  }

  // ------------------------------------------------------------------------------------------------ zoom

  function show(span, row, column) {
    const wide = Math.max(Math.min(span, map.side), Math.min(CLOSEST, map.side));
    const fit = (middle) => Math.max(0, Math.min(map.side - wide, Math.round(middle - wide / 2)));
    view = { span: wide, row: fit(row + 0.5), column: fit(column + 0.5) };
    byId("zoom-out").disabled = byId("zoom-all").disabled = wide === map.side;
    byId("zoom-in").disabled = wide === Math.min(CLOSEST, map.side);
    canvas.dataset.span = wide;
    describeLayer();
    draw();
  }

  const zoom = (factor) => show(Math.round(view.span * factor), cursor.row, cursor.column);

  function follow() {
    const into = (place, first) => Math.min(Math.max(first, place - view.span + 1), place);
    view = { ...view, row: into(cursor.row, view.row), column: into(cursor.column, view.column) };
    draw();
  }

  function move(rows, columns) {
    const block = blockSize();
    const step = (place, by) => Math.max(0, Math.min(map.side - 1, place + by * block));
    cursor = { row: step(cursor.row, rows), column: step(cursor.column, columns) };
    pointed = null;
    follow();
  }

  // A block is looked at more closely, a slot is opened.
  function enter(at) {
    cursor = at;
    if (blockSize() > 1) {
      let span = view.span;
      do span = Math.max(CLOSEST, Math.floor(span / 2));
      while (span > CLOSEST && span > Math.floor(width() / (SMALLEST_CELL[layer] ?? SMALLEST_PLAIN_CELL) / 2));
      show(span, at.row, at.column);
    } else open(at.row * map.side + at.column);
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
    const name = rois.name[place], given = classes[rois.label[place]] ?? "";
    const frame = make("span", { class: "thumb" });
    if (rois.crop[place]) {
      const file = `crops/${Math.floor(slot / map.slotsAFile)}/${slot}-${place}.jpg`;
      frame.append(make("img", { src: file, alt: "", loading: "lazy", decoding: "async" }));
    } else frame.append(make("span", { class: "missing small" }, "no picture"));
    const what = rois.region[place] ? `region ${rois.region[place]}` : "whole image";
    return make("a", { class: "roi", href: `class.html#${rois.label[place]}/${rois.row[place]}`, title: `${name}, ${what}` },
      frame, make("span", { class: "caption" }, make("bdi", { class: "clip" }, given),
        make("span", {}, `${rois.similarity[place].toFixed(2)} · ${rois.region[place] ? "region" : "image"}`)));
  }

  async function open(slot) {
    const [row, column] = [Math.floor(slot / map.side), slot % map.side];
    opened = cursor = { row, column };
    history.replaceState(null, "", `#slot=${slot}`);
    draw();
    const found = (await somnet.load(`slots-${Math.floor(slot / map.slotsAFile)}`))[slot % map.slotsAFile];
    if (opened.row * map.side + opened.column !== slot) return; // another one was opened meanwhile
    byId("slot-none").hidden = true;
    byId("slot-open").hidden = false;
    byId("slot-title").textContent = `Slot ${slot}`;
    const facts = [["place", `row ${row + 1}, column ${column + 1}`], ["regions won", number(map.hits[slot])],
      ["distance to its neighbours", map.distance[slot].toFixed(3)]];
    byId("slot-facts").replaceChildren(...facts.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
    byId("slot-rois").replaceChildren(...found.rois.row.map((_, place) => roi(slot, found.rois, place)));
    byId("slot-empty").hidden = found.rois.row.length > 0;
    const [topD, topR] = [Math.max(...found.d), Math.max(...found.r)];
    byId("slot-scores").replaceChildren(...found.classes.map((one, place) => make("tr", { class: one === chosen ? "chosen" : null },
      make("td", { class: "name" }, make("bdi", {}, classes[one])),
      make("td", { class: "bar-cell" }, bar(found.d[place], topD)),
      make("td", { class: "bar-cell" }, bar(found.r[place], topR)),
      make("td", { class: "number" }, short(found.d[place] * found.r[place])))));
    byId("slot-more").textContent = found.classes.length < classes.length
      ? `The ${found.classes.length} classes with the largest S of ${number(classes.length)}.` : "";
    byId("slot").dataset.slot = slot;
  }

  // --------------------------------------------------------------------------------------------- controls

  const needsPlane = (name) => name === "d" || name === "r" || name === "s";

  let choices = 0;
  async function choose(name, label) {
    const mine = ++choices;
    const next = needsPlane(name) ? label ?? planes?.label ?? 0 : label; // planes stay with their class
    if (needsPlane(name) && planes?.label !== next) {
      const found = await somnet.load(`plane-${next}`);
      if (mine !== choices) return; // something else was chosen meanwhile
      const [d, r] = [unpack(found.d), unpack(found.r)];
      planes = { label: next, d, r, s: d.map((value, slot) => value * r[slot]) };
    }
    [layer, chosen] = [name, next];
    const list = byId("plane-class");
    list.disabled = !needsPlane(name) && name !== "classes";
    list.options[0].hidden = list.options[0].disabled = needsPlane(name);
    list.value = chosen === null ? "" : String(chosen);
    for (const button of document.querySelectorAll("[data-layer]")) {
      button.setAttribute("aria-pressed", String(button.dataset.layer === name));
    }
    byId("class-legend").hidden = name !== "classes";
    for (const button of byId("class-legend").children) {
      button.setAttribute("aria-pressed", String(Number(button.dataset.label) === chosen));
    }
    canvas.dataset.layer = name;
    canvas.dataset.label = list.value;
    show(view.span, view.row + view.span / 2 - 0.5, view.column + view.span / 2 - 0.5);
  }

  function swatch(number) {
    const made = make("canvas", { width: 14, height: 14 });
    const brush = made.getContext("2d");
    brush.fillStyle = classFill(number, theme().paper);
    brush.fillRect(0, 0, 14, 14);
    return made;
  }

  function drawLegend() {
    if (classes.length > LEGEND_CLASSES) return;
    byId("class-legend").replaceChildren(...classes.map((name, place) => make("button",
      { "data-label": place, "aria-pressed": "false",
        onclick: () => choose("classes", chosen === place ? null : place) },
      swatch(place), make("span", { class: "clip" }, `${place + 1} `, make("bdi", {}, name)))));
  }

  function under(event) {
    const box = canvas.getBoundingClientRect();
    const place = (at, first) => Math.max(0, Math.min(map.side - 1, Math.floor(first + (at / box.width) * view.span)));
    return { row: place(event.clientY - box.top, view.row), column: place(event.clientX - box.left, view.column) };
  }

  const KEYS = {
    ArrowUp: () => move(-1, 0), ArrowDown: () => move(1, 0), ArrowLeft: () => move(0, -1), ArrowRight: () => move(0, 1),
    Enter: () => enter(cursor), " ": () => enter(cursor),
    "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: () => show(map.side, 0, 0),
  };

  function listen() {
    for (const button of document.querySelectorAll("[data-layer]")) {
      button.addEventListener("click", () => choose(button.dataset.layer, null));
    }
    byId("plane-class").addEventListener("change", (event) => {
      choose(layer, event.target.value === "" ? null : Number(event.target.value));
    });
    byId("zoom-in").addEventListener("click", () => zoom(0.5));
    byId("zoom-out").addEventListener("click", () => zoom(2));
    byId("zoom-all").addEventListener("click", () => show(map.side, 0, 0));
    canvas.addEventListener("keydown", (event) => {
      const act = !event.ctrlKey && !event.metaKey && !event.altKey && KEYS[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    });
    let pressed = null; // where a drag began, and what was shown then
    canvas.addEventListener("pointerdown", (event) => {
      pressed = { x: event.clientX, y: event.clientY, view, moved: false };
    });
    canvas.addEventListener("pointermove", (event) => {
      const cell = width() / view.span;
      if (pressed && event.buttons && view.span < map.side && event.pointerType === "mouse") {
        const by = (now, then) => Math.round((then - now) / cell);
        const fit = (place) => Math.max(0, Math.min(map.side - view.span, place));
        const next = { row: fit(pressed.view.row + by(event.clientY, pressed.y)), column: fit(pressed.view.column + by(event.clientX, pressed.x)) };
        pressed.moved ||= next.row !== view.row || next.column !== view.column;
        view = { ...view, ...next };
      }
      pointed = event.pointerType === "mouse" ? under(event) : null;
      draw();
    });
    canvas.addEventListener("pointerleave", () => { pointed = null; draw(); });
    canvas.addEventListener("click", (event) => {
      if (!pressed?.moved) enter(under(event));
      pressed = null;
      const below = byId("slot").getBoundingClientRect().top > innerHeight - 120; // on a phone
      if (below && opened !== null && blockSize() === 1) byId("slot").scrollIntoView({ behavior: "smooth" });
    });
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return; // else the page could not be scrolled
      event.preventDefault();
      cursor = under(event);
      zoom(event.deltaY < 0 ? 0.5 : 2);
    }, { passive: false });
    for (const name of ["focus", "blur"]) canvas.addEventListener(name, draw);
    addEventListener("resize", () => { describeLayer(); draw(); });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { drawLegend(); draw(); });
    addEventListener("hashchange", openFromAddress);
  }

  function openFromAddress() {
    const slot = Number(/^#slot=(\d+)$/.exec(location.hash)?.[1] ?? -1);
    if (slot < 0 || slot >= map.side * map.side) return;
    cursor = { row: Math.floor(slot / map.side), column: slot % map.side };
    if (blockSize() > 1) show(2 * CLOSEST, cursor.row, cursor.column);
    open(slot);
    follow();
  }

  async function begin() {
    const [run, found] = await Promise.all([somnet.load("run"), somnet.load("memory")]);
    map = { ...found, distance: unpack(found.distance) };
    classes = run.classes;
    const dead = map.hits.filter((hits) => hits === 0).length;
    byId("map-summary").textContent = `${number(map.side)} × ${number(map.side)} slots, ${number(dead)} of them dead. ` +
      `${number(map.hits.reduce((sum, hits) => sum + hits, 0))} regions of ${number(run.images)} training images, each beside those it resembles.`;
    byId("dead-note").hidden = dead === 0;
    byId("plane-class").append(make("option", { value: "" }, "all classes"),
      ...classes.map((name, place) => make("option", { value: place }, name)));
    byId("zoom").hidden = byId("zoom-keys").hidden = map.side <= CLOSEST * 1.5;
    drawLegend();
    listen();
    const busiest = map.hits.reduce((best, hits, slot) => (hits > map.hits[best] ? slot : best), 0);
    cursor = { row: Math.floor(busiest / map.side), column: busiest % map.side };
    show(map.side, 0, 0);
    openFromAddress();
    document.documentElement.dataset.ready = "";
  }

  begin();
})();
