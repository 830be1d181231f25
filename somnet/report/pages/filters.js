// Which images are shown: kind, class, decision, words of the file name, order. Remembered, and part of the address.
"use strict";

somnet.filters = (() => {
  const { make, byId, number } = somnet;
  const FIELDS = ["kind", "class", "decision", "sort", "search"];
  let key, defaults, onChange;

  const control = (field) => byId(`filter-${field}`);
  const offers = (field, value) => control(field).tagName === "INPUT" || [...control(field).options].some((option) => option.value === value);

  function values() {
    return Object.fromEntries(FIELDS.filter(control).map((field) => [field, control(field).value]));
  }

  // Only what a control offers can be set: addresses come from anywhere.
  function put(wanted) {
    for (const field of FIELDS.filter(control)) {
      const value = wanted[field] ?? defaults[field] ?? "";
      control(field).value = offers(field, value) ? value : defaults[field] ?? "";
    }
  }

  function changed() {
    somnet.memory.set(key, values());
    return onChange();
  }

  // As `images.choose` takes it.
  function chosen(label = null) {
    const { kind, decision, sort, search } = values();
    const one = values().class;
    return { kind, decision, sort, search: search.trim(), label: one ? Number(one) : label };
  }

  // What differs from the page as it opens first, for its address.
  function inAddress() {
    return Object.entries(values()).filter(([field, value]) => value !== (defaults[field] ?? ""));
  }

  function fill(run) {
    control("kind").append(...run.kinds.toReversed().map(({ name, title }) => make("option", { value: name }, title.toLowerCase())));
    control("class")?.append(...run.order.map((label) =>
      make("option", { value: label }, `${run.classes[label].slice(0, 60)} (${number(run.counts[label])})`)));
  }

  // name: of the page, whose filter is remembered apart; opened: as the page opens first; then: what to do on a change.
  function start(run, name, opened, then) {
    [key, defaults, onChange] = [`somnet:${run.fingerprint}:${name}`, { class: "", search: "", decision: "any", sort: "worst", ...opened }, then];
    fill(run);
    put(somnet.memory.get(key) ?? {});
    for (const field of FIELDS.filter(control)) control(field).addEventListener(field === "search" ? "input" : "change", changed);
    byId("filter-reset").addEventListener("click", () => { put({}); changed(); });
    control("search").addEventListener("keydown", (event) => {
      if (event.key === "Escape" || event.key === "Enter") control("search").blur();
    });
  }

  return { start, put, values, chosen, inAddress, changed, differs: () => inAddress().length > 0 };
})();
