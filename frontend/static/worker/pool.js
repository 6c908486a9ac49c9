// Threads for the kernel, where the page is cross-origin isolated: Web Workers (pool_thread.js) whose instances of
// kernel_threads.wasm share the memory of each slice. They wait for a bell in shared memory, not for messages: a layer's
// work takes less than a millisecond. When one of them is gone (the browser ended it), the caller goes on alone.

export const BELL = 0, JOBS = 1, MAIL = 2, SLICE = 3; // words of the shared control block
const STACK_BYTES = 65536;
const START_SECONDS = 10;

// How many threads compute by default: half of the processors, the page and the owner's other work have the rest.
export const defaultThreads = () =>
  globalThis.crossOriginIsolated ? Math.max(1, Math.floor((navigator.hardwareConcurrency || 1) / 2)) : 1;

export class Pool {
  // `threads` (two or more) with the caller's. Rejects when a browser does not start them.
  static async start(module, threads) {
    const pool = new Pool(threads);
    try {
      await Promise.all(Array.from({ length: threads - 1 }, (_, i) => pool.startOne(module, i + 1)));
    } catch (error) {
      pool.stop();
      throw error;
    }
    return pool;
  }

  constructor(threads) {
    this.threads = threads;
    this.control = new Int32Array(new SharedArrayBuffer(16));
    this.workers = [];
    this.slices = 0;
    this.isLost = false;
  }

  // Room that a slice's memory needs for the stacks of the threads.
  get stackBytes() {
    return (this.threads - 1) * STACK_BYTES;
  }

  startOne(module, part) {
    const worker = new Worker(new URL("./pool_thread.js", import.meta.url), { type: "module" });
    this.workers.push(worker);
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error("a thread did not start")), START_SECONDS * 1000);
      worker.onmessage = () => {
        clearTimeout(timer);
        worker.onerror = () => this.lose(); // whatever breaks it later
        resolve();
      };
      worker.onerror = (event) => (clearTimeout(timer), reject(new Error(event.message || "a thread could not be started")));
      worker.postMessage({ type: "start", module, control: this.control, part, parts: this.threads });
    });
  }

  stop() {
    for (const worker of this.workers) worker.terminate();
  }

  // Makes a slice's memory known to the threads; heapBase: where its stacks begin. Returns its number.
  add(memory, heapBase) {
    const slice = this.slices++;
    this.tell((part) => ({ type: "add", slice, memory, stack: heapBase + part * STACK_BYTES }));
    return slice;
  }

  remove(slice) {
    this.tell(() => ({ type: "remove", slice }));
  }

  // Computes on all threads; work(parts) is the caller's share and returns 1 when all are done, 0 when one does not answer:
  // it will not come back, and would block each further request. All others end then, and work(1) computes everything.
  run(slice, work) {
    if (!this.isLost) {
      Atomics.store(this.control, SLICE, slice);
      Atomics.add(this.control, JOBS, 1);
      this.ring();
      if (work(this.threads)) return;
      console.warn("a thread is gone: one thread only");
      this.lose();
    }
    work(1);
  }

  lose() {
    this.isLost = true;
    this.stop();
    this.workers = [];
    this.threads = 1;
  }

  tell(message) {
    this.workers.forEach((worker, i) => worker.postMessage(message(i + 1)));
    Atomics.add(this.control, MAIL, 1);
    this.ring();
  }

  ring() {
    Atomics.add(this.control, BELL, 1);
    Atomics.notify(this.control, BELL);
  }
}
