// The WASM kernel: one memory per slice, with the slice and the part of a request that is computed. Dropping the object
// frees it all. Source of the arithmetic: frontend/browser_worker/kernel/experts.c.

import { BadSlice, readHeader } from "./gguf.js";

export const KERNEL_CLASS = "wasm-2"; // a new number with each change of the order of float sums
// Names of the ggml types that the kernel computes, as the market writes them.
export const TYPES = ["BF16", "F16", "F32", "IQ4_NL", "IQ4_XS", "MXFP4", "Q4_0", "Q4_K", "Q5_K", "Q6_K", "Q8_0"];
const ROLES = { gate: 0, up: 1, down: 2 };
const WHY = ["", "its shape does not fit", "its type is not known here", "a pair names a row that is not there",
  "experts outside the slice were asked for"];
const PAGE_BYTES = 65536;
const FIRST_PAGES = 3; // what kernel_threads.wasm declares
const MOST_SCRATCH_BYTES = 16 << 20;
const HALVES_AT_ONCE = 1 << 16;
const FORMAT_VERSION = 1;

const aligned = (address) => Math.ceil(address / 64) * 64;
// Bytes of any alignment, as numbers.
const numbers = (kind, bytes) => new kind(bytes.slice().buffer);

export class BadRequest extends Error {}
export class UnknownExpert extends Error {}

export async function compileKernel(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`the kernel could not be loaded: ${response.status}`);
  return WebAssembly.compile(await response.arrayBuffer());
}

export class SliceKernel {
  // `size` bytes of a slice are written through `bytes()`, then `open()` reads their header. pool: null, or threads
  // (pool.js) that share the memory; `module` is then the one built for them.
  constructor(module, size, pool = null) {
    this.pool = pool;
    const stacks = pool ? pool.stackBytes : 0;
    const mostPages = Math.ceil((size + stacks + MOST_SCRATCH_BYTES) / PAGE_BYTES) + FIRST_PAGES;
    const memory = pool && new WebAssembly.Memory({ initial: FIRST_PAGES, maximum: mostPages, shared: true });
    this.exports = new WebAssembly.Instance(module, memory ? { env: { memory } } : {}).exports;
    this.memory = memory ?? this.exports.memory;
    this.size = size;
    this.start = aligned(this.exports.__heap_base.value + stacks);
    this.end = aligned(this.start + size);
    this.reserve(this.end);
    this.threads = pool?.add(this.memory, this.exports.__heap_base.value);
  }

  // Frees what the threads hold of it.
  close() {
    if (this.pool) this.pool.remove(this.threads);
  }

  // Grows the memory to `bytes`; views made before are void afterwards. Throws RangeError when there is no memory left.
  reserve(bytes) {
    const missing = bytes - this.memory.buffer.byteLength;
    if (missing > 0) this.memory.grow(Math.ceil(missing / PAGE_BYTES));
  }

  memoryBytes() {
    return this.memory.buffer.byteLength;
  }

  bytes() {
    return new Uint8Array(this.memory.buffer, this.start, this.size);
  }

  // Reads the header of the slice in memory and puts its weights into the order that the kernel wants; the bytes are
  // those of the file no more. Once per object. Throws BadSlice.
  open() {
    const { metadata, tensors } = readHeader(this.bytes());
    const number = (key) => metadata.get(`expertswarm.${key}`);
    if (number("format") !== FORMAT_VERSION || number("activation") !== "swiglu") throw new BadSlice("not a slice of SwiGLU experts");
    this.layer = number("layer");
    this.first = number("first");
    this.last = number("last");
    this.nEmbd = number("n_embd");
    this.build = number("build");
    const names = new Map([...tensors].map(([name, tensor]) => [name.match(/^blk\.\d+\.ffn_(\w+)_exps\.weight$/)?.[1], tensor]));
    const merged = names.get("gate_up");
    const parts = merged
      ? [["gate", merged, 0, 2], ["up", merged, 1, 2], ["down", names.get("down"), 0, 1]]
      : ["gate", "up", "down"].map((role) => [role, names.get(role), 0, 1]);
    this.matrices = parts.map(([role, tensor, part, shares]) => this.matrix(role, tensor, part, shares));
    this.describe();
    for (const role of Object.values(ROLES)) {
      this.reserve(this.end + this.exports.arrange_bytes(role));
      this.exports.arrange(role, this.end);
    }
  }

