// The heat map: one pixel per cell on a hidden canvas, drawn enlarged onto the visible one.
//
// Cells come from the server every few seconds; 304 means nothing changed. What is drawn keeps its place: a new answer
// changes colours, never the zoom, the cursor or the size.
import { Cells, codesOf, showCell } from "./cells.js";
import { figure, legend, palette, valueOf } from "./colours.js";

const POLL_MILLISECONDS = 3000;
const ZOOM_STEP = 1.6;
const MOST_ZOOM = 32;
const DRAG_PIXELS = 4;

const canvas = document.getElementById("map");
const words = { ...canvas.dataset };
const text = document.getElementById("cursor-text");
const cells = document.createElement("canvas");
// view: what part of the map is seen, in cells; zoom 1 shows all.
const view = { zoom: 1, left: 0, top: 0 };
const dark = window.matchMedia("(prefers-color-scheme: dark)");
let map = null;
let codes = null;
let cursor = null;
let hovered = null;
// Layers [first, last) that the row of stages points at.
let marked = null;
const source = new Cells(words.cells, words.build, words.measure);

function noData() {
  return dark.matches ? [58, 66, 76] : [222, 226, 231];
}

function size() {
  return { rows: map.layers.length, columns: map.experts };
}

// --- drawing ---------------------------------------------------------------------------------------------------------
function paintCells() {
  const { rows, columns } = size();
  cells.width = columns;
  cells.height = rows;
  const image = new ImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  const colours = palette(map, noData());
  for (let i = 0; i < pixels.length; i++) {
    pixels[i] = colours[codes[i]];
  }
  cells.getContext("2d").putImageData(image, 0, 0);
}

export function draw() {
  if (!map) {
    return;
  }
  const { rows, columns } = size();
  const context = canvas.getContext("2d");
  const seen = { columns: columns / view.zoom, rows: rows / view.zoom };
  context.imageSmoothingEnabled = false;
  context.drawImage(cells, view.left, view.top, seen.columns, seen.rows, 0, 0, canvas.width, canvas.height);
  const cell = { width: canvas.width / seen.columns, height: canvas.height / seen.rows };
  drawGrid(context, cell, seen);
  markLayers(context, cell);
  outline(context, cell, hovered, 1);
  outline(context, cell, cursor, 2);
}

// Lines between cells, once they are big enough to have some.
function drawGrid(context, cell, seen) {
  if (cell.width < 6) {
    return;
  }
  context.fillStyle = dark.matches ? "rgba(16,22,29,.7)" : "rgba(255,255,255,.7)";
  for (let column = Math.ceil(view.left); column < view.left + seen.columns; column++) {
    context.fillRect(Math.round((column - view.left) * cell.width), 0, 1, canvas.height);
  }
  for (let row = Math.ceil(view.top); row < view.top + seen.rows; row++) {
    context.fillRect(0, Math.round((row - view.top) * cell.height), canvas.width, 1);
  }
}

// Black inside white, so that it is seen on every colour.
function outline(context, cell, place, weight) {
  if (!place) {
    return;
  }
  const ratio = window.devicePixelRatio || 1;
  const width = Math.max(cell.width, 5 * ratio);
  const height = Math.max(cell.height, 5 * ratio);
  const x = (place.column + 0.5 - view.left) * cell.width - width / 2;
  const y = (place.row + 0.5 - view.top) * cell.height - height / 2;
  frame(context, { x, y, width, height }, weight * ratio);
}

// A frame around the rows of some layers.
function markLayers(context, cell) {
  const rows = map.layers.flatMap((layer, row) => (marked && layer >= marked[0] && layer < marked[1] ? [row] : []));
  if (rows.length) {
    const weight = 2 * (window.devicePixelRatio || 1);
    const [y, height] = [(rows[0] - view.top) * cell.height, rows.length * cell.height];
    frame(context, { x: 2 * weight, y, width: canvas.width - 4 * weight, height }, weight);
  }
}

function frame(context, { x, y, width, height }, weight) {
  for (const [colour, grow] of [["#fff", 2 * weight], ["#000", weight]]) {
    context.strokeStyle = colour;
    context.lineWidth = weight;
    context.strokeRect(x - grow, y - grow, width + 2 * grow, height + 2 * grow);
  }
}

