// Reading the curves: one epoch is looked at in all of them together.
"use strict";

(() => {
  const { byId } = somnet;
  const curves = [...document.querySelectorAll(".curve")].map((figure) => ({
    name: figure.dataset.name,
    svg: figure.querySelector("svg"),
    cursor: figure.querySelector(".cursor"),
    value: figure.querySelector(".curve-value"),
    last: figure.querySelector(".curve-value").textContent,
  }));
  const resting = byId("epoch-now").textContent;
  let data, epoch = null;

  function look(next) {
    if (next === epoch) return;
    epoch = next;
    for (const { name, cursor, value, last } of curves) {
      cursor.setAttribute("visibility", epoch === null ? "hidden" : "visible");
      for (const end of ["x1", "x2"]) cursor.setAttribute(end, data.x[epoch ?? 0]);
      value.textContent = epoch === null ? last : data.values[name][epoch] || "–";
    }
    byId("epoch-now").textContent = epoch === null ? resting : `Epoch ${epoch + 1}: ${data.epochs[epoch]}`;
  }

  function nearest(svg, clientX) {
    const box = svg.getBoundingClientRect();
    const x = ((clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
    return data.x.reduce((best, at, place) => (Math.abs(at - x) < Math.abs(data.x[best] - x) ? place : best), 0);
  }

  const KEYS = {
    ArrowLeft: () => Math.max(0, (epoch ?? data.x.length) - 1),
    ArrowRight: () => Math.min(data.x.length - 1, (epoch ?? -1) + 1),
    Home: () => 0,
    End: () => data.x.length - 1,
    Escape: () => null,
  };

  somnet.load("training").then((loaded) => {
    data = loaded;
    for (const { svg } of curves) svg.addEventListener("pointermove", (event) => look(nearest(svg, event.clientX)));
    byId("curves").addEventListener("pointerleave", () => look(null));
    addEventListener("keydown", (event) => {
      if (!(event.key in KEYS) || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      look(KEYS[event.key]());
    });
    document.documentElement.dataset.ready = "";
  });
})();