  // One matrix; `part` of `shares`: its place in a tensor that holds gate and up of each expert one after the other.
  matrix(role, tensor, part, shares) {
    if (!tensor || tensor.shape.length !== 3 || tensor.shape[2] !== this.last - this.first) throw new BadSlice(`the ${role} tensor is missing`);
    const [nIn, nOut, experts] = tensor.shape;
    const [narrow, wide] = role === "down" ? [nOut, nIn] : [nIn, nOut / shares];
    this.nFf ??= wide;
    if (narrow !== this.nEmbd || wide !== this.nFf) throw new BadSlice(`the ${role} tensor has another width`);
    const expertBytes = this.expertBytes(tensor), partBytes = expertBytes / shares;
    if (!(tensor.offset + expertBytes * experts <= this.size)) throw new BadSlice(`the ${role} tensor is cut off`);
    return { role, type: tensor.type, nIn, nOut: nOut / shares, data: this.start + tensor.offset + part * partBytes, partBytes, expertBytes };
  }

  // Tells the kernel where the matrices lie. Throws BadSlice.
  describe() {
    for (const { role, type, nIn, nOut, data, expertBytes } of this.matrices) {
      const status = this.exports.describe(ROLES[role], type, nIn, nOut, data, expertBytes, this.last - this.first);
      if (status) throw new BadSlice(`the ${role} tensor cannot be computed: ${WHY[status]}`);
    }
  }

  // ggml type numbers by role.
  get types() {
    return Object.fromEntries(this.matrices.map(({ role, type }) => [role, type]));
  }

  // Becomes able to prepare rows for another kernel's slice, without its weights.
  takeShape({ layer, first, last, nEmbd, nFf, build, matrices }) {
    Object.assign(this, { layer, first, last, nEmbd, nFf, build, matrices });
    this.describe();
  }

  // Views of the weights by expert: [gate, up, down] each.
  matrixBytes() {
    return Array.from({ length: this.last - this.first }, (_, expert) =>
      this.matrices.map(({ data, partBytes, expertBytes }) => new Uint8Array(this.memory.buffer, data + expert * expertBytes, partBytes)));
  }

  expertBytes({ type, shape }) {
    const bytes = this.exports.matrix_bytes(type, shape[0], shape[1]);
    if (!bytes) throw new BadSlice(`ggml type ${type} is not known here`);
    return bytes;
  }

  // Bytes of one row on the wire: dtype 0 float32, 1 q8 (0: this slice takes float32 rows only).
  rowBytes(rowDtype) {
    return rowDtype === 0 ? this.nEmbd * 4 : this.exports.q8_row_bytes();
  }

  // rows: rowCount rows as they came; pairs: pairCount times (row u16, expert u16), both Uint8Array.
  // Resolves to a Uint8Array of pairCount rows of nEmbd float32, in the order of the pairs; with weights (pairCount float32,
  // as Uint8Array) rowCount rows instead, sums of the pairs' rows times their weights, float32 or float16 (`asHalf`).
  // One request at a time. Rejects with BadRequest, UnknownExpert.
  async compute(rowDtype, rowCount, rows, pairs, pairCount, weights = null, asHalf = false) {
    const asked = this.check(rowDtype, rowCount, rows, pairs, pairCount);
    const n = this.nEmbd, most = this.exports.most_pairs();
    const factors = weights && numbers(Float32Array, weights);
    const answer = new Float32Array((weights ? rowCount : pairCount) * n);
    const order = inOrder(asked, pairCount, most);
    for (let start = 0; start < pairCount; start += most) {
      const chosen = order.subarray(start, start + most);
      const values = await this.computeSome(rowDtype, rows, asked, chosen);
      chosen.forEach((pair, place) => {
        const row = values.subarray(place * n, (place + 1) * n);
        if (factors) addWeighted(answer, asked[2 * pair] * n, row, factors[pair]);
        else answer.set(row, pair * n);
      });
    }
    return asHalf ? this.halves(answer) : new Uint8Array(answer.buffer);
  }

