// The page `/worker`: a slider, two buttons, and what the Web Worker reports. Keeps the device's token in this browser.

import { KERNEL_CLASS } from "./kernel.js";
import { register } from "./market.js";

const element = (id) => document.getElementById(id);
const presets = JSON.parse(element("presets").textContent);
const memory = {
  // A private window may refuse to keep anything: the page then works until it is closed.
  values: new Map(),
  get(key) {
    try {
      return localStorage.getItem(`expertswarm.${key}`) ?? this.values.get(key) ?? null;
    } catch {
      return this.values.get(key) ?? null;
    }
  },
  set(key, value) {
    this.values.set(key, value);
    try {
      if (value === null) localStorage.removeItem(`expertswarm.${key}`);
      else localStorage.setItem(`expertswarm.${key}`, value);
    } catch {
      // Kept in `values` only.
    }
  },
};

let worker = null;
let state = null;
let awake = null;

const bytes = (count) => (count >= 1e9 ? `${(count / 1e9).toFixed(1)} GB` : `${(count / 1e6).toFixed(1)} MB`);
const credits = (microcredits) => String(Number((microcredits / 1e6).toPrecision(4)));
const preset = () => presets[Number(element("budget").value)];

// --- registration by link: the token stands in the fragment, which no server ever sees ------------------------------------
function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!given) return;
  history.replaceState(null, "", location.pathname);
  memory.set("token", given);
}

async function deviceToken() {
  const known = memory.get("token");
  if (known) return known;
  const { token } = await register(element("name").value, KERNEL_CLASS, preset().size_bytes);
  memory.set("token", token);
  return token;
}

// --- buttons --------------------------------------------------------------------------------------------------------------
async function lend() {
  if (worker) return;
  element("lend").disabled = true;
  show({ phase: "starting", text: "starting" });
  try {
    const token = await deviceToken();
    worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
    worker.onmessage = ({ data }) => show(data.state);
    worker.onerror = () => ended({ phase: "refused", text: "this browser cannot run the worker: it is too old" });
    const relayUrl = new URL("/relay/", location.href.replace(/^http/, "ws")).href;
    worker.postMessage({ type: "start", token, name: element("name").value, budgetBytes: preset().size_bytes, relayUrl });
    memory.set("lending", "1");
    if (document.hidden) visibilityChanged();
    keepAwake();
  } catch (error) {
    ended({ phase: "refused", text: `this device could not be registered: ${error.message}` });
  }
}

function stop() {
  memory.set("lending", null);
  element("stop").disabled = true;
  worker?.postMessage({ type: "stop" });
}

function ended(last) {
  worker?.terminate();
  worker = null;
  state = null;
  awake?.release().catch(() => {});
  awake = null;
  memory.set("lending", null);
  if (last.code === "unknown_token" || last.code === "bad_token") memory.set("token", null);
  draw(last);
}

// --- what the worker says -------------------------------------------------------------------------------------------------
function show(next) {
  if (next.phase === "stopped" || next.phase === "refused") ended(next);
  else draw((state = { ...state, ...next }));
}

function draw(now) {
  document.body.dataset.phase = now.phase;
  element("state").textContent = now.text;
  element("lend").hidden = Boolean(worker);
  element("lend").disabled = !presets.length;
  element("stop").hidden = !worker;
  element("stop").disabled = false;
  const download = worker && now.download;
  element("progress").hidden = !download;
  if (download) {
    element("bar").max = download.size;
    element("bar").value = download.done;
    element("progress-text").textContent = `${bytes(download.done)} of ${bytes(download.size)}`;
  }
  element("rows").textContent = (now.rows ?? 0).toLocaleString("en");
  element("received").textContent = bytes(now.receivedBytes ?? 0);
  if (now.earnings) {
    element("pending").textContent = credits(now.earnings.pending ?? 0);
    element("available").textContent = credits(now.earnings.available ?? 0);
  }
  element("storage").textContent = now.storage ?? "";
  element("storage").hidden = !now.storage;
}

function budgetMoved() {
  const chosen = preset();
  if (!chosen) return;
  const text = `${bytes(chosen.size_bytes)}: ${chosen.experts} expert${chosen.experts === 1 ? "" : "s"}`;
  element("budget-text").textContent = text;
  element("budget").setAttribute("aria-valuetext", text);
  element("pays").textContent = chosen.pays ? `up to ${credits(chosen.pays)} credits an hour` : "nothing is wanted at this size now";
}

function budgetChosen() {
  memory.set("experts", String(preset().experts));
  worker?.postMessage({ type: "budget", budgetBytes: preset().size_bytes });
}

// --- the device -----------------------------------------------------------------------------------------------------------
function visibilityChanged() {
  if (!worker) return;
  if (document.hidden) worker.postMessage({ type: "pause", text: "paused: this tab is hidden; it goes on as soon as you look at it" });
  else {
    worker.postMessage({ type: "resume" });
    keepAwake();
  }
}

// Where the browser can (secure addresses), the screen stays on while this tab is looked at.
async function keepAwake() {
  try {
    const lock = await navigator.wakeLock?.request("screen");
    if (worker) awake = lock;
    else await lock?.release();
  } catch {
    // A low battery, or a browser that does not want to: the screen goes dark as always.
  }
}

// Leaving or reloading: the connection closes at once; the claims stay for two minutes, so a reload finds its experts again.
function leaving() {
  worker?.terminate();
  worker = null;
}

function restored(event) {
  if (event.persisted && memory.get("lending")) lend();
}

takeToken();
element("insecure").hidden = isSecureContext;
const remembered = presets.findIndex((one) => String(one.experts) === memory.get("experts"));
if (remembered >= 0) element("budget").value = remembered;
element("budget").addEventListener("input", budgetMoved);
element("budget").addEventListener("change", budgetChosen);
element("lend").addEventListener("click", lend);
element("stop").addEventListener("click", stop);
document.addEventListener("visibilitychange", visibilityChanged);
addEventListener("pagehide", leaving);
addEventListener("pageshow", restored);
budgetMoved();
draw({ phase: "off", text: presets.length ? "off: nothing is lent" : "no model is on offer at the moment; come back later" });
if (memory.get("lending") && presets.length) lend();
