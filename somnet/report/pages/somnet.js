// Data of the pages, and how they are shown.
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

  // A column that Python packed.
  function unpack({ type, bytes }) {
    const kinds = { int32: Int32Array, float32: Float32Array, uint16: Uint16Array, uint8: Uint8Array };
    const text = atob(bytes), data = new Uint8Array(text.length);
    for (let at = 0; at < text.length; at++) data[at] = text.charCodeAt(at); // ten times as fast as Uint8Array.from
    return new kinds[type](data.buffer);
  }

  // What a page remembers until the browser is closed; nothing where the browser keeps nothing.
  const memory = {
    get(name) {
      try {
        return JSON.parse(sessionStorage.getItem(name));
      } catch {
        return null;
      }
    },
    set(name, value) {
      try {
        sessionStorage.setItem(name, JSON.stringify(value));
      } catch {
        // it works without
      }
    },
  };

  // Of the classes, on every map: Okabe and Ito's, the faintest last.
  const classColours = ["#e69f00", "#56b4e9", "#009e73", "#d55e00", "#0072b2", "#cc79a7", "#f0e442"];

  // On a phone the pages do not fit in a line: the one that is open is in view.
  const here = document.querySelector("nav [aria-current]");
  if (here) here.parentElement.scrollLeft = here.offsetLeft - (here.parentElement.clientWidth - here.offsetWidth) / 2;

  const loaded = (name) => files.get(name)?.value;
  const picture = (row) => `${root}pictures/${Math.floor(row / 1000)}/${row}.jpg`;
  const byId = (id) => document.getElementById(id);
  const number = (value) => value.toLocaleString("en-US");

  return { data, load, loaded, make, unpack, memory, classColours, picture, byId, number };
})();
