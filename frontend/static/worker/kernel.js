// The WASM kernel: one instance per slice, whose memory holds the slice and the request that is computed.
// Dropping the object frees it all. Source of the arithmetic: frontend/browser_worker/kernel/experts.c.

import { BadSlice, readHeader } from "./gguf.js";

export const KERNEL_CLASS = "wasm-1";
// Names of the ggml types that the kernel computes, as the market writes them.
export const TYPES = ["BF16", "F16", "F32", "IQ4_NL", "IQ4_XS", "MXFP4", "Q4_0", "Q4_K", "Q5_K", "Q6_K", "Q8_0"];
const ROLES = { gate: 0, up: 1, down: 2 };
const WHY = ["", "its shape does not fit", "its type is not known here", "a pair names a row that is not there",
  "experts outside the slice were asked for"];
const PAGE_BYTES = 65536;
const FORMAT_VERSION = 1;

const aligned = (address) => Math.ceil(address / 64) * 64;

export class BadRequest extends Error {}
export class UnknownExpert extends Error {}

export async function compileKernel(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`the kernel could not be loaded: ${response.status}`);
  return WebAssembly.compile(await response.arrayBuffer());
}

export class SliceKernel {
  // `size` bytes of a slice are written through `bytes()`, then `open()` reads their header.
  constructor(module, size) {
    this.exports = new WebAssembly.Instance(module, {}).exports;
    this.size = size;
    this.start = aligned(this.exports.__heap_base.value);
    this.end = aligned(this.start + size);
    this.reserve(this.end);
  }

  // Grows the memory to `bytes`; views made before are void afterwards. Throws RangeError when there is no memory left.
  reserve(bytes) {
    const missing = bytes - this.exports.memory.buffer.byteLength;
    if (missing > 0) this.exports.memory.grow(Math.ceil(missing / PAGE_BYTES));
  }

  bytes() {
    return new Uint8Array(this.exports.memory.buffer, this.start, this.size);
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
    for (const [role, tensor, part, shares] of parts) this.describe(role, tensor, part, shares);
    for (const role of Object.values(ROLES)) {
      this.reserve(this.end + this.exports.arrange_bytes(role));
      this.exports.arrange(role, this.end);
    }
  }

  // One matrix; `part` of `shares`: its place in a tensor that holds gate and up of each expert one after the other.
  describe(role, tensor, part, shares) {
    if (!tensor || tensor.shape.length !== 3 || tensor.shape[2] !== this.last - this.first) throw new BadSlice(`the ${role} tensor is missing`);
    const [nIn, nOut, experts] = tensor.shape;
    const [narrow, wide] = role === "down" ? [nOut, nIn] : [nIn, nOut / shares];
    this.nFf ??= wide;
    if (narrow !== this.nEmbd || wide !== this.nFf) throw new BadSlice(`the ${role} tensor has another width`);
    const expertBytes = this.expertBytes(tensor);
    if (!(tensor.offset + expertBytes * experts <= this.size)) throw new BadSlice(`the ${role} tensor is cut off`);
    const data = this.start + tensor.offset + (part * expertBytes) / shares;
    const status = this.exports.describe(ROLES[role], tensor.type, nIn, nOut / shares, data, expertBytes, experts);
    if (status) throw new BadSlice(`the ${role} tensor cannot be computed: ${WHY[status]}`);
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
  // Returns a Uint8Array of pairCount rows of nEmbd float32, in the order of the pairs; with weights (pairCount float32,
  // as Uint8Array) rowCount rows instead, sums of the pairs' rows times their weights, float32 or float16 (`asHalf`).
  // Throws BadRequest, UnknownExpert.
  compute(rowDtype, rowCount, rows, pairs, pairCount, weights = null, asHalf = false) {
    if (rows.length !== rowCount * this.rowBytes(rowDtype) || pairs.length !== pairCount * 4 || !rows.length || !pairCount)
      throw new BadRequest("the rows do not fit this slice");
    const rowsAt = this.end;
    const pairsAt = aligned(rowsAt + rows.length), outAt = aligned(pairsAt + pairs.length);
    const outBytes = pairCount * this.nEmbd * 4, scratchAt = aligned(outAt + outBytes);
    this.reserve(scratchAt + this.exports.scratch_bytes(rowCount));
    const memory = new Uint8Array(this.exports.memory.buffer);
    memory.set(rows, rowsAt);
    memory.set(pairs, pairsAt);
    const status = this.exports.compute(rowsAt, rowDtype, rowCount, pairsAt, pairCount, this.first, outAt, scratchAt);
    if (status === 4) throw new UnknownExpert(WHY[4]);
    if (status) throw new BadRequest(WHY[status]);
    if (!weights) return memory.slice(outAt, outAt + outBytes);
    // The scratch memory is free again: weights and sums take its place.
    const sumsAt = aligned(scratchAt + weights.length), sums = rowCount * this.nEmbd;
    this.reserve(sumsAt + sums * 4);
    const grown = new Uint8Array(this.exports.memory.buffer);
    grown.set(weights, scratchAt);
    this.exports.add_up(outAt, pairsAt, scratchAt, pairCount, rowCount, sumsAt, Number(asHalf));
    return grown.slice(sumsAt, sumsAt + sums * (asHalf ? 2 : 4));
  }
}
