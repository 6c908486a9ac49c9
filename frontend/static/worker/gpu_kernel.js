// A slice on a graphics card, used as SliceKernel is. The card has the only copy of the weights: WASM reads and arranges
// them, computes one row as the reference, and forgets them; when the card is lost it gets them back from `refill`.

import { Gpu } from "./gpu.js";
import { SliceKernel } from "./kernel.js";

// Normalised squared error to WASM that a card may have: floats in another order give 1e-12, an int8 rounding of an inner
// activation that turns over 1e-4 (docs/decisions/0008).
const MOST_ERROR = 1e-3;
const LOSS_MILLISECONDS = 1000;

// Prepares rows in WASM and has the card compute them; knows the shape of a slice, not its weights.
class CardKernel extends SliceKernel {
  constructor(module, gpu, slice) {
    super(module, 0);
    this.gpu = gpu;
    this.takeShape(slice);
    this.experts = slice.matrixBytes().map(([gate, up, down]) => ({ gate: gpu.upload(gate), up: gpu.upload(up), down: gpu.upload(down) }));
  }

  close() {
    for (const expert of this.experts) for (const buffer of Object.values(expert)) this.gpu.destroy(buffer);
    this.experts = [];
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

  // Stays in WASM where the card does not know the types or computes something else.
  async open() {
    await this.kernel.open();
    const { types, first, nEmbd } = this.kernel;
    if (this.gpu.isLost || !Object.values(types).every(Gpu.computes)) return;
    const row = Float32Array.from({ length: nEmbd }, (_, i) => Math.sin(i * i));
    const request = [0, 1, new Uint8Array(row.buffer), new Uint8Array(Uint16Array.of(0, first).buffer), 1];
    const expected = new Float32Array((await this.kernel.compute(...request)).buffer);
    const card = new CardKernel(this.module, this.gpu, this.kernel);
    try {
      const error = normalisedError(new Float32Array((await card.compute(...request)).buffer), expected);
      if (!(error <= MOST_ERROR)) throw new Error(`the graphics card computes something else: error ${error}`);
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

function normalisedError(values, expected) {
  let difference = 0, size = 0;
  expected.forEach((value, i) => {
    difference += (values[i] - value) ** 2;
    size += value ** 2;
  });
  return difference / size;
}
