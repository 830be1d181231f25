// The overview is a page without scripts, but for what only this person knows: how much is decided.
"use strict";

(() => {
  const { byId, number, decisions } = somnet;
  const draw = () => { byId("decided").textContent = number(decisions.all().length); };

  async function start() {
    await decisions.open();
    draw();
    document.addEventListener("decisions", draw);
    document.documentElement.dataset.ready = "";
  }

  document.addEventListener("DOMContentLoaded", start);
})();