let asked = false;
function redraw() {
  if (!asked) {
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      draw();
    });
  }
}

function fit() {
  const ratio = window.devicePixelRatio || 1;
  const box = canvas.getBoundingClientRect();
  const [width, height] = [Math.round(box.width * ratio), Math.round(box.height * ratio)];
  if (width && (canvas.width !== width || canvas.height !== height)) {
    canvas.width = width;
    canvas.height = height;
    draw();
  }
}

// --- words -----------------------------------------------------------------------------------------------------------
function describe(place) {
  const { columns } = size();
  const value = valueOf(codes[place.row * columns + place.column], map);
  const reading = value === null ? words.wordsNone : `${map.whole ? "" : "≈ "}${figure(value)} ${map.unit}`;
  return `${words.wordsLayer} ${map.layers[place.row]}, ${words.wordsExpert} ${place.column}: ${reading}`;
}

function tell() {
  const place = hovered || cursor;
  text.textContent = place ? describe(place) : "";
}

function showLegend() {
  const items = legend(map, noData(), { none: words.wordsNone }).map(([colour, label]) => {
    const item = document.createElement("li");
    item.innerHTML = '<svg width="18" height="14" aria-hidden="true"><rect width="18" height="14"/></svg>';
    item.querySelector("rect").setAttribute("fill", colour);
    item.append(` ${label}`);
    return item;
  });
  const unit = document.createElement("li");
  unit.textContent = map.unit;
  document.getElementById("legend").replaceChildren(unit, ...items);
}

// --- data ------------------------------------------------------------------------------------------------------------
export function show(found) {
  map = found;
  codes = codesOf(map);
  paintCells();
  draw();
  tell();
}

async function load() {
  const lost = document.getElementById("lost");
  try {
    const found = await source.next();
    if (found) {
      show(found);
      document.getElementById("what").textContent = map.what;
      showLegend();
    }
    lost.hidden = true;
  } catch {
    lost.hidden = false;
  }
  lost.textContent = words.wordsLost;
}

async function choose(measure) {
  source.choose(measure);
  document.dispatchEvent(new CustomEvent("measure-chosen", { detail: measure }));
  for (const tab of document.querySelectorAll("#measures a")) {
    if (tab.dataset.measure === measure) {
      tab.setAttribute("aria-current", "true");
    } else {
      tab.removeAttribute("aria-current");
    }
  }
  await load();
  window.htmx?.ajax("GET", `${words.layers}?build=${words.build}&measure=${measure}`, {
    target: "#layers",
    swap: "outerHTML",
  });
}

// --- moving ----------------------------------------------------------------------------------------------------------
function placeAt(event) {
  const { rows, columns } = size();
  const box = canvas.getBoundingClientRect();
  const column = Math.floor(view.left + ((event.clientX - box.left) / box.width) * (columns / view.zoom));
  const row = Math.floor(view.top + ((event.clientY - box.top) / box.height) * (rows / view.zoom));
  return row >= 0 && row < rows && column >= 0 && column < columns ? { row, column } : null;
}

function clampView() {
  const { rows, columns } = size();
  view.left = Math.min(Math.max(view.left, 0), columns - columns / view.zoom);
  view.top = Math.min(Math.max(view.top, 0), rows - rows / view.zoom);
  canvas.classList.toggle("zoomed", view.zoom > 1);
}

// Keeps the cell `about` where it is on the screen.
function zoom(factor, about) {
  const { rows, columns } = size();
  const place = about || cursor || { row: view.top + rows / view.zoom / 2, column: view.left + columns / view.zoom / 2 };
  const before = view.zoom;
  view.zoom = Math.min(Math.max(view.zoom * factor, 1), MOST_ZOOM);
  view.left = place.column - (place.column - view.left) * (before / view.zoom);
  view.top = place.row - (place.row - view.top) * (before / view.zoom);
  clampView();
  redraw();
}

function showAll() {
  Object.assign(view, { zoom: 1, left: 0, top: 0 });
  clampView();
  redraw();
}

