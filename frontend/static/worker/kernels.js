// What computes here: threads where the browser lets them share memory, else one.

import { KERNEL_CLASS, SliceKernel, TYPES, compileKernel } from "./kernel.js";
import { Pool, defaultThreads } from "./pool.js";

const MOST_THREADS = 8; // as kernel/workspace.h

// {module, open(size), stop(), kernelClass, types, threads}. module: for Sha256; open: room for a slice, as SliceKernel.
// Threads that do not start leave one. Rejects where the browser cannot compute at all.
export async function openKernels({ threads = defaultThreads() } = {}) {
  const module = await compileKernel(new URL("./kernel.wasm", import.meta.url));
  let pool = null, shared = module;
  if (threads > 1) {
    try {
      shared = await compileKernel(new URL("./kernel_threads.wasm", import.meta.url));
      pool = await Pool.start(shared, Math.min(threads, MOST_THREADS));
    } catch (error) {
      console.warn("one thread only:", error);
    }
  }
  const open = (size) => new SliceKernel(pool ? shared : module, size, pool);
  const stop = () => pool?.stop();
  return { module, open, stop, kernelClass: KERNEL_CLASS, types: TYPES, threads: pool ? pool.threads : 1 };
}
