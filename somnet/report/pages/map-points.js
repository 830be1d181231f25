// The points of the map, drawn on a canvas: pixel by pixel, so that 100,000 of them follow the mouse.
"use strict";

somnet.mapPoints = (() => {
  const { make, byId, images, classColours } = somnet;
  const MARGIN = 28; // pixels around the whole map
  const CLOSEST = 400; // how many times the whole map may be enlarged
  const PICTURES = 70; // points in view, at most, that are drawn as pictures
  const PICTURE = 54; // pixels of their longer side
  const NAMED = 40; // classes whose names are written on the map
  const NAME = 18; // pixels from a name to the one below
  const VERDICTS = { clean: "good", label: "bad", background: "background-noise" }; // others are called as they are
  const DECISIONS = new Map([["k", "good"], ["d", "bad"], ["r", "duplicate"], ["s", "unreadable"]]);

  let canvas, pen, run, changed = () => {};
  let x, y, drawn; // places from 0 to 1; rows from those below to those on top
  let by = "class", size = { width: 0, height: 0, ratio: 1 };
  let middles = []; // of the classes that are named
  const span = { x: 1, y: 1 }; // of all places, whose middle is 0.5
  const view = { x: 0.5, y: 0.5, zoom: 1 };
  const shown = { rows: null, mask: null }; // what the filter lets through
  const marks = { inside: null, point: null, near: [], lasso: null }; // a mask by row; rows; a line on the screen

  // ---------------------------------------------------------------------------------------------- colours

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const rgb = (text) => {
    const hex = text.length === 4 ? `#${[...text.slice(1)].map((sign) => sign + sign).join("")}` : text;
    return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  };
  const mix = (one, other, share) => one.map((channel, at) => Math.round(channel + (other[at] - channel) * share));
  const word = ([red, green, blue]) => ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;

  // Beyond seven classes the colours come again lighter, then darker, then from the start.
  function classColour(label) {
    const base = rgb(classColours[label % classColours.length]), round = Math.floor(label / classColours.length) % 3;
    return round === 0 ? base : mix(base, round === 1 ? [255, 255, 255] : [0, 0, 0], 0.45);
  }

  // The colour of every row, as a pixel; found out again when something has changed.
  let found = null;
  const recolour = () => { found = null; draw(); };

  function colours() {
    if (found) return found;
    found = new Uint32Array(run.rows);
    if (by === "class") {
      const known = run.classes.map((_, label) => word(classColour(label)));
      for (let row = 0; row < run.rows; row++) found[row] = known[images.columns.label[row]] ?? 0;
    } else if (by === "verdict") {
      const known = new Map(run.kinds.map(({ name }) => [name, word(rgb(css(VERDICTS[name] ?? name)))]));
      for (let row = 0; row < run.rows; row++) found[row] = known.get(images.state(row));
    } else {
      const known = new Map([...DECISIONS].map(([key, name]) => [key, word(rgb(css(name)))]));
      const none = word(rgb(css("muted")));
      for (let row = 0; row < run.rows; row++) found[row] = known.get(somnet.decisions.get(row)?.[0]) ?? none;
    }
    return found;
  }

  // What the colours mean: pairs of a name and a colour, with the filter that shows it alone.
  function legend() {
    if (by === "class") return run.order.map((label) => ({ name: run.classes[label], colour: classColour(label), filter: { class: String(label) } }));
    if (by === "verdict") {
      const kinds = run.kinds.filter(({ name }) => name !== "unreadable" && shown.rows.some((row) => images.state(row) === name));
      return kinds.map(({ name, title }) => ({ name: title, colour: rgb(css(VERDICTS[name] ?? name)), filter: { kind: name } }));
    }
    return [...DECISIONS].map(([key, name]) => ({ name: somnet.decisions.names.get(key), colour: rgb(css(name)), filter: { decision: key } }));
  }

  // ------------------------------------------------------------------------------------------------ places

  // Pixels between the places 0 and 1.
  const scale = () => view.zoom * Math.min((size.width - 2 * MARGIN) / span.x, (size.height - 2 * MARGIN) / span.y);
  const toScreen = (row) => [(x[row] - view.x) * scale() + size.width / 2, (y[row] - view.y) * scale() + size.height / 2];
  const onScreen = ([left, top]) => left >= 0 && top >= 0 && left <= size.width && top <= size.height;

  function look(at, zoom) {
    view.zoom = Math.max(1, Math.min(CLOSEST, zoom));
    const fit = (value, whole) => (view.zoom === 1 ? 0.5 : Math.max(0.5 - whole / 2, Math.min(0.5 + whole / 2, value)));
    [view.x, view.y] = [fit(at.x, span.x), fit(at.y, span.y)];
    draw();
  }

  // Zoom so that what is below a place of the screen stays there.
  function zoomAt(factor, left = size.width / 2, top = size.height / 2) {
    const before = scale(), zoom = Math.max(1, Math.min(CLOSEST, view.zoom * factor));
    const after = (before / view.zoom) * zoom;
    const keep = (value, place, side) => value + (place - side / 2) * (1 / before - 1 / after);
    look({ x: keep(view.x, left, size.width), y: keep(view.y, top, size.height) }, zoom);
  }

  const moveBy = (right, down) => look({ x: view.x - right / scale(), y: view.y - down / scale() }, view.zoom);
  const inView = () => shown.rows.filter((row) => onScreen(toScreen(row)));

  // The same if they are few, else null.
  function fewInView(most) {
    const found = [];
    for (const row of shown.rows) {
      if (!onScreen(toScreen(row))) continue;
      if (found.length === most) return null;
      found.push(row);
    }
    return found;
  }

  // The row nearest to a place of the screen, at most so many pixels away.
  function rowAt(left, top, reach = 14) {
    let best = null, least = reach * reach;
    for (const row of shown.rows) {
      const [a, b] = toScreen(row);
      const far = (a - left) ** 2 + (b - top) ** 2;
      if (far < least) [best, least] = [row, far];
    }
    return best;
  }

  // The next row from a row in a direction: near, and not too far off to the side.
  function rowBeside(from, right, down) {
    let best = null, least = Infinity;
    for (const row of shown.rows) {
      const [a, b] = [x[row] - x[from], y[row] - y[from]];
      const along = a * right + b * down, aside = Math.abs(a * down) + Math.abs(b * right);
      if (row === from || along <= 0 || aside > along) continue;
      const far = along + 2 * aside;
      if (far < least) [best, least] = [row, far];
    }
    return best;
  }

  // Rows within a line drawn on the screen: those from which a ray crosses it an odd number of times.
  function within(line) {
    return shown.rows.filter((row) => {
      const [left, top] = toScreen(row);
      let odd = false;
      for (let at = 0, before = line.length - 1; at < line.length; before = at++) {
        const [ax, ay] = line[at], [bx, by_] = line[before];
        if (ay > top !== by_ > top && left < ((bx - ax) * (top - ay)) / (by_ - ay) + ax) odd = !odd;
      }
      return odd;
    });
  }

  // ----------------------------------------------------------------------------------------------- drawing

  function radius() {
    const usual = run.rows < 2000 ? 3.6 : run.rows < 20000 ? 2.6 : 1.6;
    const room = Math.min(1, Math.sqrt(size.width * size.height) / 650); // less of it on a phone
    return Math.min(7, usual * room * view.zoom ** 0.3) * size.ratio;
  }

  // A disc as rows of [offset, share of the pixel that it covers, from 0 to 256].
  function disc(reach, width) {
    const found = [];
    for (let down = -Math.ceil(reach); down <= Math.ceil(reach); down++) {
      for (let right = -Math.ceil(reach); right <= Math.ceil(reach); right++) {
        const cover = Math.round(256 * Math.max(0, Math.min(1, reach + 0.5 - Math.hypot(right, down))));
        if (cover) found.push(down * width + right, cover);
      }
    }
    return Int32Array.from(found);
  }

  function stamp(pixels, at, shape, colour) {
    for (let place = 0; place < shape.length; place += 2) {
      const to = at + shape[place], cover = shape[place + 1];
      if (cover === 256) pixels[to] = colour;
      else {
        const old = pixels[to];
        const part = (shift) => {
          const was = (old >>> shift) & 255;
          return (was + ((((colour >>> shift) & 255) - was) * cover >> 8)) << shift;
        };
        pixels[to] = (0xff000000 | part(16) | part(8) | part(0)) >>> 0;
      }
    }
  }

  function drawPoints() {
    const wide = canvas.width, high = canvas.height, reach = radius();
    const image = pen.createImageData(wide, high);
    const pixels = new Uint32Array(image.data.buffer).fill(word(rgb(css("paper"))));
    const own = colours(), faint = word(mix(rgb(css("paper")), rgb(css("muted")), 0.22));
    const [ring, point] = [disc(reach + 2 * size.ratio, wide), disc(reach, wide)], accent = word(rgb(css("ink")));
    const edge = Math.ceil(reach + 2 * size.ratio) + 1, side = scale() * size.ratio;
    const [left, top] = [wide / 2 - view.x * side, high / 2 - view.y * side];
    const each = (shape, wanted, colour) => {
      for (const row of drawn) {
        if (!wanted(row)) continue;
        const a = Math.round(x[row] * side + left), b = Math.round(y[row] * side + top);
        if (a >= edge && b >= edge && a < wide - edge && b < high - edge) stamp(pixels, b * wide + a, shape, colour ?? own[row]);
      }
    };
    const { mask } = shown, { inside } = marks;
    each(point, (row) => !mask[row], faint);
    each(point, (row) => mask[row] && !inside?.[row]);
    if (inside) {
      each(ring, (row) => mask[row] && inside[row], accent);
      each(point, (row) => mask[row] && inside[row]);
    }
    pen.putImageData(image, 0, 0);
  }

  const pictures = new Map(); // row -> picture, as long as it may be needed
  function drawPictures(rows) {
    for (const row of rows) {
      if (!images.columns.pictured[row]) continue;
      if (!pictures.has(row)) {
        if (pictures.size > 20 * PICTURES) pictures.clear();
        const picture = make("img", { src: somnet.picture(row), onload: draw });
        pictures.set(row, picture);
      }
      const picture = pictures.get(row);
      if (!picture.complete || !picture.naturalWidth) continue;
      const share = PICTURE / Math.max(picture.naturalWidth, picture.naturalHeight);
      const [wide, high] = [picture.naturalWidth * share, picture.naturalHeight * share];
      const [left, top] = toScreen(row);
      pen.fillStyle = marks.inside?.[row] ? css("ink") : `rgb(${rowColour(row).join(" ")})`;
      pen.fillRect(left - wide / 2 - 3, top - high / 2 - 3, wide + 6, high + 6);
      pen.drawImage(picture, left - wide / 2, top - high / 2, wide, high);
    }
  }

  function rowColour(row) {
    if (by === "class") return classColour(images.columns.label[row]);
    if (by === "verdict") return rgb(css(VERDICTS[images.state(row)] ?? images.state(row)));
    return rgb(css(DECISIONS.get(somnet.decisions.get(row)?.[0]) ?? "muted"));
  }

  function drawMarks() {
    const [ink, paper] = [css("ink"), css("paper")];
    if (marks.point !== null) {
      const [left, top] = toScreen(marks.point);
      for (const [colour, thick] of [[paper, 3], [ink, 1]]) {
        [pen.strokeStyle, pen.lineWidth] = [colour, thick];
        for (const row of marks.near) {
          pen.beginPath();
          pen.moveTo(left, top);
          pen.lineTo(...toScreen(row));
          pen.stroke();
        }
        pen.beginPath();
        pen.arc(left, top, 9, 0, 2 * Math.PI);
        pen.lineWidth = thick + 1;
        pen.stroke();
      }
    }
    if (marks.lasso) {
      pen.beginPath();
      marks.lasso.forEach(([left, top]) => pen.lineTo(left, top));
      pen.closePath();
      [pen.strokeStyle, pen.lineWidth] = [css("accent"), 2];
      pen.stroke();
      [pen.globalAlpha, pen.fillStyle] = [0.15, css("accent")];
      pen.fill();
      pen.globalAlpha = 1;
    }
  }

  // The names of the classes in the middle of theirs, as far as there is room.
  function drawNames() {
    const taken = [];
    pen.font = "600 13px system-ui, sans-serif";
    [pen.textAlign, pen.textBaseline, pen.lineJoin] = ["center", "middle", "round"];
    for (const { name, row } of middles) {
      const [left, middle] = toScreen(row), half = pen.measureText(name).width / 2 + 4;
      const free = (at) => at > 12 && at < size.height - 12 &&
        !taken.some((one) => Math.abs(one.left - left) < one.half + half && Math.abs(one.top - at) < NAME);
      const top = [0, 1, -1, 2, -2].map((lines) => middle + lines * NAME).find(free);
      if (left < half || left > size.width - half || top === undefined) continue;
      taken.push({ left, top, half });
      [pen.strokeStyle, pen.lineWidth, pen.fillStyle] = [css("paper"), 4, css("ink")];
      pen.strokeText(name, left, top);
      pen.fillText(name, left, top);
    }
  }

  function drawNow() {
    const began = performance.now();
    const box = canvas.getBoundingClientRect(), ratio = Math.min(2, devicePixelRatio || 1);
    if (!box.width || !shown.rows) return;
    size = { width: canvas.clientWidth, height: canvas.clientHeight, ratio };
    [canvas.width, canvas.height] = [Math.round(size.width * ratio), Math.round(size.height * ratio)];
    drawPoints();
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    const few = fewInView(PICTURES);
    if (few) drawPictures(few.sort((a, b) => (a === marks.point) - (b === marks.point))); // what is pointed at on top
    drawMarks();
    if (!few) drawNames();
    canvas.dataset.drawn = String(Math.round(10 * (performance.now() - began)) / 10); // milliseconds, for who measures
    changed();
  }

  let waiting = false;
  function draw() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; drawNow(); });
  }

  // ------------------------------------------------------------------------------------------------ begin

  function show(rows) {
    shown.rows = rows.filter((row) => !images.is(row, "unreadable"));
    shown.mask = new Uint8Array(run.rows);
    for (const row of shown.rows) shown.mask[row] = 1;
    draw();
  }

  // The image of a class that most others of it are around: the one at the medians of their places.
  function middleOf(rows) {
    const median = (places) => Float64Array.from(rows, (row) => places[row]).sort()[rows.length >> 1];
    const [a, b] = [median(x), median(y)];
    return rows.reduce((best, row) => (Math.hypot(x[row] - a, y[row] - b) < Math.hypot(x[best] - a, y[best] - b) ? row : best));
  }

  // places: what the report wrote of the map; then: called whenever it was drawn.
  async function start(places, then) {
    [canvas, run, changed] = [byId("points"), await somnet.load("run"), then];
    pen = canvas.getContext("2d");
    [x, y] = [places.x, places.y].map((column) => Float64Array.from(somnet.unpack(column), (step) => step / places.steps));
    const reach = (places) => 2 * Math.max(0.01, places.reduce((most, place) => Math.max(most, Math.abs(place - 0.5)), 0));
    const readable = Array.from({ length: run.rows }, (_, row) => row).filter((row) => !images.is(row, "unreadable"));
    drawn = Int32Array.from([...readable.filter((row) => images.is(row, "clean")), ...readable.filter((row) => !images.is(row, "clean"))]);
    [span.x, span.y] = [x, y].map((places) => reach(drawn.length ? Float64Array.from(drawn, (row) => places[row]) : Float64Array.of(0, 1)));
    if (run.order.length <= NAMED) {
      middles = run.order.map((label) => ({ name: run.classes[label].slice(0, 40), row: middleOf(readable.filter((row) => images.columns.label[row] === label)) }));
    }
    new ResizeObserver(draw).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
    document.addEventListener("decisions", recolour);
  }

  return {
    start, show, draw, view, marks, look, zoomAt, moveBy, inView, rowAt, rowBeside, within, toScreen, legend,
    colourBy: (what) => { by = what; recolour(); },
  };
})();
