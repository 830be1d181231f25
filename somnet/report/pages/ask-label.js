// Asks for the new label of some images: the suggested one first, others by typing a part of their name.
"use strict";

somnet.askLabel = (() => {
  const { make, byId, number, images } = somnet;
  const MOST = 100; // classes listed at a time
  let run, options = [], at = 0, answer = null, recent = [];

  // What can be chosen for these rows: {value, text, note}; value "suggested" takes each image's own suggestion.
  function choices(rows) {
    const offered = rows.map(images.suggestion);
    const known = offered.filter((label) => label !== null);
    const single = known.length && known.every((label) => label === known[0]) ? known[0] : null;
    const made = [];
    if (single !== null) made.push({ value: single, text: run.classes[single], note: "suggested" });
    else if (known.length) {
      made.push({ value: "suggested", text: "Each as suggested", note: `${number(known.length)} of ${number(rows.length)} have a suggestion` });
    }
    const given = new Set(rows.map((row) => images.columns.label[row]));
    const rest = run.classes.map((_, label) => label).filter((label) => label !== single && !(given.size === 1 && given.has(label)));
    rest.sort((a, b) => (recent.indexOf(b) - recent.indexOf(a)) || (run.classes[a] < run.classes[b] ? -1 : 1));
    return [...made, ...rest.map((label) => ({ value: label, text: run.classes[label], note: recent.includes(label) ? "used before" : "" }))];
  }

  let every = [];
  function draw() {
    const wanted = byId("label-search").value.trim().toLowerCase();
    options = every.filter(({ text }) => text.toLowerCase().includes(wanted)).slice(0, MOST);
    at = Math.max(0, Math.min(at, options.length - 1));
    byId("label-options").replaceChildren(...options.map(({ text, note }, place) => make("li", {
      role: "option", id: `label-option-${place}`, "aria-selected": String(place === at), onclick: () => take(place),
    }, make("bdi", { class: "clip" }, text), make("span", { class: "muted small" }, note))));
    byId("label-none").hidden = options.length > 0;
    byId("label-search").setAttribute("aria-activedescendant", `label-option-${at}`);
    byId("label-options").children[at]?.scrollIntoView({ block: "nearest" });
  }

  function take(place) {
    const choice = options[place];
    if (!choice) return;
    answer = choice.value;
    if (typeof answer === "number") recent = [...recent.filter((label) => label !== answer), answer].slice(-5);
    byId("ask-label").close();
  }

  // The number of a class, "suggested", or null if the person thought better of it.
  function ask(rows) {
    every = choices(rows);
    [at, answer] = [0, null];
    byId("label-search").value = "";
    byId("label-title").textContent = rows.length === 1 ? "New label" : `New label of ${number(rows.length)} images`;
    byId("ask-label").showModal();
    byId("label-search").focus();
    draw();
    return new Promise((resolve) => byId("ask-label").addEventListener("close", () => resolve(answer), { once: true }));
  }

  async function start() {
    run = await somnet.load("run");
    byId("label-search").addEventListener("input", () => { at = 0; draw(); });
    byId("label-cancel").addEventListener("click", () => byId("ask-label").close());
    byId("ask-label").addEventListener("keydown", (event) => {
      event.stopPropagation(); // no key of the page below counts
      const moves = { ArrowDown: 1, ArrowUp: -1 };
      if (event.key in moves) {
        event.preventDefault();
        at += moves[event.key];
        draw();
      } else if (event.key === "Escape") {
        event.preventDefault(); // else a search field that is not empty would only be emptied
        byId("ask-label").close();
      } else if (event.key === "Enter") {
        event.preventDefault();
        take(at);
      }
    });
  }

  return { start, ask };
})();
