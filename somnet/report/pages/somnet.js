// Data of the pages, and the decisions of the person who looks at them.
"use strict";

const somnet = (() => {
  const root = document.documentElement.dataset.root;
  const files = new Map(); // name -> {promise, resolve}

  function fileEntry(name) {
    if (!files.has(name)) {
      const entry = {};
      entry.promise = new Promise((resolve, reject) => Object.assign(entry, { resolve, reject }));
      files.set(name, entry);
    }
    return files.get(name);
  }

  // Called by the files in data/: a page opened from disk may load scripts, but may not fetch.
  function data(name, value) {
    fileEntry(name).value = value;
    fileEntry(name).resolve(value);
  }

  function load(name) {
    const known = files.has(name);
    const entry = fileEntry(name);
    if (!known) {
      const script = document.createElement("script");
      script.src = `${root}data/${name}.js`;
      script.onload = () => script.remove();
      script.onerror = () => entry.reject(new Error(`data/${name}.js is missing: write the report again`));
      document.head.append(script);
    }
    return entry.promise;
  }

  // An element with attributes and children; text is always text, never markup.
  function make(tag, attributes = {}, ...children) {
    const drawing = ["svg", "rect", "line", "text", "path", "g", "title", "circle", "polyline"].includes(tag);
    const made = drawing ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (value === true) made.setAttribute(name, "");
      else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
    }
    made.append(...children);
    return made;
  }

  const loaded = (name) => files.get(name)?.value;
  const picture = (row) => `${root}pictures/${Math.floor(row / 1000)}/${row}.jpg`;
  const byId = (id) => document.getElementById(id);
  const number = (value) => value.toLocaleString("en-US");

  return { data, load, loaded, make, picture, byId, number };
})();

// Row of the image -> "k" (keep), "d" (drop) or "r" (relabel) with the number of the new class behind it.
somnet.decisions = (() => {
  const names = { k: "keep", d: "drop", r: "relabel" };
  const past = []; // what each change replaced
  let key = null;
  let kept = {};

  function read() {
    try {
      kept = JSON.parse(localStorage.getItem(key)) || {};
    } catch {
      kept = {};
    }
  }

  async function open() {
    key = `somnet:${(await somnet.load("run")).fingerprint}`;
    read();
    addEventListener("storage", (event) => {
      if (event.key === key || event.key === null) {
        read();
        changed();
      }
    });
  }

  function changed() {
    document.dispatchEvent(new Event("decisions"));
  }

  function store() {
    try {
      localStorage.setItem(key, JSON.stringify(kept));
    } catch {
      document.dispatchEvent(new Event("decisions-not-kept"));
    }
    changed();
  }

  // changes: pairs of row and decision; null takes a decision back.
  function set(changes) {
    read();
    const before = [];
    for (const [row, decision] of changes) {
      before.push([row, kept[row] ?? null]);
      if (decision === null) delete kept[row];
      else kept[row] = decision;
    }
    past.push(before);
    store();
  }

  // The rows that are as before again.
  function undo() {
    const before = past.pop();
    if (!before) return [];
    read();
    for (const [row, decision] of before) {
      if (decision === null) delete kept[row];
      else kept[row] = decision;
    }
    store();
    return before.map(([row]) => row);
  }

  const get = (row) => kept[row] ?? null;
  const all = () => Object.entries(kept).map(([row, decision]) => [Number(row), decision]);
  const canUndo = () => past.length > 0;
  const word = (decision, classes) =>
    decision[0] === "r" ? `relabel as ${classes[Number(decision.slice(1))]}` : names[decision[0]];
  return { names, open, set, undo, canUndo, get, all, word };
})();

// A cell that no spreadsheet takes for a formula; somnet's csv_cell does the same.
somnet.csvCell = (text) => (/^[=+\-@\t\r]/.test(text) ? `'${text}` : text);
somnet.csvLine = (cells) => cells.map((text) => `"${somnet.csvCell(text).replaceAll('"', '""')}"`).join(",") + "\r\n";

// Rows of cells, as they stand in the file.
somnet.readCsv = (text) => {
  const rows = [];
  let row = [], cell = "", quoted = false;
  const endCell = () => { row.push(cell); cell = ""; };
  const endRow = () => { endCell(); if (row.length > 1 || row[0] !== "") rows.push(row); row = []; };
  for (let at = 0; at < text.length; at++) {
    const sign = text[at];
    if (quoted) {
      if (sign !== '"') cell += sign;
      else if (text[at + 1] === '"') { cell += '"'; at++; }
      else quoted = false;
    } else if (sign === '"') quoted = true;
    else if (sign === ",") endCell();
    else if (sign === "\n") endRow();
    else if (sign !== "\r") cell += sign;
  }
  if (cell !== "" || row.length) endRow();
  return rows;
};
