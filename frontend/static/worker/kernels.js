// What computes here, the quickest that there is: a graphics card; threads, where the browser lets them share memory; one
// thread. Feature detection is this file.

import { GPU_KERNEL_CLASS, Gpu } from "./gpu.js";
import { GpuKernel } from "./gpu_kernel.js";
import { KERNEL_CLASS, SliceKernel, TYPES, compileKernel } from "./kernel.js";
import { Pool, defaultThreads } from "./pool.js";

const MOST_THREADS = 8; // as kernel/workspace.h

// What will probably compute, before there is a slice to try it with: for the registration of a device. What does compute
// is told to the relay, and trust is counted by that.
export const expectedKernelClass = async () => ((await Gpu.adapter()) ? GPU_KERNEL_CLASS : KERNEL_CLASS);

// Resolves to {module, open(size, refill), stop(), kernelClass, types, threads, gpu, pool}.
//   module       for Sha256
//   open         room for a slice, used as SliceKernel; refill(kernel): writes the slice into a SliceKernel again, should
//                the card be lost
//   kernelClass  of what computes the slices that are open now
//   threads      that compute; fewer when the browser ends one
//   gpu, pool    Gpu, Pool, or null
// The wish `gpu`: "auto", "any" (one that the processor plays or that is slow, too) or false. What does not start is done
// without. Rejects where the browser cannot compute at all.
export async function openKernels({ threads = defaultThreads(), gpu: wish = "auto" } = {}) {
  const module = await compileKernel(new URL("./kernel.wasm", import.meta.url));
  const gpu = wish ? await Gpu.open({ anyAdapter: wish === "any" }) : null;
  let pool = null, shared = module;
  if (threads > 1) {
    try {
      shared = await compileKernel(new URL("./kernel_threads.wasm", import.meta.url));
      pool = await Pool.start(shared, Math.min(threads, MOST_THREADS));
    } catch (error) {
      console.warn("one thread only:", error);
    }
  }
  const openWasm = (size) => (pool && !pool.isLost ? new SliceKernel(shared, size, pool) : new SliceKernel(module, size));
  const open = (size, refill) => (gpu && refill && !gpu.isLost ? new GpuKernel(gpu, module, openWasm, size, refill) : openWasm(size));
  const stop = () => {
    pool?.stop();
    gpu?.stop();
  };
  return {
    module, open, stop, types: TYPES, gpu, pool,
    get threads() {
      return pool ? pool.threads : 1;
    },
    get kernelClass() {
      return gpu?.slices.size && !gpu.isLost ? GPU_KERNEL_CLASS : KERNEL_CLASS;
    },
  };
}
