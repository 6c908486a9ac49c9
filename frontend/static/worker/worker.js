// The Web Worker: everything but the page. Messages:
//   from the page  {type: "start", token, name, budgetBytes, relayUrl, rest, battery, language}   once; rest: "" or why to
//                  begin resting; language: of texts.js
//                  {type: "budget", budgetBytes}
//                  {type: "rest", text}        why to rest; "": go on
//                  {type: "battery", level}    0 to 1, or null where it is not known
//                  {type: "online"}            the network is back: no need to wait
//                  {type: "leave"}             the page goes away; claims stay for the rest of their lease
//                  {type: "stop"}              give everything back
//   to the page    {type: "state", state}      state: {phase, code, text, rows, receivedBytes, earnings, storage, connected,
//                  slices: [{label, done, size, here}]}; phases: starting, idle, downloading, checking, serving, waiting,
//                  paused, stopped, refused

import { openKernels } from "./kernels.js";
import { Lifecycle } from "./lifecycle.js";
import { Pace, digestSeconds } from "./pace.js";
import { Sha256 } from "./sha256.js";
import { PieceStore } from "./store.js";
import { say, speak } from "./texts.js";

const REPORT_MILLISECONDS = 200;
let lifecycle = null;
let waiting = null;
let timer = null;
const early = []; // what the page said before there was a lifecycle

// At most five reports a second, always ending with the last one.
function report(state) {
  waiting = state;
  timer ??= setTimeout(() => {
    timer = null;
    postMessage({ type: "state", state: waiting });
  }, REPORT_MILLISECONDS);
}

async function start({ rest, battery, language, ...given }) {
  speak(language);
  try {
    const kernels = await openKernels();
    const sha256 = new Sha256(kernels.module), store = await PieceStore.open();
    const pace = new Pace(() => digestSeconds(sha256));
    lifecycle = new Lifecycle({ ...given, kernels, store, sha256, pace, battery, restText: rest, report });
  } catch (error) {
    postMessage({ type: "state", state: { phase: "refused", code: "no_kernel", text: say("this browser cannot compute experts: {why}", { why: error.message }) } });
    return;
  }
  early.forEach(obey);
  await lifecycle.run();
}

function obey(data) {
  if (data.type === "budget") lifecycle.setBudget(data.budgetBytes);
  else if (data.type === "rest") lifecycle.rest("page", data.text);
  else if (data.type === "battery") lifecycle.setBattery(data.level);
  else if (data.type === "online") lifecycle.wake?.();
  else if (data.type === "leave") lifecycle.leave();
  else if (data.type === "stop") lifecycle.stop();
}

onmessage = ({ data }) => {
  if (data.type === "start") start(data);
  else if (lifecycle) obey(data);
  else early.push(data);
};
