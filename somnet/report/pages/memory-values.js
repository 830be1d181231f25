// The memory map: what is shown of it, and what its slots and blocks of slots are worth.
"use strict";

const memoryMap = (() => {
  const { number } = somnet;
  const MOST_SLICES = 24; // of a pie; smaller ones are drawn as one

  const state = {
    map: null, // the memory as it was loaded, its distances unpacked
    classes: null, // their names
    layer: "classes",
    chosen: null, // class of the planes, or the one that pies show alone
    planes: null, // {label, d, r, s} of one class
    view: null, // {row, column, span}: the square of slots that is shown
    cursor: { row: 0, column: 0 },
    opened: null, // {row, column} of the slot that is told about beside the map
    pointed: null, // {row, column} of the slot below the mouse
  };

  function unpack({ top, levels }) {
    const bytes = Uint8Array.from(atob(levels), (sign) => sign.charCodeAt(0));
    return Float32Array.from(bytes, (level) => (level / 255) * top);
  }

  function values() {
    if (state.layer === "hits" || state.layer === "classes") return state.map.hits;
    if (state.layer === "distance") return state.map.distance;
    return state.planes[state.layer];
  }

  // The slots of the block whose first one is at a row and column.
  function* slotsOf(row, column, block) {
    for (let r = row; r < Math.min(row + block, state.map.side); r++) {
      for (let c = column; c < Math.min(column + block, state.map.side); c++) yield r * state.map.side + c;
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
    if (state.layer === "hits" || state.layer === "classes") return sum;
    return state.layer === "distance" ? sum / count : most;
  }

  function blockHits(row, column, block) {
    let hits = 0;
    for (const slot of slotsOf(row, column, block)) hits += state.map.hits[slot];
    return hits;
  }

  // Hits by class, the largest first; what a slot's own pie leaves out is class -1.
  function slices(row, column, block) {
    const hitsOfClass = new Map();
    for (const slot of slotsOf(row, column, block)) {
      let rest = state.map.hits[slot];
      for (let place = slot * state.map.slices; place < (slot + 1) * state.map.slices; place++) {
        const hits = state.map.sliceHits[place];
        if (!hits) continue;
        hitsOfClass.set(state.map.sliceClass[place], (hitsOfClass.get(state.map.sliceClass[place]) ?? 0) + hits);
        rest -= hits;
      }
      if (rest) hitsOfClass.set(-1, (hitsOfClass.get(-1) ?? 0) + rest);
    }
    const others = hitsOfClass.get(-1) ?? 0;
    hitsOfClass.delete(-1);
    const sorted = [...hitsOfClass].sort((a, b) => b[1] - a[1]);
    const rest = sorted.slice(MOST_SLICES).reduce((sum, [, hits]) => sum + hits, others);
    return [...sorted.slice(0, MOST_SLICES), ...(rest ? [[-1, rest]] : [])];
  }

  function topOf(all) {
    let top = 0;
    for (const value of all) top = Math.max(top, value);
    return top;
  }

  const short = (value) =>
    Number.isInteger(value) ? number(value) : value < 0.0005 ? "<0.001" : value.toFixed(3);

  return { state, unpack, values, blockValue, blockHits, slices, topOf, short };
})();
