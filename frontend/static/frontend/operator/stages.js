// The row of stages above the map: it shows the map's measure where stages have it, in the map's colours, and marks on the
// map the layers of the stage that is pointed at. Links stay links: without this script they open a page.
import { Cells, codesOf, showCell } from "./cells.js";
import { colourOf, figure, shareOf, valueOf } from "./colours.js";

const POLL_MILLISECONDS = 3000;
const STEPS = { ArrowLeft: -1, ArrowRight: 1 };

const row = document.getElementById("stages");
const links = [...row.querySelectorAll("a")];
const measures = row.dataset.measures.trim().split(" ");
const cells = new Cells(row.dataset.cells, row.dataset.build, row.dataset.measure);

function show(map) {
  const codes = codesOf(map);
  for (const [unit, link] of links.entries()) {
    link.querySelector(".colour").style.backgroundColor = `rgb(${colourOf(shareOf(codes[unit], map)).join(",")})`;
    link.querySelector("b").textContent = figure(valueOf(codes[unit], map));
  }
  document.getElementById("stages-measure").textContent = `${map.label}, ${map.unit}`;
}

async function load() {
  try {
    const map = await cells.next();
    if (map) {
      show(map);
    }
  } catch {
    // The map above says that the server does not answer; the row stays as it was.
    return;
  }
}

// The layers [first, last) of a link, for the map; null where they are not known.
function layersOf(link) {
  return link?.dataset.first ? [Number(link.dataset.first), Number(link.dataset.last)] : null;
}

function mark(link) {
  document.dispatchEvent(new CustomEvent("layers-marked", { detail: layersOf(link) }));
}

// One stop for the Tab key; arrows, Home and End move along the row.
function walkTo(link) {
  for (const other of links) {
    other.tabIndex = other === link ? 0 : -1;
  }
}

row.addEventListener("keydown", (event) => {
  const at = links.indexOf(event.target.closest("a"));
  const to = { Home: 0, End: links.length - 1 }[event.key] ?? at + (STEPS[event.key] ?? 0);
  if (at >= 0 && links[to] && to !== at && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    links[to].focus();
  }
});
row.addEventListener("focusin", (event) => {
  const link = event.target.closest("a");
  walkTo(link);
  mark(link);
});
row.addEventListener("focusout", () => mark(null));
row.addEventListener("pointerover", (event) => mark(event.target.closest("a")));
row.addEventListener("pointerleave", () => mark(document.activeElement?.closest("#stages a")));
row.addEventListener("click", (event) => {
  const link = event.target.closest("a");
  if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    showCell(link.href);
  }
});
document.addEventListener("measure-chosen", (event) => {
  const measure = measures.includes(event.detail) ? event.detail : measures[0];
  if (measure !== cells.measure) {
    cells.choose(measure);
    load();
  }
});
walkTo(links[0]);
load();
setInterval(() => document.hidden || load(), POLL_MILLISECONDS);