  // The pairs as numbers. Throws BadRequest, UnknownExpert.
  check(rowDtype, rowCount, rows, pairs, pairCount) {
    if (rows.length !== rowCount * this.rowBytes(rowDtype) || pairs.length !== pairCount * 4 || !rows.length || !pairCount)
      throw new BadRequest("the rows do not fit this slice");
    const asked = numbers(Uint16Array, pairs);
    for (let i = 0; i < asked.length; i += 2) {
      if (asked[i] >= rowCount) throw new BadRequest(WHY[3]);
      if (asked[i + 1] < this.first || asked[i + 1] >= this.last) throw new UnknownExpert(WHY[4]);
    }
    return asked;
  }

  // Some pairs (their numbers, few enough for one call); a view of their rows, good until the next call.
  computeSome(rowDtype, rows, asked, chosen) {
    const { outAt } = this.place(rowDtype, rows, asked, chosen);
    if (this.pool) this.pool.run(this.threads, (parts) => this.exports.work(0, parts));
    else this.exports.work(0, 1);
    return new Float32Array(this.memory.buffer, outAt, chosen.length * this.nEmbd);
  }

  // Puts some pairs and their rows into memory. {places: Map row -> its place among the prepared rows, which begin at
  // rowsAt; outAt: where `work` puts the answer}.
  place(rowDtype, rows, asked, chosen) {
    const rowBytes = this.rowBytes(rowDtype), places = new Map(), pairs = new Uint16Array(2 * chosen.length);
    chosen.forEach((pair, i) => {
      const row = asked[2 * pair];
      if (!places.has(row)) places.set(row, places.size);
      pairs.set([places.get(row), asked[2 * pair + 1]], 2 * i);
    });
    const cameAt = this.end, pairsAt = aligned(cameAt + places.size * rowBytes), outAt = aligned(pairsAt + pairs.byteLength);
    const rowsAt = aligned(outAt + chosen.length * this.nEmbd * 4);
    this.reserve(rowsAt + this.exports.scratch_bytes(places.size, chosen.length));
    const memory = new Uint8Array(this.memory.buffer);
    for (const [row, place] of places) memory.set(rows.subarray(row * rowBytes, (row + 1) * rowBytes), cameAt + place * rowBytes);
    memory.set(new Uint8Array(pairs.buffer), pairsAt);
    const status = this.exports.begin(cameAt, rowDtype, places.size, pairsAt, chosen.length, this.first, outAt, rowsAt);
    if (status) throw new BadRequest(WHY[status]);
    return { places, outAt, rowsAt };
  }

  // float32 to float16, as a Uint8Array.
  halves(values) {
    const halves = new Uint8Array(values.length * 2);
    this.reserve(this.end + HALVES_AT_ONCE * 4);
    for (let start = 0; start < values.length; start += HALVES_AT_ONCE) {
      const part = values.subarray(start, start + HALVES_AT_ONCE);
      new Float32Array(this.memory.buffer, this.end, part.length).set(part);
      this.exports.to_half(this.end, part.length);
      halves.set(new Uint8Array(this.memory.buffer, this.end, part.length * 2), start * 2);
    }
    return halves;
  }
}

// Numbers of the pairs, as they came where one call computes them all, else by expert: those of one share its weights.
function inOrder(asked, pairCount, most) {
  const order = Uint32Array.from({ length: pairCount }, (_, pair) => pair);
  return pairCount <= most ? order : order.sort((a, b) => asked[2 * a + 1] - asked[2 * b + 1] || a - b);
}

// Rounded to float32 after the product and after the sum, as the Python worker does.
function addWeighted(sums, at, row, factor) {
  for (let i = 0; i < row.length; i++) sums[at + i] += Math.fround(row[i] * factor);
}
