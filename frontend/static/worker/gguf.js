// Reads the header of a slice (a small GGUF file): metadata and where its tensors lie. Format: ggml's docs/gguf.md, version 3.

export class BadSlice extends Error {}

const MAGIC = 0x46554747;
const MOST_ENTRIES = 4096;
const FIXED = {
  0: ["getUint8", 1], 1: ["getInt8", 1], 2: ["getUint16", 2], 3: ["getInt16", 2], 4: ["getUint32", 4],
  5: ["getInt32", 4], 6: ["getFloat32", 4], 7: ["getUint8", 1], 10: ["getBigUint64", 8], 11: ["getBigInt64", 8],
  12: ["getFloat64", 8],
};
const STRING = 8, ARRAY = 9;

class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.at = 0;
  }

  // A number of one of the FIXED types; 64-bit ones as Number (no size or count here passes 2**53).
  number(type) {
    const [getter, size] = FIXED[type] ?? [];
    if (!getter || this.at + size > this.bytes.length) throw new BadSlice("the header is cut off");
    const value = Number(this.view[getter](this.at, true));
    this.at += size;
    return value;
  }

  count() {
    const value = this.number(10);
    if (value > MOST_ENTRIES) throw new BadSlice("the header has too many entries");
    return value;
  }

  text() {
    const size = this.number(10);
    if (!(this.at + size <= this.bytes.length)) throw new BadSlice("the header is cut off");
    const value = new TextDecoder().decode(this.bytes.slice(this.at, this.at + size));
    this.at += size;
    return value;
  }

  value(type) {
    if (type === STRING) return this.text();
    if (type !== ARRAY) return this.number(type);
    const inner = this.number(4);
    if (inner === ARRAY) throw new BadSlice("arrays of arrays are not expected in a slice");
    return Array.from({ length: this.count() }, () => this.value(inner));
  }
}

// {metadata: Map, tensors: Map name -> {shape, type, offset}}; offsets count from the start of the file.
export function readHeader(bytes) {
  const reader = new Reader(bytes);
  if (reader.number(4) !== MAGIC || reader.number(4) !== 3) throw new BadSlice("not a GGUF file of version 3");
  const tensorCount = reader.count(), entryCount = reader.count();
  const metadata = new Map(), tensors = new Map();
  for (let i = 0; i < entryCount; i++) {
    const key = reader.text();
    metadata.set(key, reader.value(reader.number(4)));
  }
  for (let i = 0; i < tensorCount; i++) {
    const name = reader.text(), dimensions = reader.number(4);
    if (dimensions > 4) throw new BadSlice("a tensor has too many dimensions");
    const shape = Array.from({ length: dimensions }, () => reader.number(10));
    tensors.set(name, { shape, type: reader.number(4), offset: reader.number(10) });
  }
  const alignment = metadata.get("general.alignment") ?? 32;
  const start = Math.ceil(reader.at / alignment) * alignment;
  for (const tensor of tensors.values()) tensor.offset += start;
  return { metadata, tensors };
}
