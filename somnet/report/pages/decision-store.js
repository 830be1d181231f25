// The decisions of the person who looks at the pages: kept, taken back, written as a table and read again.
"use strict";

// Kept by the browser, under the hash of the data; other tabs hear of a change by themselves.
somnet.browserStore = (fingerprint) => {
  const key = `somnet:${fingerprint}`;
  const STEPS = 200; // that can be undone ...
  const CHANGES = 200_000; // ... of so many images in all
  let kept = new Map(), past = []; // past: what each step replaced, lists of rows and decisions

  function read() {
    try {
      kept = new Map(Object.entries(JSON.parse(localStorage.getItem(key)) ?? {}).map(([row, decision]) => [Number(row), decision]));
      past = JSON.parse(localStorage.getItem(`${key}:undo`)) ?? [];
    } catch {
      // what this page knows is all there is
    }
    return kept;
  }

  function write() {
    let changes = 0;
    past = past.slice(-STEPS);
    const first = past.findLastIndex((step) => (changes += step.length) > CHANGES);
    past = past.slice(Math.min(first + 1, past.length - 1));
    try {
      localStorage.setItem(`${key}:undo`, JSON.stringify(past)); // first: another tab reads both when it hears of the second
      localStorage.setItem(key, JSON.stringify(Object.fromEntries(kept)));
    } catch {
      somnet.decisions.complain("This browser does not keep decisions: download them before you leave.");
    }
  }

  async function set(changes) {
    read();
    past.push(changes.map(([row]) => [row, kept.get(row) ?? null]));
    somnet.decisions.put(kept, changes);
    write();
  }

  async function undo() {
    read();
    const before = past.pop() ?? [];
    somnet.decisions.put(kept, before);
    write();
    return before;
  }

  function open(changed) {
    addEventListener("storage", (event) => { if (event.key === key || event.key === null) changed(read()); });
    return read();
  }

  return { open, set, undo, canUndo: () => past.length > 0 };
};

// Kept by `somnet review` in a file. What is decided here is shown at once, sent in order, and told to the other tabs.
somnet.serverStore = () => {
  const others = new BroadcastChannel("somnet decisions");
  let version = -1, undoable = false, line = Promise.resolve(), sending = 0, waiting = false, changed = null;

  async function ask(path, content) {
    const how = content === undefined ? {} : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(content) };
    let answer;
    try {
      answer = await fetch(path, how);
    } catch {
      throw new Error("somnet review has ended: start it again, and open its new address.");
    }
    if (!answer.ok) throw new Error(await answer.text());
    const told = await answer.json();
    undoable = told.canUndo;
    return told;
  }

  // What the file says, if it is not what this page knows.
  async function read() {
    const told = await ask(`api/decisions?since=${version}`);
    version = told.version;
    return told.decisions ? new Map(told.decisions) : null;
  }

  // Waits in line, so that no answer is older than the one before. What is decided meanwhile is not in it: then it is
  // asked for again, once that is sent.
  function refresh() {
    if (waiting) return;
    waiting = true;
    line = line.then(async () => {
      waiting = false;
      try {
        const kept = await read();
        if (sending) version = -1;
        else if (kept) changed(kept);
      } catch {
        // told when something is decided
      }
    });
  }

  // One request after the other, so that the last decision is the one that stays.
  function send(path, content) {
    sending++;
    line = line.then(async () => {
      try {
        const told = await ask(path, content);
        const missed = told.version !== version + 1 && told.version !== version; // somebody else was there in between
        version = missed ? -1 : told.version;
        others.postMessage(told.version);
        return told;
      } catch (error) {
        version = -1;
        somnet.decisions.complain(`Not saved: ${error.message}`);
        return {};
      } finally {
        sending--;
        if (version < 0) refresh();
      }
    });
    return line;
  }

  async function open(then) {
    changed = then;
    others.addEventListener("message", ({ data }) => { if (data !== version) refresh(); });
    addEventListener("focus", refresh);
    document.addEventListener("visibilitychange", refresh);
    addEventListener("beforeunload", (event) => { if (sending) event.preventDefault(); });
    return (await read()) ?? new Map();
  }

  const set = (changes) => send("api/decisions", changes);
  const undo = async () => (await send("api/undo", null)).changes ?? [];
  return { open, set, undo, canUndo: () => undoable };
};

// Row of the image -> "k" (keep), "d" (drop), "s" (unsure), or "r" (relabel) with the number of the new class behind it.
somnet.decisions = (() => {
  const names = new Map([["k", "keep"], ["d", "drop"], ["r", "relabel"], ["s", "unsure"]]);
  let kept = new Map(), store = null;

  const changed = () => document.dispatchEvent(new Event("decisions"));
  const complain = (text) => document.dispatchEvent(new CustomEvent("decisions-not-kept", { detail: text }));
  const put = (map, changes) => changes.forEach(([row, decision]) => (decision === null ? map.delete(row) : map.set(row, decision)));

  async function open() {
    const [run, where] = await Promise.all([somnet.load("run"), somnet.load("store")]);
    store = where.served ? somnet.serverStore() : somnet.browserStore(run.fingerprint);
    kept = await store.open((now) => { kept = now; changed(); });
  }

  // changes: pairs of row and decision; null takes a decision back.
  async function set(changes) {
    const done = store.set(changes);
    put(kept, changes);
    changed();
    await done;
    changed(); // now it is known whether it can be undone
  }

  // The rows that are as before again.
  async function undo() {
    const before = await store.undo();
    put(kept, before);
    changed();
    return before.map(([row]) => row);
  }

  const get = (row) => kept.get(row) ?? null;
  const all = () => [...kept].sort(([a], [b]) => a - b);
  const canUndo = () => store.canUndo();
  const word = (decision, classes) =>
    decision[0] === "r" ? `relabel as ${classes[Number(decision.slice(1))]}` : names.get(decision[0]);
  return { names, open, put, set, undo, canUndo, complain, get, all, word };
})();

// A cell that no spreadsheet takes for a formula; somnet's csv_cell does the same.
somnet.csvCell = (text) => (/^[=+\-@\t\r]/.test(text) ? `'${text}` : text);
somnet.csvLine = (cells) => cells.map((text) => `"${somnet.csvCell(text).replaceAll('"', '""')}"`).join(",") + "\r\n";

// The text of a cell that csvCell wrote; somnet's csv_text does the same.
somnet.csvText = (cell) => (cell.startsWith("'") && somnet.csvCell(cell.slice(1)) === cell ? cell.slice(1) : cell);

// Rows of cells, as they stand in the file.
somnet.readCsv = (text) => {
  const rows = [];
  let row = [], cell = "", quoted = false, fresh = true, empty = true; // fresh: nothing of the cell yet; empty: of the row
  const endCell = () => { row.push(cell); cell = ""; fresh = true; };
  const endRow = () => { if (!empty) { endCell(); rows.push(row); } row = []; empty = true; };
  for (let at = 0; at < text.length; at++) {
    const sign = text[at];
    if (quoted) {
      if (sign !== '"') cell += sign;
      else if (text[at + 1] === '"') { cell += '"'; at++; }
      else quoted = false;
      continue;
    }
    if (sign === "\n" || sign === "\r") { endRow(); continue; } // the empty row between \r and \n is none
    empty = false;
    if (sign === ",") { endCell(); continue; }
    if (sign === '"' && fresh) quoted = true; // elsewhere it is a sign as any other
    else cell += sign;
    fresh = false;
  }
  endRow();
  return rows;
};
