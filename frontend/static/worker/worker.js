// The Web Worker: everything but the page. Messages:
//   from the page  {type: "start", token, name, budgetBytes, relayUrl}   once
//                  {type: "budget", budgetBytes}
//                  {type: "pause", text}, {type: "resume"}
//                  {type: "stop"}                                         give everything back
//   to the page    {type: "state", state}                                 state: lifecycle.js; phases: starting, idle,
//                  downloading, checking, serving, waiting, paused, stopped, refused

import { compileKernel } from "./kernel.js";
import { Lifecycle } from "./lifecycle.js";
import { Sha256 } from "./sha256.js";
import { PieceStore } from "./store.js";

const REPORT_MILLISECONDS = 200;
let lifecycle = null;
let waiting = null;
let timer = null;

// At most five reports a second, always ending with the last one.
function report(state) {
  waiting = state;
  timer ??= setTimeout(() => {
    timer = null;
    postMessage({ type: "state", state: waiting });
  }, REPORT_MILLISECONDS);
}

async function start({ token, name, budgetBytes, relayUrl }) {
  try {
    const module = await compileKernel(new URL("./kernel.wasm", import.meta.url));
    const store = await PieceStore.open();
    lifecycle = new Lifecycle({ token, name, budgetBytes, relayUrl, module, store, sha256: new Sha256(module), report });
  } catch (error) {
    postMessage({ type: "state", state: { phase: "refused", code: "no_kernel", text: `this browser cannot compute experts: ${error.message}` } });
    return;
  }
  await lifecycle.run();
}

onmessage = ({ data }) => {
  if (data.type === "start") start(data);
  else if (data.type === "budget") lifecycle?.setBudget(data.budgetBytes);
  else if (data.type === "pause") lifecycle?.pause(data.text);
  else if (data.type === "resume") lifecycle?.resume();
  else if (data.type === "stop") lifecycle?.stop();
};
