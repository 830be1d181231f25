// All images of the run: some numbers of each, their names, and which of them a filter shows in which order.
"use strict";

somnet.images = (() => {
  const columns = {}; // label, seen, sure, score, flags, pictured, first: an array each, by row
  let run = null, worst = null, lower = null;

  async function open() {
    let packed;
    [run, packed] = await Promise.all([somnet.load("run"), somnet.load("images")]);
    for (const [name, column] of Object.entries(packed)) columns[name] = somnet.unpack(column);
    run.kinds.forEach(({ name }, bit) => { bits.set(name, 1 << bit); });
  }

  const bits = new Map(); // kind -> its bit in the flags
  const is = (row, kind) => (columns.flags[row] & bits.get(kind)) !== 0;
  const state = (row) => run.kinds[31 - Math.clz32(columns.flags[row])].name; // the gravest one
  const suggestion = (row) => (columns.seen[row] < 0 || columns.seen[row] === columns.label[row] ? null : columns.seen[row]);

  // Rows with the lowest scores first; equal ones in the order of the tables.
  function worstFirst() {
    if (worst === null) {
      worst = Int32Array.from({ length: run.rows }, (_, row) => row);
      worst.sort((a, b) => columns.score[a] - columns.score[b] || a - b);
    }
    return worst;
  }

  // ------------------------------------------------------------------------------------------------ names

  const fileOf = (row) => `names-${Math.floor(row / run.namesPerFile)}`;
  const base = (name) => name.slice(name.lastIndexOf("/") + 1) || name;
  const name = async (row) => (await somnet.load(fileOf(row)))[row % run.namesPerFile];
  const nameIfLoaded = (row) => somnet.loaded(fileOf(row))?.[row % run.namesPerFile];

  async function allNames() {
    const files = Math.ceil(run.rows / run.namesPerFile);
    return (await Promise.all(Array.from({ length: files }, (_, file) => somnet.load(`names-${file}`)))).flat();
  }

  async function lowerNames() {
    lower ??= (await allNames()).map((text) => text.toLowerCase());
    return lower;
  }

  // What the card of an image shows, and where in there it is.
  const cardFile = (row) => `cards-${Math.floor(row / run.imagesPerFile)}`;
  const card = async (row) => [await somnet.load(cardFile(row)), row % run.imagesPerFile];
  const cardIfLoaded = (row) => {
    const cards = somnet.loaded(cardFile(row));
    return cards && [cards, row % run.imagesPerFile];
  };

  // ------------------------------------------------------------------------------------------------ lists

  const kindTest = {
    all: () => true,
    issues: (row) => !is(row, "clean") && !is(row, "unclear"),
    first: (row) => columns.first[row] > 0,
  };
  const decisionTest = {
    any: () => true,
    open: (row) => somnet.decisions.get(row) === null,
    made: (row) => somnet.decisions.get(row) !== null,
  };

  // Rows for {kind, label, decision, search, sort}; label null is all classes, `extra` one more condition.
  async function choose({ kind, label, decision, search, sort }, extra = null) {
    const ofKind = kindTest[kind] ?? ((row) => is(row, kind));
    const ofDecision = decisionTest[decision] ?? ((row) => somnet.decisions.get(row)?.[0] === decision);
    const names = search ? await lowerNames() : null;
    const wanted = search.toLowerCase();
    const rows = worstFirst().filter((row) => (label === null || columns.label[row] === label) && ofKind(row) &&
      ofDecision(row) && (names === null || names[row].includes(wanted)) && (extra === null || extra(row)));
    if (sort === "best") rows.reverse();
    else if (sort === "first") rows.sort((a, b) => (columns.first[a] || Infinity) - (columns.first[b] || Infinity));
    else if (sort === "name") {
      const all = await lowerNames();
      rows.sort((a, b) => (all[a] < all[b] ? -1 : all[a] > all[b] ? 1 : a - b));
    } else if (sort === "class") {
      const place = new Map(run.order.map((one, at) => [one, at]));
      rows.sort((a, b) => (place.get(columns.label[a]) ?? -1) - (place.get(columns.label[b]) ?? -1) || columns.score[a] - columns.score[b]);
    } else if (sort === "kind") rows.sort((a, b) => Math.clz32(columns.flags[a]) - Math.clz32(columns.flags[b]) || columns.score[a] - columns.score[b]);
    return rows;
  }

  return { open, columns, is, state, suggestion, worstFirst, base, name, nameIfLoaded, allNames, card, cardIfLoaded, choose };
})();
