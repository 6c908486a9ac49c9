// One thread of pool.js. Messages, each counted in the control block so that a waiting thread looks for it:
//   {type: "start", module, control, part, parts}   once; answered with "ready"
//   {type: "add", slice, memory, stack}             an instance over the memory of a slice; stack: top of this thread's
//   {type: "remove", slice}

import { BELL, JOBS, MAIL, SLICE } from "./pool.js";

const slices = new Map();
let thread = null;
let read = 0; // messages, without "start"
let done = 0; // jobs

// Computes jobs and sleeps between them; returns when there is a message to read.
function serve() {
  const { control, part, parts } = thread;
  for (;;) {
    const bell = Atomics.load(control, BELL);
    if (Atomics.load(control, MAIL) > read) return;
    if (Atomics.load(control, JOBS) === done) {
      Atomics.wait(control, BELL, bell);
      continue;
    }
    done += 1;
    slices.get(Atomics.load(control, SLICE)).work(part, parts);
  }
}

onmessage = ({ data }) => {
  if (data.type === "start") {
    thread = data;
    postMessage("ready");
  } else {
    read += 1;
    if (data.type === "remove") slices.delete(data.slice);
    else {
      const { exports } = new WebAssembly.Instance(thread.module, { env: { memory: data.memory } });
      exports.__stack_pointer.value = data.stack;
      slices.set(data.slice, exports);
    }
  }
  serve();
};
