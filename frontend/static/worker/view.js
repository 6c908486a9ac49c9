// What the page shows: fills the elements of worker.html, decides nothing.

import { bytes, credits, experts } from "./words.js";

const MOST_SLICES_SHOWN = 8;

export const element = (id) => document.getElementById(id);

// state: as worker.js reports it, or just {phase, text}; lending: a worker runs; offered: there is something to lend for.
export function draw(state, { lending, offered }) {
  document.body.dataset.phase = state.phase;
  if (element("state").textContent !== state.text) element("state").textContent = state.text; // read out on changes only
  element("lend").hidden = lending;
  element("lend").disabled = !offered;
  element("stop").hidden = !lending;
  element("stop").disabled = false;
  element("rows").textContent = (state.rows ?? 0).toLocaleString("en");
  element("received").textContent = bytes(state.receivedBytes ?? 0);
  if (state.earnings) {
    element("pending").textContent = credits(state.earnings.pending ?? 0);
    element("available").textContent = credits(state.earnings.available ?? 0);
  }
  element("storage").textContent = state.storage ?? "";
  element("storage").hidden = !state.storage;
  drawSlices(lending ? (state.slices ?? []) : []);
}

// Those that arrive come first; elements are kept, so that a progress bar moves instead of being made anew.
function drawSlices(slices) {
  const list = element("slices");
  const shown = [...slices].sort((a, b) => a.here - b.here).slice(0, MOST_SLICES_SHOWN);
  while (list.children.length > shown.length) list.lastElementChild.remove();
  while (list.children.length < shown.length) list.append(element("slice").content.cloneNode(true));
  shown.forEach(({ label, done, size, here }, place) => {
    const [name, amount, bar] = list.children[place].children;
    name.textContent = label;
    amount.textContent = here ? `${bytes(size)}, checked` : `${bytes(done)} of ${bytes(size)}`;
    bar.hidden = here;
    bar.max = size;
    bar.value = done;
    bar.setAttribute("aria-label", `download of ${label}`);
  });
  element("more-slices").textContent = slices.length > shown.length ? `and ${slices.length - shown.length} more` : "";
}

export function drawBudget({ budget_bytes: budget, size_bytes: size, experts: count, pays }) {
  const text = `${bytes(budget)}: ${experts(count)}`;
  element("budget-text").textContent = text;
  element("budget").setAttribute("aria-valuetext", text);
  element("takes").textContent = `${experts(count)} take${count === 1 ? "s" : ""} ${bytes(size)} of memory, and as much of this browser's storage.`;
  element("pays").textContent = pays ? `Pays up to ${credits(pays)} credits an hour.` : "Nothing is wanted at this size now.";
}

// battery: {charging, level} or null.
export function drawBattery(battery) {
  element("battery").textContent = battery
    ? `Battery ${Math.round(100 * battery.level)}%, ${battery.charging ? "charging" : "not charging"}. Below 20% it rests in any case.`
    : "This browser does not tell about the battery: please keep the device plugged in yourself.";
  element("also-on-battery").disabled = !battery;
}
