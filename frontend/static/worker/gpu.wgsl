// Experts on a graphics card: weights as kernel/arranged.h lays them out, rows as kernel/rows.h prepares them. Integers are
// added exactly, as in WASM; floats in another order.

override bits: u32 = 4; // of a weight: Q4_K, Q5_K or Q6_K

struct Plan {
  blocks: u32,  // of 256 inputs
  outputs: u32,
  first: u32,   // of the pairs of this expert
  count: u32,
}

const ROW_WORDS = 144u;     // of one block of a prepared row: 128 pairs of int16, 8 + 16 sums, a scale
const TILE = 4u;            // rows that meet decoded weights
const OUTPUTS = 16u;        // of a group

@group(0) @binding(0) var<storage, read> weights: array<u32>;
@group(0) @binding(1) var<storage, read> rows: array<u32>;
@group(0) @binding(2) var<storage, read> row_of_pair: array<u32>;
@group(0) @binding(3) var<storage, read_write> answers: array<f32>;
@group(0) @binding(4) var<uniform> plan: Plan;

var<workgroup> parts: array<vec4f, 64>;

// One byte of four rows of sixteen: those of the outputs 4k + lane.
fn bytes_of(at: u32, lane: u32) -> vec4u {
  return (vec4u(weights[at], weights[at + 1], weights[at + 2], weights[at + 3]) >> vec4u(8 * lane)) & vec4u(255);
}

fn halves_of(at: u32, lane: u32) -> vec4f {
  let first = at + lane / 2;
  let words = vec4u(weights[first], weights[first + 2], weights[first + 4], weights[first + 6]) >> vec4u(16 * (lane % 2));
  return vec4f(unpack2x16float(words.x).x, unpack2x16float(words.y).x, unpack2x16float(words.z).x, unpack2x16float(words.w).x);
}

// Four outputs of one input: `word` has its nibbles at `shift`, `high` what belongs above them, one nibble crossed over.
fn quants(word: u32, high: u32, shift: u32) -> vec4i {
  let low = (vec4u(word) >> (vec4u(0, 4, 8, 12) + shift)) & vec4u(15);
  if (bits == 4) { return vec4i(low); }
  let mask = select(1u, 3u, bits == 6);
  return vec4i(low | (((vec4u(high) >> (vec4u(4, 0, 12, 8) + shift)) & vec4u(mask)) << vec4u(4)));
}

struct Scales { scale: vec4i, minimum: vec4i }

fn scales_of(head: u32, sub: u32, lane: u32) -> Scales {
  if (bits == 6) {
    return Scales((vec4i(bytes_of(head + 8 + 4 * sub, lane)) << vec4u(24)) >> vec4u(24), vec4i(0));
  }
  let packed = head + 16;
  let a = bytes_of(packed + 4 * (sub % 4), lane);
  let b = bytes_of(packed + 16 + 4 * (sub % 4), lane);
  if (sub < 4) { return Scales(vec4i(a & vec4u(63)), vec4i(b & vec4u(63))); }
  let c = bytes_of(packed + 32 + 4 * (sub % 4), lane);
  return Scales(vec4i((c & vec4u(15)) | ((a >> vec4u(6)) << vec4u(4))), vec4i((c >> vec4u(4)) | ((b >> vec4u(6)) << vec4u(4))));
}

fn half_word(at: u32, index: u32) -> i32 { return i32(rows[at + index / 2] << (16 * (1 - index % 2))) >> 16; }

