// The list of all issues, filtered and sorted; on the page with the map, what is within the lasso.
"use strict";

(() => {
  const { byId, number, images, decisions, filters, sheet } = somnet;
  const map = somnet.imageMap ?? null; // where there is one
  const [name, opened] = map ? ["map", { kind: "all" }] : ["list", { kind: "issues" }];
  let run, asked = 0;

  const address = (row) => `#${new URLSearchParams([...filters.inAddress(), ["row", row]])}`;

  async function draw() {
    const mine = ++asked;
    const shown = await images.choose(filters.chosen());
    if (mine !== asked) return; // something else was asked for meanwhile
    const rows = map ? map.show(shown) : shown;
    sheet.show(rows);
    byId("list-count").textContent = `${number(rows.length)} of ${number(run.rows)} images`;
    byId("nothing").hidden = rows.length > 0;
    byId("filter-reset").hidden = !filters.differs();
    document.documentElement.dataset.shown = String(mine);
  }

  async function changed() {
    history.replaceState(null, "", `#${new URLSearchParams(filters.inAddress())}`);
    scrollTo({ top: Math.min(scrollY, byId("sheet").offsetTop - 120), behavior: "instant" });
    await draw();
  }

  async function nextClass(step) {
    const choices = ["", ...run.order.map(String)];
    const at = choices.indexOf(filters.values().class) + step;
    filters.put({ ...filters.values(), class: choices[(at + choices.length) % choices.length] });
    await filters.changed();
    sheet.walkTo(0);
    somnet.review.tell(filters.values().class === "" ? "All classes." : `Class ${run.classes[Number(filters.values().class)]}.`);
  }

  // #kind=label&class=3 shows these, &row=12 opens the card of an image.
  async function follow() {
    const parts = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
    const row = parts.row === undefined ? null : Number(parts.row);
    delete parts.row;
    if (Object.keys(parts).length) filters.put(parts);
    const now = JSON.stringify(filters.values());
    if (now !== shown) {
      shown = now;
      somnet.memory.set(`somnet:${run.fingerprint}:${name}`, filters.values());
      await draw();
    }
    if (row !== null && row >= 0 && row < run.rows) somnet.card.show(row);
    else somnet.card.hide();
  }
  let shown = null;

  async function start() {
    run = await somnet.load("run");
    await Promise.all([decisions.open(), images.open()]);
    filters.start(run, name, opened, () => { shown = JSON.stringify(filters.values()); return changed(); });
    await sheet.start({ address, withClass: true });
    await somnet.review.start({ nextClass });
    await map?.start({ address, redraw: draw });
    await somnet.card.start({ address, closed: () => `#${new URLSearchParams(filters.inAddress())}` });
    addEventListener("hashchange", follow);
    await follow();
    document.documentElement.dataset.ready = "";
  }

  document.addEventListener("DOMContentLoaded", start);
})();
