// A slice on a graphics card, used as SliceKernel is. The card has the only copy of the weights: WASM reads and arranges
// them, computes a few rows as the reference, and forgets them; when the card is lost it gets them back from `refill`.

import { Gpu } from "./gpu.js";
import { SliceKernel } from "./kernel.js";

// Normalised squared error to WASM that a card may have: floats in another order give 1e-12, an int8 rounding of an inner
// activation that turns over 1e-4 (docs/decisions/0008).
const MOST_ERROR = 1e-3;
const LOSS_MILLISECONDS = 1000;
const TRIAL_ROWS = 8, TRIALS = 3;

// Prepares rows in WASM and has the card compute them; knows the shape of a slice, not its weights.
class CardKernel extends SliceKernel {
  constructor(module, gpu, slice) {
    super(module, 0);
    this.gpu = gpu;
    this.takeShape(slice);
    gpu.slices.add(this);
    this.experts = slice.matrixBytes().map(([gate, up, down]) => ({ gate: gpu.upload(gate), up: gpu.upload(up), down: gpu.upload(down) }));
  }

  close() {
    for (const expert of this.experts) for (const buffer of Object.values(expert)) this.gpu.destroy(buffer);
    this.experts = [];
    this.gpu.slices.delete(this);
  }

  async computeSome(rowDtype, rows, asked, chosen) {
    const { places, rowsAt } = this.place(rowDtype, rows, asked, chosen);
    const ordered = [...chosen.keys()].sort((a, b) => asked[2 * chosen[a] + 1] - asked[2 * chosen[b] + 1] || a - b);
    const experts = [];
    ordered.forEach((place, i) => {
      const number = asked[2 * chosen[place] + 1] - this.first;
      if (experts.at(-1)?.number === number) experts.at(-1).count++;
      else experts.push({ number, first: i, count: 1, ...this.experts[number] });
    });
    const prepared = new Uint8Array(this.memory.buffer, rowsAt, (places.size * this.nEmbd * 576) / 256);
    const values = await this.gpu.compute(experts, this, prepared, Uint32Array.from(ordered, (place) => places.get(asked[2 * chosen[place]])));
    const answer = new Float32Array(values.length);
    ordered.forEach((place, i) => answer.set(values.subarray(i * this.nEmbd, (i + 1) * this.nEmbd), place * this.nEmbd));
    return answer;
  }
}

export class GpuKernel {
  // openWasm(size): a SliceKernel; refill(kernel): writes the slice into a SliceKernel's bytes once more.
  constructor(gpu, module, openWasm, size, refill) {
    Object.assign(this, { gpu, module, openWasm, size, refill });
    this.kernel = openWasm(size);
  }

  get nEmbd() {
    return this.kernel.nEmbd;
  }

  get isOnCard() {
    return this.kernel instanceof CardKernel;
  }

  bytes() {
    return this.kernel.bytes();
  }

  memoryBytes() {
    return this.kernel.memoryBytes();
  }

  // Stays in WASM where the card does not know the types, computes something else, or is slower.
  async open() {
    await this.kernel.open();
    if (this.gpu.isLost || !Object.values(this.kernel.types).every(Gpu.computes)) return;
    const request = trial(this.kernel), wasm = await tried(this.kernel, request);
    const card = new CardKernel(this.module, this.gpu, this.kernel);
    try {
      const { values, seconds } = await tried(card, request), error = normalisedError(values, wasm.values);
      if (!(error <= MOST_ERROR)) throw new Error(`the graphics card computes something else: error ${error}`);
      if (seconds > wasm.seconds && !this.gpu.isWanted) throw new Error("the graphics card is slower");
    } catch (error) {
      console.warn("this slice stays in WASM:", error);
      card.close();
      return;
    }
    this.kernel.close();
    this.kernel = card;
  }

  async compute(...request) {
    if (this.isOnCard && !this.gpu.isLost) {
      try {
        return await this.kernel.compute(...request);
      } catch (error) {
        // Requests fail before the loss is told.
        await Promise.race([this.gpu.device.lost, new Promise((resolve) => setTimeout(resolve, LOSS_MILLISECONDS))]);
        if (!this.gpu.isLost) throw error;
      }
    }
    await this.leaveCard();
    return this.kernel.compute(...request);
  }

  // The card is gone: back to WASM.
  async leaveCard() {
    if (!this.isOnCard) return;
    this.kernel.close();
    const kernel = this.openWasm(this.size);
    await this.refill(kernel);
    await kernel.open();
    this.kernel = kernel;
  }

  close() {
    this.kernel.close();
  }
}

// The arguments of `compute` for a few rows of a slice's first expert.
function trial({ first, nEmbd }) {
  const rows = Float32Array.from({ length: TRIAL_ROWS * nEmbd }, (_, i) => Math.sin(i * i));
  const pairs = Uint16Array.from({ length: 2 * TRIAL_ROWS }, (_, i) => (i % 2 ? first : i / 2));
  return [0, TRIAL_ROWS, new Uint8Array(rows.buffer), new Uint8Array(pairs.buffer), TRIAL_ROWS];
}

// {values, seconds}: what a kernel computes, and how quickly at best.
async function tried(kernel, request) {
  let values, seconds = Infinity;
  for (let i = 0; i < TRIALS; i++) {
    const began = performance.now();
    values = new Float32Array((await kernel.compute(...request)).buffer);
    seconds = Math.min(seconds, (performance.now() - began) / 1000);
  }
  return { values, seconds };
}

function normalisedError(values, expected) {
  let difference = 0, size = 0;
  expected.forEach((value, i) => {
    difference += (values[i] - value) ** 2;
    size += value ** 2;
  });
  return difference / size;
}
