// The memory map, drawn on a canvas: slots or blocks of slots, with cursor and outlines, and what they are in words.
"use strict";

const mapDrawing = (() => {
  const { make, byId, number, classColours } = somnet;
  const { state, values, blockValue, blockHits, slices, topOf, short } = memoryMap;
  const SMALLEST_CELL = { classes: 15 }; // pixels; below it slots are drawn as blocks of several
  const SMALLEST_PLAIN_CELL = 9;

  // Cividis: even steps to the eye, the same for people who do not see red or green.
  const CIVIDIS = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"];

  const NOTES = {
    hits: () => "How many regions have the slot as their winner.",
    classes: () => "Given labels of each slot’s regions; the number names the largest class.",
    distance: () => "U-matrix: mean cosine distance to the slots beside; bright ridges separate clusters.",
    d: (name) => `Telling, D: how much a slot is about ${name} and nothing else.`,
    r: (name) => `Typical, R: how much of ${name} lies in a slot.`,
    s: (name) => `Both, S = D × R: prototypes of ${name}, slots that are full of it and of nothing else.`,
  };
  const UNITS = { hits: "regions", distance: "cosine distance", d: "d-value", r: "r-value", s: "d × r" };

  const canvas = byId("map");
  const screen = canvas.getContext("2d");
  const base = make("canvas"); // the slots without cursor and outlines, which move far more often
  let pen = screen, painted = null; // painted: what the base shows, and its largest value
  let colours;

  // --------------------------------------------------------------------------------------------- drawing

  const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

  function shade(share) {
    const place = Math.min(Math.max(share, 0), 1) * (CIVIDIS.length - 1);
    const low = Math.min(Math.floor(place), CIVIDIS.length - 2);
    const [from, to] = [rgb(CIVIDIS[low]), rgb(CIVIDIS[low + 1])];
    return `rgb(${from.map((channel, at) => Math.round(channel + (to[at] - channel) * (place - low))).join(" ")})`;
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
  // Beyond seven classes the colours come again with stripes, then with dots, then from the start.
  function classFill(number, paper) {
    const [colour, kind] = [number % classColours.length, Math.floor(number / classColours.length) % 3];
    const key = `${colour} ${kind} ${paper}`;
    if (!fills.has(key)) fills.set(key, pattern(classColours[colour], kind, paper));
    return fills.get(key);
  }

  function swatch(number) {
    const made = make("canvas", { width: 14, height: 14 });
    const brush = made.getContext("2d");
    brush.fillStyle = classFill(number, theme().paper);
    brush.fillRect(0, 0, 14, 14);
    return made;
  }

  const width = () => canvas.clientWidth || 1;
  const smallestCell = () => SMALLEST_CELL[state.layer] ?? SMALLEST_PLAIN_CELL;

  // Slots per side of what is drawn as one.
  function blockSize() {
    return Math.max(1, Math.ceil((smallestCell() * state.view.span) / width()));
  }

  function* blocks() {
    const block = blockSize();
    const first = (place) => Math.floor(place / block) * block;
    for (let row = first(state.view.row); row < state.view.row + state.view.span; row += block) {
      for (let column = first(state.view.column); column < state.view.column + state.view.span; column += block) {
        if (row < state.map.side && column < state.map.side) yield [row, column, block];
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
    const size = width(), ratio = devicePixelRatio || 1, cell = size / state.view.span;
    colours = theme();
    const { row, column, span } = state.view;
    const look = [state.layer, state.chosen, row, column, span, size, ratio, colours.paper].join();
    if (painted?.look !== look) painted = { look, top: paint(size, ratio, cell) };
    canvas.width = canvas.height = base.width;
    screen.drawImage(base, 0, 0);
    screen.setTransform(ratio, 0, 0, ratio, 0, 0);
    if (state.opened !== null) outline(state.opened.row, state.opened.column, 1, cell, colours.ink, 3, true);
    const block = blockSize();
    const at = (place) => Math.floor(place / block) * block;
    if (state.pointed && !sameBlock(state.pointed, state.cursor, block)) {
      outline(at(state.pointed.row), at(state.pointed.column), block, cell, colours.ink, 1.5);
    }
    if (document.activeElement === canvas || state.opened === null) {
      outline(at(state.cursor.row), at(state.cursor.column), block, cell, colours.accent, 3, true);
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
    const counts = state.layer === "hits" || state.layer === "classes";
    const top = counts ? Math.max(1, ...shown.map(({ value }) => value)) : topOf(values());
    for (const one of shown) {
      const x = (one.column - state.view.column) * cell, y = (one.row - state.view.row) * cell;
      const w = Math.min(one.block, state.map.side - one.column) * cell, h = Math.min(one.block, state.map.side - one.row) * cell;
      const gap = cell * one.block > 14 ? 1 : 0.5;
      if (state.layer === "classes") drawPie(one, x, y, Math.min(w, h), top);
      else {
        pen.fillStyle = state.layer === "hits" && one.hits === 0 ? colours.panel : shade(one.value / (top || 1));
        pen.fillRect(x + gap / 2, y + gap / 2, w - gap, h - gap);
      }
      if (one.hits === 0) cross(x + w / 2, y + h / 2, Math.min(w, h, 40), one.value / (top || 1));
    }
    pen = screen;
    return top;
  }

  const sameBlock = (a, b, block) =>
    Math.floor(a.row / block) === Math.floor(b.row / block) && Math.floor(a.column / block) === Math.floor(b.column / block);

  function drawPie({ row, column, block, hits }, x, y, side, top) {
    if (!hits) return;
    const radius = side * 0.47 * (0.45 + 0.55 * Math.sqrt(hits / top));
    let angle = -Math.PI / 2;
    const pie = slices(row, column, block);
    for (const [number, count] of pie) {
      const next = angle + (2 * Math.PI * count) / hits;
      pen.beginPath();
      pen.moveTo(x + side / 2, y + side / 2);
      pen.arc(x + side / 2, y + side / 2, radius, angle, next);
      pen.closePath();
      const fade = number < 0 || (state.chosen !== null && number !== state.chosen);
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
      pen.fillText(String(pie[0][0] + 1), x + side / 2, y + side / 2 + 0.5);
    }
  }

  function cross(x, y, side, share) {
    const reach = Math.max(1.5, side * 0.16);
    const onDark = state.layer !== "hits" && state.layer !== "classes" && share < 0.55;
    pen.strokeStyle = state.layer === "hits" || state.layer === "classes" ? colours.muted : onDark ? "#ffffffb0" : "#000000a0";
    pen.lineWidth = side > 20 ? 1.75 : 1;
    pen.beginPath();
    pen.moveTo(x - reach, y - reach);
    pen.lineTo(x + reach, y + reach);
    pen.moveTo(x + reach, y - reach);
    pen.lineTo(x - reach, y + reach);
    pen.stroke();
  }

  function outline(row, column, block, cell, colour, thick, halo = false) {
    const x = (column - state.view.column) * cell, y = (row - state.view.row) * cell, side = block * cell;
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

  function drawScale(top) {
    byId("scale").hidden = state.layer === "classes";
    const brush = byId("scale-bar").getContext("2d");
    for (let x = 0; x < 256; x++) {
      brush.fillStyle = shade(x / 255);
      brush.fillRect(x, 0, 1, 1);
    }
    byId("scale-high").textContent = Number.isInteger(top) ? number(top) : top.toPrecision(2);
    byId("scale-unit").textContent = UNITS[state.layer] ?? "";
  }

  // ----------------------------------------------------------------------------------------------- words

  function describeHere(block) {
    const at = state.pointed ?? state.cursor;
    const row = Math.floor(at.row / block) * block, column = Math.floor(at.column / block) * block;
    const hits = blockHits(row, column, block);
    const words = [];
    if (block === 1) words.push(make("b", {}, `Slot ${row * state.map.side + column}`), ` · row ${row + 1}, column ${column + 1} · `);
    else {
      const [lastRow, lastColumn] = [Math.min(row + block, state.map.side), Math.min(column + block, state.map.side)];
      words.push(make("b", {}, `${block} × ${block} slots`), ` · rows ${row + 1}–${lastRow}, columns ${column + 1}–${lastColumn} · `);
    }
    if (!hits) words.push("dead");
    else {
      words.push(`${number(hits)} region${hits === 1 ? "" : "s"}`);
      const [first] = slices(row, column, block);
      if (first[0] >= 0) words.push(", ", `${Math.round((100 * first[1]) / hits)} % `, make("bdi", {}, state.classes[first[0]]));
    }
    if (state.layer !== "hits" && state.layer !== "classes") {
      words.push(` · ${UNITS[state.layer]} ${short(blockValue(row, column, block))}`);
    }
    byId("map-here").replaceChildren(...words);
  }

  function describeLayer() {
    const block = blockSize();
    const blocks = block === 1 ? "" : ` Each square stands for ${block} × ${block} slots` +
      ({ hits: ", their hits added up.", classes: ", their regions together.", distance: ", averaged." }[state.layer] ??
        ", the largest value of them.");
    byId("layer-note").replaceChildren(NOTES[state.layer](state.classes[state.chosen]), blocks);
  }

  return { draw, describeLayer, swatch, width, smallestCell, blockSize };
})();