// Sixteen outputs of up to TILE pairs. x: a lane of the group; y: eight pairs of inputs of each block.
@compute @workgroup_size(4, 16)
fn product(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_id) at: vec3u) {
  let lane = at.x;
  let eight = at.y;
  let head_words = select(64u, 72u, bits == 6);
  let group_words = select(select(576u, 704u, bits == 5), 840u, bits == 6);
  let sub = select(eight / 2, eight, bits == 6);
  let first = plan.first + group.y * TILE;
  let count = min(TILE, plan.first + plan.count - first);
  var totals: array<vec4f, 4>;
  for (var block = 0u; block < plan.blocks; block++) {
    let head = (group.x * plan.blocks + block) * group_words;
    var low: array<vec4i, 8>;
    var up: array<vec4i, 8>;
    for (var i = 0u; i < 8; i++) {
      let pair = 8 * eight + i;
      var word = weights[head + head_words + 4 * pair + lane];
      var high = 0u;
      if (bits == 4) { word ^= 0x80008000u; }
      if (bits == 5) { high = weights[head + head_words + 512 + 4 * (pair / 4) + lane] >> (pair % 4); }
      if (bits == 6) { high = weights[head + head_words + 512 + 4 * (pair / 2) + lane] >> (2 * (pair % 2)); }
      low[i] = quants(word, high, 0);
      up[i] = quants(word, high, 16);
    }
    let scales = scales_of(head, sub, lane);
    let d = halves_of(head, lane);
    var dmin = vec4f(0);
    if (bits != 6 && eight % 2 == 0) { dmin = halves_of(head + 8, lane); }
    for (var r = 0u; r < count; r++) {
      let row = (row_of_pair[first + r] * plan.blocks + block) * ROW_WORDS;
      var sum = vec4i(0);
      for (var i = 0u; i < 8; i++) {
        let two = rows[row + 8 * eight + i];
        sum += low[i] * (i32(two << 16) >> 16) + up[i] * (i32(two) >> 16);
      }
      let scale = bitcast<f32>(rows[row + 140]);
      if (bits == 6) { sum -= vec4i(32 * half_word(row + 132, eight)); }
      totals[r] += vec4f(sum * scales.scale) * (d * scale);
      totals[r] -= vec4f(scales.minimum * half_word(row + 128, sub % 8)) * (dmin * scale);
    }
  }
  for (var r = 0u; r < count; r++) {
    parts[4 * eight + lane] = totals[r];
    workgroupBarrier();
    if (eight == 0) {
      var total = vec4f(0);
      for (var i = 0u; i < 16; i++) { total += parts[4 * i + lane]; }
      for (var k = 0u; k < 4; k++) { answers[(first + r) * plan.outputs + group.x * OUTPUTS + 4 * k + lane] = total[k]; }
    }
    workgroupBarrier();
  }
}

@group(0) @binding(5) var<storage, read> gates: array<f32>;
@group(0) @binding(6) var<storage, read> ups: array<f32>;
@group(0) @binding(7) var<storage, read_write> prepared: array<u32>;

var<workgroup> values: array<f32, 256>;
var<workgroup> largest: array<vec2f, 64>; // magnitude, value
var<workgroup> rounded: array<i32, 256>;

// SwiGLU, then one block of a row rounded as ggml rounds it. x: block; y: pair; plan.blocks: of a row.
@compute @workgroup_size(64)
fn prepare(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_id) at: vec3u) {
  let start = (group.y * plan.blocks + group.x) * 256;
  var best = vec2f(0);
  for (var i = 4 * at.x; i < 4 * at.x + 4; i++) {
    let gate = gates[start + i];
    let value = gate / (1 + exp(-gate)) * ups[start + i];
    values[i] = value;
    if (abs(value) > best.x) { best = vec2f(abs(value), value); }
  }
  largest[at.x] = best;
  workgroupBarrier();
  best = vec2f(0);
  for (var i = 0u; i < 64; i++) { if (largest[i].x > best.x) { best = largest[i]; } }
  var inverse = 0.0;
  if (best.x > 0) { inverse = -127 / best.y; }
  for (var i = 4 * at.x; i < 4 * at.x + 4; i++) { rounded[i] = min(127, i32(round(values[i] * inverse))); }
  workgroupBarrier();
  let to = (group.y * plan.blocks + group.x) * ROW_WORDS;
  for (var word = 2 * at.x; word < 2 * at.x + 2; word++) {
    let place = 2 * word % 16; // of 16 values the even ones come first
    let input = 2 * word - place + select(2 * place - 15, 2 * place, place < 8);
    prepared[to + word] = (u32(rounded[input]) & 0xffff) | (u32(rounded[input + 2]) << 16);
  }
  if (at.x < 12) { // four words of sums of 32, eight of sums of 16
    let length = select(16u, 32u, at.x < 4);
    let begin = select(32 * (at.x - 4), 64 * at.x, at.x < 4);
    var sums = vec2i(0);
    for (var i = 0u; i < length; i++) { sums += vec2i(rounded[begin + i], rounded[begin + length + i]); }
    prepared[to + 128 + at.x] = (u32(sums.x) & 0xffff) | (u32(sums.y) << 16);
  }
  if (at.x == 12) { prepared[to + 140] = bitcast<u32>(select(0.0, 1 / inverse, best.x > 0)); }
}
