// The page `/worker`: the owner's choices, the Web Worker's messages, and what the device does meanwhile (battery, screen,
// visibility). What is shown is view.js; what is kept between visits is remembered.js.

import { batteryReason, isLow, watchBattery } from "./battery.js";
import { register } from "./market.js";
import { remembered } from "./remembered.js";
import { say, speak } from "./texts.js";
import { draw, drawBattery, drawBudget, element } from "./view.js";

const given = (id) => JSON.parse(element(id).textContent);
const presets = given("presets"), language = given("language");
const SERVICE_WORKER = "/worker-shell.js";

speak(language);
let worker = null;
let state = null;
let awake = null;
let battery = null;
let wasLow = false;
let lastRest = "";

const preset = () => presets[Number(element("budget").value)];
const show = (now) => draw(now, { lending: Boolean(worker), offered: presets.length > 0 });

// --- registration by link: a token, or an invite, stands in the fragment, which no server ever sees ------------------------
function takeFragment() {
  const fragment = new URLSearchParams(location.hash.slice(1));
  for (const key of ["token", "invite"]) {
    if (!fragment.get(key)) continue;
    remembered.set(key, fragment.get(key));
    history.replaceState(null, "", location.pathname);
  }
}

// Who is registered already needs no invite. Where everybody may register, the page has no such part.
function drawAdmission() {
  if (element("admission")) element("admission").hidden = Boolean(remembered.get("token"));
}

async function deviceToken() {
  const known = remembered.get("token");
  if (known) return known;
  const { expectedKernelClass } = await import("./kernels.js");
  const invite = element("invite")?.value.trim() ?? "";
  const { token } = await register(element("name").value, await expectedKernelClass(), preset().budget_bytes, invite);
  remembered.set("token", token);
  remembered.set("invite", null);
  drawAdmission();
  return token;
}

// --- buttons --------------------------------------------------------------------------------------------------------------
async function lend() {
  if (worker) return;
  element("lend").disabled = true;
  draw({ phase: "starting", text: say("starting") }, { lending: false, offered: false });
  try {
    const token = await deviceToken();
    worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
    worker.onmessage = ({ data }) => said(data.state);
    worker.onerror = () => ended({ phase: "refused", text: say("this browser cannot run the worker: it is too old") });
    const relayUrl = new URL("/relay/", location.href.replace(/^http/, "ws")).href;
    lastRest = restReason();
    worker.postMessage({
      type: "start", token, relayUrl, name: element("name").value, budgetBytes: preset().budget_bytes, rest: lastRest,
      battery: battery?.level ?? null, language,
    });
    remembered.set("lending", "1");
    keepAwake();
    navigator.storage?.persist?.().catch(() => {}); // asks that the experts are not cleared away; a refusal changes nothing
  } catch (error) {
    ended({ phase: "refused", text: say("this device could not be registered: {why}", { why: error.message }) });
    if (error.code === "bad_invite") element("invite")?.focus();
  }
}

function stop() {
  remembered.set("lending", null);
  element("stop").disabled = true;
  worker?.postMessage({ type: "stop" });
}

function ended(last) {
  worker?.terminate();
  worker = null;
  state = null;
  awake?.release().catch(() => {});
  awake = null;
  remembered.set("lending", null);
  if (last.code === "unknown_token" || last.code === "bad_token") remembered.set("token", null);
  drawAdmission();
  show(last);
}

// --- what the worker says -------------------------------------------------------------------------------------------------
function said(next) {
  if (next.phase === "stopped" || next.phase === "refused") ended(next);
  else show((state = { ...state, ...next }));
}

// --- the device -----------------------------------------------------------------------------------------------------------
function restReason() {
  if (document.hidden) return say("paused: this tab is hidden; it goes on as soon as you look at it");
  return batteryReason(battery, element("also-on-battery").checked, wasLow);
}

// Visibility, battery or the owner's wish changed: rest, or go on.
function reconsider() {
  wasLow = isLow(battery, wasLow);
  drawBattery(battery);
  const rest = restReason();
  worker?.postMessage({ type: "battery", level: battery?.level ?? null });
  if (rest !== lastRest) worker?.postMessage({ type: "rest", text: rest });
  lastRest = rest;
  if (!document.hidden) keepAwake();
}

// Where the browser can (secure addresses), the screen stays on while this tab lends and is looked at.
async function keepAwake() {
  if (!worker || (awake && !awake.released)) return;
  try {
    const lock = await navigator.wakeLock?.request("screen");
    if (worker) awake = lock;
    else await lock?.release();
  } catch {
    // A low battery, or a browser that does not want to: the screen goes dark as always.
  }
}

// Leaving or reloading: the relay is told, if there is time; the connection closes in any case.
function leaving() {
  const leaves = worker;
  worker = null;
  leaves?.postMessage({ type: "leave" });
  setTimeout(() => leaves?.terminate(), 200);
}

function restored(event) {
  if (event.persisted && remembered.get("lending")) lend();
}

// --- the shell: an installed page that opens without a network and says so --------------------------------------------------
function installShell() {
  navigator.serviceWorker?.register(SERVICE_WORKER, { scope: location.pathname }).catch(() => {
    // A certificate that the browser does not trust, or storage that is switched off: the page works without.
  });
}

function budgetMoved() {
  if (preset()) drawBudget(preset());
}

function budgetChosen() {
  remembered.set("experts", String(preset().experts));
  worker?.postMessage({ type: "budget", budgetBytes: preset().budget_bytes });
}

function batteryAllowed() {
  remembered.set("also-on-battery", element("also-on-battery").checked ? "1" : null);
  reconsider();
}

async function begin() {
  takeFragment();
  if (element("invite")) element("invite").value = remembered.get("invite") ?? "";
  drawAdmission();
  element("insecure").hidden = isSecureContext;
  const known = presets.findIndex((one) => String(one.experts) === remembered.get("experts"));
  if (known >= 0) element("budget").value = known;
  element("also-on-battery").checked = Boolean(remembered.get("also-on-battery"));
  element("budget").addEventListener("input", budgetMoved);
  element("budget").addEventListener("change", budgetChosen);
  element("also-on-battery").addEventListener("change", batteryAllowed);
  element("lend").addEventListener("click", lend);
  element("stop").addEventListener("click", stop);
  document.addEventListener("visibilitychange", reconsider);
  addEventListener("online", () => worker?.postMessage({ type: "online" }));
  addEventListener("pagehide", leaving);
  addEventListener("pageshow", restored);
  budgetMoved();
  show({ phase: "off", text: say(presets.length ? "off: nothing is lent" : "no model is on offer at the moment; come back later") });
  battery = await watchBattery(reconsider);
  reconsider();
  if (remembered.get("lending") && presets.length) lend();
  installShell();
}

begin();
