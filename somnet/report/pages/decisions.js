// The decisions of this browser: listed, downloaded, loaded again, forgotten.
"use strict";

(() => {
  const { make, byId, number, decisions, images } = somnet;
  const CHUNK = 200; // lines added at a time
  let run, list = [], drawn = 0;

  function draw() {
    const all = decisions.all();
    for (const [key, name] of decisions.names) {
      byId(`count-${name}`).textContent = number(all.filter(([, decision]) => decision[0] === key).length);
    }
    byId("download").disabled = byId("clear").disabled = all.length === 0;
    byId("empty").hidden = all.length > 0;
    byId("undo").disabled = !decisions.canUndo();
    const wanted = byId("decision-filter").value;
    list = all.filter(([, decision]) => wanted === "" || decision[0] === wanted);
    drawn = 0;
    byId("decisions").replaceChildren();
    return drawMore();
  }

  async function drawMore() {
    const of = list;
    const chunk = list.slice(drawn, drawn + CHUNK);
    drawn += chunk.length;
    byId("more").hidden = drawn >= list.length;
    const lines = await Promise.all(chunk.map(line));
    if (of === list) byId("decisions").append(...lines); // else something was decided meanwhile
  }

  async function line([row, decision]) {
    const name = await images.name(row), label = images.columns.label[row];
    const image = images.columns.pictured[row] ? make("img", { src: somnet.picture(row), alt: "", loading: "lazy" }) : "";
    return make("li", {},
      make("a", { class: "thumb", href: `list.html#kind=all&row=${row}`, "aria-label": `Open ${name}` }, image),
      make("span", { class: "file" }, make("bdi", {}, name), make("br"),
        make("span", { class: "muted small" }, make("bdi", {}, run.classes[label] ?? ""))),
      make("span", { class: "verdict", "data-decision": decision[0] }, make("bdi", {}, decisions.word(decision, run.classes))),
      make("button", { title: "Take it back", onclick: () => decisions.set([[row, null]]) }, "✕", make("span", { class: "off-screen" }, ` Take back ${name}`)));
  }

  async function csv() {
    const lines = [somnet.csvLine(["file_name", "decision", "label"])];
    for (const [row, decision] of decisions.all()) {
      const label = decision[0] === "r" ? run.classes[Number(decision.slice(1))] : "";
      lines.push(somnet.csvLine([await images.name(row), decisions.names.get(decision[0]), label]));
    }
    return lines.join("");
  }

  async function download() {
    const address = URL.createObjectURL(new Blob([await csv()], { type: "text/csv" }));
    const link = make("a", { href: address, download: "decisions.csv" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
  }

  // What a decisions.csv says: pairs of row and decision. As strict as somnet clean: one bad line, and nothing is loaded.
  function parse(text, names) {
    const [head, ...lines] = somnet.readCsv(text.replace(/^\uFEFF/, ""));
    const column = new Map((head ?? []).map((name, at) => [name, at]));
    const missing = ["file_name", "decision"].find((name) => !column.has(name));
    if (missing) throw new Error(`it has no column ${missing} in its first line: let that be file_name,decision,label, with commas`);
    const rows = new Map();
    names.forEach((name, row) => rows.set(name, [...(rows.get(name) ?? []), row]));
    const labels = new Map(run.classes.map((name, label) => [name, label]));
    const keys = new Map([...decisions.names].map(([key, word]) => [word, key]));
    const found = new Map();
    lines.forEach((cells, at) => {
      const [name, word, told] = ["file_name", "decision", "label"].map((one) => somnet.csvText(cells[column.get(one)] ?? ""));
      const key = keys.get(word);
      const label = key === "r" ? told : ""; // of other decisions it says nothing
      const line = `line ${at + 2}`;
      if (!name || key === undefined || (key === "r" && !label)) {
        throw new Error(`${line} is not a decision: write file_name, decision (${[...keys.keys()].join(", ")}) and, to relabel, the label`);
      }
      if (!rows.has(name)) throw new Error(`${line} is about an image that the run does not have, ${name}: take the decisions of this run's report`);
      if (label && !labels.has(label)) throw new Error(`${line} names a class that the run does not have, ${label}: fix the label`);
      const decision = key === "r" ? `r${labels.get(label)}` : key;
      const said = `${word} ${label}`;
      if ((found.get(name)?.said ?? said) !== said) throw new Error(`${line} contradicts an earlier one about ${name}: keep one of them`);
      found.set(name, { said, decision });
    });
    return [...found].flatMap(([name, { decision }]) => rows.get(name).map((row) => [row, decision]));
  }

  async function loadFile(file) {
    try {
      const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
      const changes = parse(text, await images.allNames());
      if (changes.length) decisions.set(changes);
      byId("note").textContent = `${number(changes.length)} decisions loaded.`;
    } catch (error) {
      const why = error instanceof TypeError ? "it is not a text file in UTF-8" : error.message;
      byId("note").textContent = `Nothing was loaded, this is not a decisions.csv of this run: ${why}.`;
    }
    byId("file").value = ""; // the same file can be loaded again
  }

  async function start() {
    run = await somnet.load("run");
    await Promise.all([decisions.open(), images.open()]);
    const { served, file } = await somnet.load("store");
    byId("kept-here").hidden = served;
    byId("kept-in-file").hidden = !served;
    byId("kept-file").textContent = file ?? "";
    document.addEventListener("decisions-not-kept", (event) => { byId("note").textContent = event.detail; });
    byId("download").addEventListener("click", download);
    byId("file").addEventListener("change", (event) => { if (event.target.files[0]) loadFile(event.target.files[0]); });
    byId("decision-filter").addEventListener("change", draw);
    byId("more").addEventListener("click", drawMore);
    byId("clear").addEventListener("click", () => byId("sure").showModal());
    byId("sure-no").addEventListener("click", () => byId("sure").close());
    byId("sure-yes").addEventListener("click", () => {
      decisions.set(decisions.all().map(([row]) => [row, null]));
      byId("sure").close();
    });
    byId("undo").addEventListener("click", () => decisions.undo());
    document.addEventListener("keydown", (event) => {
      if (event.key === "u" && !event.ctrlKey && !event.metaKey && !event.target.closest("input, select")) decisions.undo();
    });
    document.addEventListener("decisions", draw);
    await draw();
    document.documentElement.dataset.ready = "";
  }

  document.addEventListener("DOMContentLoaded", start);
})();
