// SHA-256 in WASM: crypto.subtle is missing at insecure addresses. Source: frontend/browser_worker/kernel/sha256.c.

const CHUNK_BYTES = 1 << 18;

export class Sha256 {
  constructor(module) {
    this.exports = new WebAssembly.Instance(module, {}).exports;
    this.state = Math.ceil(this.exports.__heap_base.value / 64) * 64;
    this.data = this.state + 256;
    this.exports.memory.grow(Math.ceil((CHUNK_BYTES + 512) / 65536));
    this.begin();
  }

  begin() {
    this.exports.sha256_begin(this.state);
    return this;
  }

  add(bytes) {
    const memory = new Uint8Array(this.exports.memory.buffer);
    for (let start = 0; start < bytes.length; start += CHUNK_BYTES) {
      const part = bytes.subarray(start, start + CHUNK_BYTES);
      memory.set(part, this.data);
      this.exports.sha256_add(this.state, this.data, part.length);
    }
    return this;
  }

  // 64 lower-case hexadecimal digits; `begin` starts the next one.
  hex() {
    this.exports.sha256_end(this.state, this.data);
    const digest = new Uint8Array(this.exports.memory.buffer, this.data, 32);
    return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
  }

  of(bytes) {
    return this.begin().add(bytes).hex();
  }
}
