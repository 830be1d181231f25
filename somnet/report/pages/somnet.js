// Data of the pages, and the decisions of the person who looks at them.
"use strict";

const somnet = (() => {
  const root = document.documentElement.dataset.root;
  const parts = new Map(); // name -> {promise, resolve}

  function part(name) {
    if (!parts.has(name)) {
      const entry = {};
      entry.promise = new Promise((resolve, reject) => Object.assign(entry, { resolve, reject }));
      parts.set(name, entry);
    }
    return parts.get(name);
  }

  // Called by the files in data/: a page opened from disk may load scripts, but may not fetch.
  function data(name, value) {
    part(name).resolve(value);
  }

  function load(name) {
    const known = parts.has(name);
    const entry = part(name);
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

  return { root, data, load, make };
})();