function move(rowStep, columnStep) {
  const { rows, columns } = size();
  const from = cursor || { row: 0, column: 0 };
  cursor = {
    row: Math.min(Math.max(from.row + (cursor ? rowStep : 0), 0), rows - 1),
    column: Math.min(Math.max(from.column + (cursor ? columnStep : 0), 0), columns - 1),
  };
  hovered = null;
  // The view follows the cursor.
  view.left = Math.min(Math.max(view.left, cursor.column + 1 - columns / view.zoom), cursor.column);
  view.top = Math.min(Math.max(view.top, cursor.row + 1 - rows / view.zoom), cursor.row);
  clampView();
  tell();
  redraw();
}

function open(place) {
  cursor = place;
  hovered = null;
  tell();
  redraw();
  showCell(words.cell.replace(/0\/0$/, `${map.layers[place.row]}/${place.column}`));
}

const KEYS = {
  ArrowUp: () => move(-1, 0),
  ArrowDown: () => move(1, 0),
  ArrowLeft: () => move(0, -1),
  ArrowRight: () => move(0, 1),
  PageUp: () => move(-8, 0),
  PageDown: () => move(8, 0),
  Home: () => move(0, -map.experts),
  End: () => move(0, map.experts),
  Enter: () => cursor && open(cursor),
  " ": () => cursor && open(cursor),
  "+": () => zoom(ZOOM_STEP),
  "=": () => zoom(ZOOM_STEP),
  "-": () => zoom(1 / ZOOM_STEP),
  Escape: showAll,
};

function listen() {
  canvas.addEventListener("keydown", (event) => {
    const act = event.ctrlKey || event.metaKey || event.altKey ? null : KEYS[event.key];
    if (act && map) {
      event.preventDefault();
      act();
    }
  });
  let drag = null;
  canvas.addEventListener("pointerdown", (event) => {
    drag = { x: event.clientX, y: event.clientY, left: view.left, top: view.top, moved: false };
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!map) {
      return;
    }
    if (drag && event.buttons && view.zoom > 1) {
      const box = canvas.getBoundingClientRect();
      const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
      drag.moved ||= Math.hypot(dx, dy) > DRAG_PIXELS;
      view.left = drag.left - (dx / box.width) * (map.experts / view.zoom);
      view.top = drag.top - (dy / box.height) * (map.layers.length / view.zoom);
      clampView();
    }
    hovered = event.pointerType === "mouse" ? placeAt(event) : null;
    tell();
    redraw();
  });
  canvas.addEventListener("pointerleave", () => {
    hovered = null;
    drag = null;
    if (map) {
      tell();
      redraw();
    }
  });
  canvas.addEventListener("click", (event) => {
    const place = map && !drag?.moved ? placeAt(event) : null;
    drag = null;
    if (place) {
      open(place);
    }
  });
  // Pinching on a touch pad arrives as a wheel with Ctrl; a plain wheel goes on scrolling the page.
  canvas.addEventListener("wheel", (event) => {
    if (event.ctrlKey && map) {
      event.preventDefault();
      zoom(event.deltaY < 0 ? ZOOM_STEP : 1 / ZOOM_STEP, placeAt(event));
    }
  }, { passive: false });
  document.getElementById("zoom-in").addEventListener("click", () => zoom(ZOOM_STEP));
  document.getElementById("zoom-out").addEventListener("click", () => zoom(1 / ZOOM_STEP));
  document.getElementById("zoom-all").addEventListener("click", showAll);
  document.getElementById("measures").addEventListener("click", (event) => {
    const tab = event.target.closest("a[data-measure]");
    if (tab && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
      event.preventDefault();
      history.replaceState(null, "", tab.href);
      choose(tab.dataset.measure);
    }
  });
  document.addEventListener("layers-marked", (event) => {
    marked = event.detail;
    redraw();
  });
  dark.addEventListener("change", () => map && (paintCells(), showLegend(), draw()));
  new ResizeObserver(fit).observe(canvas);
}

async function start() {
  document.getElementById("map-box").hidden = false;
  listen();
  fit();
  await load();
  fit();
  redraw();
  setInterval(() => document.hidden || load(), POLL_MILLISECONDS);
}

start();
