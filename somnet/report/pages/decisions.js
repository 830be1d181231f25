// The decisions of this browser: listed, downloaded, loaded again, forgotten.
"use strict";

(() => {
  const { make, byId, number, decisions } = somnet;
  const CHUNK = 200; // lines added at a time
  let run, list = [], drawn = 0;

  // Name and given label of a row.
  async function about(row) {
    const names = await somnet.load(`names-${Math.floor(row / run.namesPerFile)}`);
    const at = row % run.namesPerFile;
    return { name: names.name[at], label: names.label[at], pictured: names.pictures[at] === "1" };
  }

  function draw() {
    const all = decisions.all();
    for (const [key, name] of Object.entries(decisions.names)) {
      byId(`count-${name}`).textContent = number(all.filter(([, decision]) => decision[0] === key).length);
    }
    byId("download").disabled = byId("clear").disabled = all.length === 0;
    byId("empty").hidden = all.length > 0;
    const wanted = byId("decision-filter").value;
    list = all.filter(([, decision]) => wanted === "" || decision[0] === wanted);
    drawn = 0;
    byId("decisions").replaceChildren();
    return drawMore();
  }

  async function drawMore() {
    const chunk = list.slice(drawn, drawn + CHUNK);
    drawn += chunk.length;
    byId("more").hidden = drawn >= list.length;
    const lines = await Promise.all(chunk.map(line));
    byId("decisions").append(...lines);
  }

  async function line([row, decision]) {
    const { name, label, pictured } = await about(row);
    const image = pictured ? make("img", { src: somnet.picture(row), alt: "", loading: "lazy" }) : "";
    return make("li", {},
      make("a", { class: "thumb", href: `class.html#${label}/${row}`, "aria-label": `Open ${name}` }, image),
      make("span", { class: "file" }, make("bdi", {}, name), make("br"),
        make("span", { class: "muted small" }, make("bdi", {}, run.classes[label] ?? ""))),
      make("span", { class: "verdict", "data-decision": decision[0] }, make("bdi", {}, decisions.word(decision, run.classes))),
      make("button", { title: "Take it back", onclick: () => decisions.set([[row, null]]) }, "✕", make("span", { class: "off-screen" }, ` Take back ${name}`)));
  }

  async function csv() {
    const lines = [somnet.csvLine(["file_name", "decision", "label"])];
    for (const [row, decision] of decisions.all()) {
      const { name } = await about(row);
      const label = decision[0] === "r" ? run.classes[Number(decision.slice(1))] : "";
      lines.push(somnet.csvLine([name, decisions.names[decision[0]], label]));
    }
    return lines.join("");
  }

  async function download() {
    const address = URL.createObjectURL(new Blob([await csv()], { type: "text/csv" }));
    const link = make("a", { href: address, download: "decisions.csv" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
  }

  async function loadFile(file) {
    const [head, ...lines] = somnet.readCsv((await file.text()).replace(/^\uFEFF/, ""));
    const column = Object.fromEntries((head ?? []).map((name, at) => [name, at]));
    if (!["file_name", "decision", "label"].every((name) => name in column)) {
      byId("note").textContent = "This is not a decisions.csv: it needs the columns file_name, decision and label.";
      return;
    }
    const rows = new Map();
    for (let fileNumber = 0; fileNumber * run.namesPerFile < run.rows; fileNumber++) {
      const { name } = await somnet.load(`names-${fileNumber}`);
      name.forEach((text, at) => rows.set(somnet.csvCell(text), fileNumber * run.namesPerFile + at));
    }
    const labels = new Map(run.classes.map((name, label) => [somnet.csvCell(name), label]));
    const keys = { keep: () => "k", drop: () => "d", relabel: (label) => (labels.has(label) ? `r${labels.get(label)}` : null) };
    const changes = [];
    let unknown = 0;
    for (const cells of lines) {
      const row = rows.get(cells[column.file_name]);
      const decision = keys[cells[column.decision]]?.(cells[column.label]);
      if (row === undefined || !decision) unknown++;
      else changes.push([row, decision]);
    }
    if (changes.length) decisions.set(changes);
    byId("note").textContent = `${number(changes.length)} decisions loaded` +
      (unknown ? `, ${number(unknown)} lines left out: no image, decision or class of that name.` : ".");
  }

  async function start() {
    run = await somnet.load("run");
    await decisions.open();
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
    document.addEventListener("decisions", draw);
    await draw();
    document.documentElement.dataset.ready = "";
  }

  document.addEventListener("DOMContentLoaded", start);
})();
