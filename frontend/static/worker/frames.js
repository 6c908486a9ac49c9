// Frames of the relay: bytes in, frames out, and back. docs/protocol.md is the description, relay/frames.py the model.

import { CHUNK_BYTES, FLAG_MORE, FLAG_RELAY, HEADER_BYTES, MAX_OPEN_BODIES, TYPE } from "./constants.js";

export class FrameError extends Error {}

const KNOWN_TYPES = new Set(Object.values(TYPE));
const EMPTY = new Uint8Array(0);
const DEFAULTS = {
  flags: 0, layer: 0, session: 0, request: 0n, stream: 0, rows: 0, pairs: 0, rowDtype: 0, resultDtype: 0, chunk: 0, body: EMPTY,
};

// A frame with all fields; `request` is a BigInt (64 bits), `body` a Uint8Array.
export const makeFrame = (type, fields) => ({ type, ...DEFAULTS, ...fields });

export function encodeFrame(frame) {
  const message = new Uint8Array(HEADER_BYTES + frame.body.length);
  const view = new DataView(message.buffer);
  view.setUint8(0, frame.type);
  view.setUint8(1, frame.flags);
  view.setUint16(2, frame.layer, true);
  view.setUint32(4, frame.session, true);
  view.setBigUint64(8, frame.request, true);
  view.setUint32(16, frame.stream, true);
  view.setUint16(20, frame.rows, true);
  view.setUint16(22, frame.pairs, true);
  view.setUint8(24, frame.rowDtype);
  view.setUint8(25, frame.resultDtype);
  view.setUint16(26, frame.chunk, true);
  view.setUint32(28, frame.body.length, true);
  message.set(frame.body, HEADER_BYTES);
  return message;
}

// All frames of one message (Uint8Array); their bodies are views of it. Throws FrameError.
export function decodeFrames(message) {
  const view = new DataView(message.buffer, message.byteOffset, message.byteLength);
  const frames = [];
  let at = 0;
  do {
    if (message.length - at < HEADER_BYTES) throw new FrameError("a frame is cut off");
    const type = view.getUint8(at), flags = view.getUint8(at + 1), size = view.getUint32(at + 28, true);
    if (!KNOWN_TYPES.has(type) || flags & ~(FLAG_MORE | FLAG_RELAY)) throw new FrameError(`type ${type} with flags ${flags} is not known`);
    if (size > CHUNK_BYTES || size > message.length - at - HEADER_BYTES) throw new FrameError("a body is cut off or too large");
    const start = at + HEADER_BYTES;
    frames.push({
      type, flags,
      layer: view.getUint16(at + 2, true),
      session: view.getUint32(at + 4, true),
      request: view.getBigUint64(at + 8, true),
      stream: view.getUint32(at + 16, true),
      rows: view.getUint16(at + 20, true),
      pairs: view.getUint16(at + 22, true),
      rowDtype: view.getUint8(at + 24),
      resultDtype: view.getUint8(at + 25),
      chunk: view.getUint16(at + 26, true),
      body: message.subarray(start, start + size),
    });
    at = start + size;
  } while (at < message.length);
  return frames;
}

// The frame in chunks of at most CHUNK_BYTES, in order.
export function splitFrame(frame) {
  const chunks = [];
  for (let start = 0, chunk = 0; start < frame.body.length || !chunk; start += CHUNK_BYTES, chunk++) {
    const more = start + CHUNK_BYTES < frame.body.length ? FLAG_MORE : 0;
    chunks.push({ ...frame, flags: frame.flags | more, chunk, body: frame.body.subarray(start, start + CHUNK_BYTES) });
  }
  return chunks;
}

export const jsonBody = (value) => new TextEncoder().encode(JSON.stringify(value));
export const readJson = (frame) => JSON.parse(new TextDecoder().decode(frame.body));

// Joins chunks to whole frames, within a limit over all bodies that are open.
export class Reassembler {
  constructor(maxBytes) {
    this.maxBytes = maxBytes;
    this.open = new Map();
    this.bytes = 0;
  }

  // The whole frame when this was its last chunk, else null. Throws FrameError.
  add(frame) {
    const more = frame.flags & FLAG_MORE;
    if (!more && !frame.chunk) return frame;
    const key = `${frame.stream}/${frame.request}`;
    if (!frame.chunk) {
      this.forget(key);
      if (this.open.size >= MAX_OPEN_BODIES) throw new FrameError("too many requests are arriving at once");
      this.open.set(key, { first: frame, parts: [], size: 0 });
    }
    const partial = this.open.get(key);
    if (!partial || frame.chunk !== partial.parts.length || this.bytes + frame.body.length > this.maxBytes) {
      this.forget(key);
      throw new FrameError("a chunk came without the one before it, or the request is too large");
    }
    partial.parts.push(frame.body.slice());
    partial.size += frame.body.length;
    this.bytes += frame.body.length;
    if (more) return null;
    this.forget(key);
    const body = new Uint8Array(partial.size);
    let at = 0;
    for (const part of partial.parts) body.set(part, at), (at += part.length);
    return { ...partial.first, flags: partial.first.flags & ~FLAG_MORE, body };
  }

  forget(key) {
    const partial = this.open.get(key);
    if (partial) this.bytes -= partial.size;
    this.open.delete(key);
  }

  forgetStream(stream) {
    for (const key of [...this.open.keys()]) if (key.startsWith(`${stream}/`)) this.forget(key);
  }
}
