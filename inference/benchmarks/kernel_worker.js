// A Web Worker that computes for wasm_page.py. Messages: {id, name, given}, answered with {id, value} or {id, error}.

import { openKernels } from "/kernels.js";
import { Sha256 } from "/sha256.js";

const fromBase64 = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
const toBase64 = (bytes) => {
  let text = "";
  for (let i = 0; i < bytes.length; i += 32768) text += String.fromCharCode(...bytes.subarray(i, i + 32768));
  return btoa(text);
};
let kernels = null;
let kernel = null;

async function fill(kernel, response) {
  let at = 0;
  for (const reader = response.body.getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) return;
    kernel.bytes().set(value, at);
    at += value.length;
  }
}

const functions = {
  async start(options) {
    kernels?.stop();
    kernel = null;
    kernels = await openKernels(options);
    return { threads: kernels.threads, isolated: globalThis.crossOriginIsolated, gpu: Boolean(kernels.gpu) };
  },

  // Loads the slice at /slice in place of the one before; the bytes of memory that it takes then.
  async openSlice() {
    const response = await fetch("/slice");
    const size = Number(response.headers.get("content-length"));
    kernel?.close();
    kernel = await kernels.open(size, async (other) => fill(other, await fetch("/slice")));
    await fill(kernel, response);
    await kernel.open();
    return kernel.memoryBytes();
  },

  kernelClass: () => kernels.kernelClass,
  threads: () => kernels.threads,
  // As a browser does that is short of memory: nobody is told.
  loseThread: () => kernels.pool.workers[0].terminate(),
  isOnCard: () => kernel.isOnCard ?? false,
  cardBuffers: () => kernels.gpu.buffers.size,
  closeSlice: () => kernel.close(),
  loseCard: async () => {
    kernels.gpu.device.destroy();
    await kernels.gpu.device.lost;
  },

  async compute(dtype, count, rows, pairs, pairCount, weights, asHalf) {
    return toBase64(await kernel.compute(
      dtype, count, fromBase64(rows), fromBase64(pairs), pairCount, weights && fromBase64(weights), asHalf));
  },

  // Pairs per second.
  async time(dtype, count, rows, pairs, pairCount, seconds) {
    const given = [fromBase64(rows), fromBase64(pairs)];
    const began = performance.now();
    let rounds = 0, taken = 0;
    do {
      await kernel.compute(dtype, count, ...given, pairCount);
      rounds++;
      taken = (performance.now() - began) / 1000;
    } while (taken < seconds);
    return (rounds * pairCount) / taken;
  },

  digest: (text) => new Sha256(kernels.module).of(fromBase64(text)),

  // Bytes per second of SHA-256 over `size` zeros.
  digestSpeed(size) {
    const bytes = new Uint8Array(size), sha256 = new Sha256(kernels.module), began = performance.now();
    sha256.of(bytes);
    return size / ((performance.now() - began) / 1000);
  },

  memoryBytes: () => kernel.memoryBytes(),
};

onmessage = async ({ data: { id, name, given } }) => {
  try {
    postMessage({ id, value: await functions[name](...given) });
  } catch (error) {
    postMessage({ id, error: error.message });
  }
};
