// The contact sheet: tiles of any number of images, of which only those on the screen exist; walked, selected, lassoed.
"use strict";

somnet.sheet = (() => {
  const { make, byId, images, decisions } = somnet;
  const GAP = 14, CAPTION = 44; // pixels; report.css knows the caption
  const AHEAD = 2; // lines of tiles above and below the screen
  let run, box, inner, dress;
  let rows = new Int32Array(0);
  let places = new Map(); // row -> place, made when it is asked for
  let columns = 1, side = 0;
  let active = -1, anchor = 0; // places; -1 and the one behind the last: nothing is active
  const selected = new Set(); // rows
  const tiles = new Map(); // place -> element

  const lineHeight = () => side + CAPTION + GAP;
  const placeOf = (row) => {
    if (places === null) places = new Map(Array.from(rows, (one, place) => [one, place]));
    return places.get(row) ?? -1;
  };

  // ------------------------------------------------------------------------------------------------ tiles

  function frameOf(row) {
    const frame = make("span", { class: "thumb" });
    if (images.columns.pictured[row]) {
      frame.append(make("img", { src: somnet.picture(row), alt: "", decoding: "async", draggable: "false" }));
    } else frame.append(make("span", { class: "missing small" }, "no picture"));
    return frame;
  }

  // A tile that is not (yet) on the sheet: picture, file name, score and what the model sees.
  function tile(row, address, { withClass = false } = {}) {
    const { score, sure } = images.columns;
    const name = make("bdi", { class: "clip" });
    const second = make("span", { class: "second" }, make("b", {}, images.is(row, "unreadable") ? "–" : score[row].toFixed(2)));
    const other = images.suggestion(row);
    const given = run.classes[images.columns.label[row]] ?? "no label";
    if (withClass) second.append(make("bdi", { class: "clip" }, given));
    if (other !== null) second.append(make("bdi", { class: "clip other" }, `${sure[row] ? "→ " : "? "}${run.classes[other]}`));
    const made = make("a", { class: "tile", href: address, "data-row": row, "data-state": images.state(row), draggable: "false" },
      frameOf(row), make("span", { class: "caption" }, name, second));
    const tell = (text) => {
      name.textContent = images.base(text);
      made.title = text;
      made.setAttribute("aria-label", `${images.base(text)}, ${given}, label_score ${score[row].toFixed(2)}`);
    };
    const known = images.nameIfLoaded(row);
    if (known === undefined) images.name(row).then(tell);
    else tell(known);
    return made;
  }

  // The marks of a tile that change: the decision, whether it is selected, and what a page adds.
  function dressOne(made) {
    const row = Number(made.dataset.row);
    const decision = decisions.get(row);
    made.dataset.decision = decision ? decision[0] : "";
    made.dataset.word = decision ? decisions.word(decision, run.classes) : "";
    if (made.parentNode === inner) {
      made.setAttribute("aria-selected", String(selected.has(row)));
      made.classList.toggle("current", rows[active] === row);
    }
    dress?.(made, row);
  }

  const dressAll = () => document.querySelectorAll(".tile[data-row]").forEach(dressOne);

  // ----------------------------------------------------------------------------------------------- layout

  function measure() {
    const width = box.clientWidth;
    const least = width < 500 ? 98 : 132;
    columns = Math.max(1, Math.floor((width + GAP) / (least + GAP)));
    side = Math.floor((width - GAP * (columns - 1)) / columns);
    box.style.height = `${Math.max(0, Math.ceil(rows.length / columns) * lineHeight() - GAP)}px`;
    inner.style.gridTemplateColumns = `repeat(${columns}, ${side}px)`;
    inner.style.gap = `${GAP}px`;
    inner.style.gridAutoRows = `${side + CAPTION}px`;
  }

  // Only the lines on the screen exist, and those around the focus.
  function draw() {
    const top = box.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(-top / lineHeight()) - AHEAD) * columns;
    const last = Math.min(rows.length, (Math.ceil((innerHeight - top) / lineHeight()) + AHEAD) * columns);
    for (const [place, made] of tiles) {
      if (place < first || place >= last) {
        made.remove();
        tiles.delete(place);
      }
    }
    inner.style.transform = `translateY(${(first / columns) * lineHeight()}px)`;
    let before = null;
    for (let place = first; place < last; place++) {
      if (!tiles.has(place)) {
        const made = tile(rows[place], address(rows[place]), how);
        made.setAttribute("role", "option");
        tiles.set(place, made);
        if (before) before.after(made);
        else inner.prepend(made);
        dressOne(made);
      }
      before = tiles.get(place);
      before.tabIndex = place === Math.max(0, Math.min(active, rows.length - 1)) ? 0 : -1;
    }
  }

  let waiting = false;
  function drawSoon() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; draw(); });
  }

  // ------------------------------------------------------------------------------------------------ walk

  function reveal(place) {
    const top = box.getBoundingClientRect().top + Math.floor(place / columns) * lineHeight();
    const room = document.querySelector(".selection-bar:not([hidden])")?.offsetHeight ?? 0;
    if (top < 0) scrollBy({ top: top - GAP, behavior: "instant" });
    else if (top + lineHeight() > innerHeight - room) scrollBy({ top: top + lineHeight() - innerHeight + room + GAP, behavior: "instant" });
  }

  function walkTo(place, { extend = false, focus = true } = {}) {
    if (!rows.length) return;
    active = Math.max(0, Math.min(rows.length, place));
    if (active === rows.length) { // behind the last one: keys have nothing to change
      document.activeElement?.blur?.();
      draw();
      changed();
      return;
    }
    if (extend) {
      const [low, high] = [Math.min(anchor, active), Math.max(anchor, active)];
      selected.clear();
      for (let at = low; at <= high; at++) selected.add(rows[at]);
    } else anchor = active;
    reveal(active);
    draw();
    if (focus) tiles.get(active)?.focus({ preventScroll: true });
    changed();
  }

  // ---------------------------------------------------------------------------------------------- select

  function changed() {
    dressAll();
    document.dispatchEvent(new Event("selection"));
  }

  function select(which) {
    selected.clear();
    for (const row of which) selected.add(row);
    changed();
  }

  function toggle(place) {
    if (!selected.delete(rows[place])) selected.add(rows[place]);
    [active, anchor] = [place, place];
    draw();
    changed();
  }

  function onClick(event) {
    const made = event.target.closest(".tile");
    if (!made) return;
    const place = placeOf(Number(made.dataset.row));
    if (event.shiftKey) {
      event.preventDefault();
      walkTo(place, { extend: true });
    } else if (event.ctrlKey || event.metaKey || box.classList.contains("selecting")) {
      event.preventDefault();
      toggle(place);
    } else [active, anchor] = [place, place];
  }

  // A rectangle drawn with the mouse selects what it touches, also what was scrolled out of sight meanwhile.
  function listenToLasso() {
    let start = null, had = null, shape = null;
    const at = (event) => {
      const { left, top } = box.getBoundingClientRect();
      return { x: event.clientX - left, y: event.clientY - top };
    };
    box.addEventListener("pointerdown", (event) => {
      if (event.pointerType !== "mouse" || event.button !== 0 || event.shiftKey) return;
      start = at(event);
      had = event.ctrlKey || event.metaKey ? [...selected] : [];
    });
    addEventListener("pointermove", (event) => {
      if (start === null || !(event.buttons & 1)) return;
      const end = at(event);
      if (!shape && Math.hypot(end.x - start.x, end.y - start.y) < 8) return;
      if (!shape) {
        shape = make("div", { class: "lasso" });
        box.append(shape);
      }
      if (event.clientY > innerHeight - 40) scrollBy({ top: 30, behavior: "instant" });
      if (event.clientY < 40) scrollBy({ top: -30, behavior: "instant" });
      const [x1, x2, y1, y2] = [Math.min(start.x, end.x), Math.max(start.x, end.x), Math.min(start.y, end.y), Math.max(start.y, end.y)];
      Object.assign(shape.style, { left: `${x1}px`, top: `${y1}px`, width: `${x2 - x1}px`, height: `${y2 - y1}px` });
      select([...had, ...touched(x1, x2, y1, y2)]);
    });
    addEventListener("pointerup", () => {
      if (shape) {
        shape.remove();
        const swallow = (click) => { click.preventDefault(); click.stopPropagation(); }; // what ends a lasso opens no card
        addEventListener("click", swallow, { capture: true, once: true });
        setTimeout(() => removeEventListener("click", swallow, { capture: true }), 0);
      }
      [start, shape] = [null, null];
    });
  }

  function* touched(x1, x2, y1, y2) {
    const line = (y) => Math.floor(y / lineHeight());
    for (let down = Math.max(0, line(y1)); down <= line(y2); down++) {
      if (down * lineHeight() + side + CAPTION < y1) continue;
      for (let along = 0; along < columns; along++) {
        const place = down * columns + along, left = along * (side + GAP);
        if (place < rows.length && left <= x2 && left + side >= x1) yield rows[place];
      }
    }
  }

  // ------------------------------------------------------------------------------------------------ page

  let address = (row) => `#${row}`, how = {};

  // options: address(row) of a tile, dress(tile, row) for marks of the page, withClass: tiles name their class.
  async function start(options) {
    run = await somnet.load("run");
    box = byId("sheet");
    inner = box.appendChild(make("div", { class: "tiles" }));
    ({ address, dress } = options);
    how = { withClass: options.withClass };
    box.addEventListener("click", onClick);
    box.addEventListener("dragstart", (event) => event.preventDefault());
    box.addEventListener("focusin", (event) => {
      const made = event.target.closest(".tile");
      if (!made) return;
      active = placeOf(Number(made.dataset.row));
      dressAll();
    });
    listenToLasso();
    addEventListener("scroll", drawSoon, { passive: true });
    new ResizeObserver(() => { measure(); drawSoon(); }).observe(box);
    document.addEventListener("decisions", dressAll);
  }

  function show(chosen) {
    rows = chosen;
    places = null;
    selected.clear();
    for (const made of tiles.values()) made.remove();
    tiles.clear();
    [active, anchor] = [-1, 0];
    measure();
    draw();
    changed();
  }

  return {
    start, show, tile, dressAll, walkTo, select, toggle, placeOf, touched,
    rows: () => rows, active: () => (active < rows.length ? active : -1), atEnd: () => rows.length > 0 && active === rows.length, selected: () => selected, columns: () => columns,
  };
})();
