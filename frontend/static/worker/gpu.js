// A graphics card for experts of Q4_K, Q5_K and Q6_K. WASM prepares rows and is the reference: each slice is checked against
// it before it is used (gpu_kernel.js).

export const GPU_KERNEL_CLASS = "webgpu-1"; // a new number with each change of the order of float sums
const BITS = { 12: 4, 13: 5, 14: 6 }; // of the ggml types that are computed here
const TILE = 4; // as in gpu.wgsl
const OUTPUTS = 16, BLOCK = 256, ROW_BYTES = 576;
const PLAN_STRIDE = 256; // the alignment of a uniform buffer's parts

export class Gpu {
  // Null where there is no card, or only one that the processor plays (`anyAdapter`: that one, too).
  static async open({ anyAdapter = false } = {}) {
    const adapter = await Gpu.adapter({ anyAdapter });
    const device = await adapter?.requestDevice().catch(() => null);
    if (!device) return null;
    const code = await (await fetch(new URL("./gpu.wgsl", import.meta.url))).text();
    return new Gpu(device, device.createShaderModule({ code }), anyAdapter);
  }

  static async adapter({ anyAdapter = false } = {}) {
    const adapter = await globalThis.navigator?.gpu?.requestAdapter({ powerPreference: "high-performance" }).catch(() => null);
    const isPlayed = adapter?.info?.isFallbackAdapter ?? adapter?.isFallbackAdapter ?? false;
    const isSoftware = isPlayed || /swiftshader|llvmpipe|software/i.test(`${adapter?.info?.architecture} ${adapter?.info?.description}`);
    return isSoftware && !anyAdapter ? null : adapter;
  }

  // isWanted: computes also where WASM is quicker.
  constructor(device, shaders, isWanted) {
    Object.assign(this, { device, shaders, isWanted });
    this.isLost = false;
    this.slices = new Set(); // that the card computes
    this.buffers = new Set(); // those that hold memory of the card
    this.scratch = new Map();
    this.pipelines = new Map();
    device.lost.then(({ message }) => {
      this.isLost = true;
      this.buffers.clear();
      console.warn("the graphics card is gone:", message);
    });
  }

  static computes = (type) => type in BITS;

  buffer(size, usage) {
    const buffer = this.device.createBuffer({ size, usage: usage | GPUBufferUsage.COPY_DST });
    this.buffers.add(buffer);
    return buffer;
  }

  destroy(buffer) {
    buffer.destroy();
    this.buffers.delete(buffer);
  }

  // Memory of the card with these bytes of a SharedArrayBuffer or ArrayBuffer.
  upload(bytes) {
    const buffer = this.buffer(bytes.length, GPUBufferUsage.STORAGE);
    this.device.queue.writeBuffer(buffer, 0, bytes);
    return buffer;
  }

  // Memory for requests, one after the other; kept, and grown where a request wants more.
  room(name, size, usage = GPUBufferUsage.STORAGE) {
    const old = this.scratch.get(name);
    if (old && old.size >= size) return old;
    if (old) this.destroy(old);
    const room = this.buffer(size, usage);
    this.scratch.set(name, room);
    return room;
  }

  stop() {
    for (const buffer of [...this.buffers]) this.destroy(buffer);
    this.device.destroy();
  }

  pipeline(entryPoint, type = 12) {
    const key = `${entryPoint} ${type}`;
    if (!this.pipelines.has(key)) {
      const compute = { module: this.shaders, entryPoint, constants: entryPoint === "product" ? { bits: BITS[type] } : {} };
      this.pipelines.set(key, this.device.createComputePipeline({ layout: "auto", compute }));
    }
    return this.pipelines.get(key);
  }

  // experts: [{first, count, gate, up, down}], the pairs of each and its buffers; shape: {nEmbd, nFf, types: {gate, up, down}};
  // rows: prepared rows, bytes; rowOfPair: Uint32Array. Resolves to the rows of all pairs, Float32Array; rejects when the
  // card is gone.
  async compute(experts, { nEmbd, nFf, types }, rows, rowOfPair) {
    const { queue } = this.device, pairs = rowOfPair.length;
    const rowsIn = this.room("rows", rows.length), list = this.room("rowOfPair", pairs * 4), same = this.room("same", pairs * 4);
    const [gates, ups] = ["gates", "ups"].map((name) => this.room(name, pairs * nFf * 4));
    const inner = this.room("inner", (pairs * nFf * ROW_BYTES) / BLOCK);
    const answers = this.room("answers", pairs * nEmbd * 4, GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC);
    const read = this.room("read", pairs * nEmbd * 4, GPUBufferUsage.MAP_READ);
    queue.writeBuffer(rowsIn, 0, rows);
    queue.writeBuffer(list, 0, rowOfPair);
    queue.writeBuffer(same, 0, Uint32Array.from(rowOfPair, (_, pair) => pair));
    const plans = this.writePlans([
      ...experts.flatMap(({ first, count }) => [[nEmbd / BLOCK, nFf, first, count], [nFf / BLOCK, nEmbd, first, count]]),
      [nFf / BLOCK, 0, 0, pairs],
    ]);
    const encoder = this.device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    const product = (type, weights, rowBuffer, rowList, to, plan, outputs, count) =>
      this.run(pass, this.pipeline("product", type), [weights, rowBuffer, rowList, to, plans(plan)], outputs / OUTPUTS, Math.ceil(count / TILE));
    experts.forEach(({ gate, up, count }, i) => {
      product(types.gate, gate, rowsIn, list, gates, 2 * i, nFf, count);
      product(types.up, up, rowsIn, list, ups, 2 * i, nFf, count);
    });
    this.run(pass, this.pipeline("prepare"), [, , , , plans(2 * experts.length), gates, ups, inner], nFf / BLOCK, pairs);
    experts.forEach(({ down, count }, i) => product(types.down, down, inner, same, answers, 2 * i + 1, nEmbd, count));
    pass.end();
    encoder.copyBufferToBuffer(answers, 0, read, 0, pairs * nEmbd * 4);
    queue.submit([encoder.finish()]);
    await read.mapAsync(GPUMapMode.READ, 0, pairs * nEmbd * 4);
    const values = new Float32Array(read.getMappedRange(0, pairs * nEmbd * 4).slice(0));
    read.unmap();
    return values;
  }

  // Writes the plans of all dispatches; gives the binding of each.
  writePlans(plans) {
    const words = new Uint32Array((plans.length * PLAN_STRIDE) / 4);
    plans.forEach((plan, i) => words.set(plan, (i * PLAN_STRIDE) / 4));
    const buffer = this.room("plans", words.byteLength, GPUBufferUsage.UNIFORM);
    this.device.queue.writeBuffer(buffer, 0, words);
    return (i) => ({ buffer, offset: i * PLAN_STRIDE, size: 16 });
  }

  run(pass, pipeline, resources, x, y) {
    const entries = [];
    resources.forEach((resource, binding) => {
      if (resource) entries.push({ binding, resource: resource.buffer ? resource : { buffer: resource } });
    });
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, this.device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries }));
    pass.dispatchWorkgroups(x, y);
  }
}
