// What the page shows: fills the elements of worker.html, decides nothing.

import { say } from "./texts.js";
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
    amount.textContent = here ? say("{size}, checked", { size: bytes(size) }) : say("{done} of {size}", { done: bytes(done), size: bytes(size) });
    bar.hidden = here;
    bar.max = size;
    bar.value = done;
    bar.setAttribute("aria-label", say("download of {label}", { label }));
  });
  element("more-slices").textContent = slices.length > shown.length ? say("and {count} more", { count: slices.length - shown.length }) : "";
}

export function drawBudget({ budget_bytes: budget, size_bytes: size, experts: count, pays }) {
  const text = `${bytes(budget)}: ${experts(count)}`;
  element("budget-text").textContent = text;
  element("budget").setAttribute("aria-valuetext", text);
  const takes = count === 1
    ? "1 expert takes {size} of memory, and as much of this browser's storage."
    : "{count} experts take {size} of memory, and as much of this browser's storage.";
  element("takes").textContent = say(takes, { count, size: bytes(size) });
  element("pays").textContent = pays ? say("Pays up to {credits} credits an hour.", { credits: credits(pays) }) : say("Nothing is wanted at this size now.");
}

// battery: {charging, level} or null.
export function drawBattery(battery) {
  const text = battery?.charging
    ? "Battery {percent}%, charging. Below 20 percent it rests in any case."
    : "Battery {percent}%, not charging. Below 20 percent it rests in any case.";
  element("battery").textContent = battery
    ? say(text, { percent: Math.round(100 * battery.level) })
    : say("This browser does not tell about the battery: please keep the device plugged in yourself.");
  element("also-on-battery").disabled = !battery;
}
