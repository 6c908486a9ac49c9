/* Blocks of quantised weights to int16 weights and float scales.

   Blocks of 256 (K and IQ4_XS) give q * integer scale, a float scale `d`, and where the type has minima eight of them
   with a float scale `dmin`. Blocks of 32 give q and one float scale. Values come in the order of rows.h.

   Source: ggml 0.25.3, src/ggml-common.h (layouts) and src/ggml-quants.c (dequantize_row_*). */
#ifndef BLOCKS_H
#define BLOCKS_H

#include "rows.h"

/* Numbers of enum ggml_type. */
enum { F32 = 0, F16 = 1, Q4_0 = 2, Q8_0 = 8, Q4_K = 12, Q5_K = 13, Q6_K = 14, IQ4_NL = 20, IQ4_XS = 23, BF16 = 30, MXFP4 = 39 };

typedef struct { int16_t q[256]; int16_t minima[8]; float d, dmin; } k_weights;
typedef struct { int16_t q[32]; float d; } small_weights;

typedef struct { uint32_t values, bytes; enum rounding rounding; } type_facts;

/* values 0: a type that is not known here. */
static type_facts facts_of(uint32_t type) {
    switch (type) {
    case F32: return (type_facts){1, 4, AS_F32};
    case F16: return (type_facts){1, 2, AS_F16};
    case BF16: return (type_facts){1, 2, AS_BF16};
    case Q4_0: return (type_facts){32, 18, AS_Q8_0};
    case Q8_0: return (type_facts){32, 34, AS_Q8_0};
    case IQ4_NL: return (type_facts){32, 18, AS_Q8_0};
    case MXFP4: return (type_facts){32, 17, AS_Q8_0};
    case Q4_K: return (type_facts){256, 144, AS_Q8_K};
    case Q5_K: return (type_facts){256, 176, AS_Q8_K};
    case Q6_K: return (type_facts){256, 210, AS_Q8_K};
    case IQ4_XS: return (type_facts){256, 136, AS_Q8_K};
    }
    return (type_facts){0, 0, AS_F32};
}

INLINE v128_t low_nibbles(v128_t bytes) { return wasm_v128_and(bytes, wasm_i8x16_const_splat(15)); }
/* Shifts of 16-bit lanes and a mask: most processors have no shift of 8-bit lanes. */
INLINE v128_t bytes_shr(v128_t bytes, int by, int mask) { return wasm_v128_and(wasm_u16x8_shr(bytes, by), wasm_i8x16_splat((int8_t)mask)); }
INLINE v128_t bytes_shl(v128_t bytes, int by, int mask) { return wasm_v128_and(wasm_i16x8_shl(bytes, by), wasm_i8x16_splat((int8_t)mask)); }
INLINE v128_t high_nibbles(v128_t bytes) { return bytes_shr(bytes, 4, 15); }

INLINE void put_scaled(int16_t *to, v128_t bytes, v128_t scale) {
    wasm_v128_store(to, wasm_i16x8_mul(evens(bytes), scale));
    wasm_v128_store(to + 8, wasm_i16x8_mul(odds(bytes), scale));
}

INLINE void put(int16_t *to, v128_t bytes) {
    wasm_v128_store(to, evens(bytes));
    wasm_v128_store(to + 8, odds(bytes));
}

/* The packed six-bit scales and minima of Q4_K and Q5_K: eight bytes of each, as u64. */
typedef struct { uint64_t scales, minima; } packed_scales;

INLINE packed_scales unpack_scales(const uint8_t *packed) {
    uint32_t a = load_u32(packed), b = load_u32(packed + 4), c = load_u32(packed + 8);
    uint32_t scales_low = a & 0x3f3f3f3f, minima_low = b & 0x3f3f3f3f;
    uint32_t scales_high = (c & 0x0f0f0f0f) | (a >> 2 & 0x30303030);
    uint32_t minima_high = (c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030);
    return (packed_scales){scales_low | (uint64_t)scales_high << 32, minima_low | (uint64_t)minima_high << 32};
}

INLINE v128_t splat_scale(uint64_t scales, int index) { return wasm_i16x8_splat((int16_t)(scales >> 8 * index & 0xff)); }

INLINE void decode_q4_or_q5_k(const uint8_t *block, k_weights *to, const int five) {
    packed_scales packed = unpack_scales(block + 4);
    const uint8_t *high = block + 16, *q = block + (five ? 48 : 16);
    to->d = scale_of_half(load_u16(block));
    to->dmin = scale_of_half(load_u16(block + 2));
    wasm_v128_store(to->minima, wasm_u16x8_extend_low_u8x16(wasm_i64x2_splat((int64_t)packed.minima)));
    for (int j = 0; j < 4; j++) {
        v128_t first = splat_scale(packed.scales, 2 * j), second = splat_scale(packed.scales, 2 * j + 1);
        for (int half = 0; half < 32; half += 16) {
            v128_t bytes = wasm_v128_load(q + 32 * j + half), low = low_nibbles(bytes), up = high_nibbles(bytes);
            if (five) {
                v128_t bits = wasm_u16x8_shr(wasm_v128_load(high + half), 2 * j);
                low = wasm_v128_or(low, bytes_shl(bits, 4, 16));
                up = wasm_v128_or(up, bytes_shl(bits, 3, 16));
            }
            put_scaled(to->q + 64 * j + half, low, first);
            put_scaled(to->q + 64 * j + 32 + half, up, second);
        }
    }
}

static void decode_q4_k(const uint8_t *block, k_weights *to) { decode_q4_or_q5_k(block, to, 0); }
static void decode_q5_k(const uint8_t *block, k_weights *to) { decode_q4_or_q5_k(block, to, 1); }

static void decode_q6_k(const uint8_t *block, k_weights *to) {
    const uint8_t *low = block, *high = block + 128;
    const int8_t *scales = (const int8_t *)block + 192;
    v128_t offset = wasm_i8x16_const_splat(32);
    to->d = scale_of_half(load_u16(block + 208));
    for (int n = 0; n < 2; n++)
        for (int half = 0; half < 2; half++) {
            v128_t bits = wasm_v128_load(high + 32 * n + 16 * half);
            v128_t first = wasm_v128_load(low + 64 * n + 16 * half), second = wasm_v128_load(low + 64 * n + 32 + 16 * half);
            v128_t parts[4] = {
                wasm_v128_or(low_nibbles(first), bytes_shl(bits, 4, 0x30)),
                wasm_v128_or(low_nibbles(second), bytes_shl(bits, 2, 0x30)),
                wasm_v128_or(high_nibbles(first), bytes_shr(bits, 0, 0x30)),
                wasm_v128_or(high_nibbles(second), bytes_shr(bits, 2, 0x30)),
            };
            for (int k = 0; k < 4; k++)
                put_scaled(to->q + 128 * n + 32 * k + 16 * half, wasm_i8x16_sub(parts[k], offset),
                           wasm_i16x8_splat(scales[8 * n + 2 * k + half]));
        }
}

#define IQ4_VALUES wasm_i8x16_const(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
#define MXFP4_VALUES wasm_i8x16_const(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)

static void decode_iq4_xs(const uint8_t *block, k_weights *to) {
    uint32_t high = load_u16(block + 2);
    v128_t values = IQ4_VALUES;
    to->d = scale_of_half(load_u16(block));
    for (int j = 0; j < 8; j++) {
        int scale = (block[4 + j / 2] >> 4 * (j % 2) & 15) | (int)(high >> 2 * j & 3) << 4;
        v128_t bytes = wasm_v128_load(block + 8 + 16 * j), factor = wasm_i16x8_splat((int16_t)(scale - 32));
        put_scaled(to->q + 32 * j, wasm_i8x16_swizzle(values, low_nibbles(bytes)), factor);
        put_scaled(to->q + 32 * j + 16, wasm_i8x16_swizzle(values, high_nibbles(bytes)), factor);
    }
}

static void decode_q8_0(const uint8_t *block, small_weights *to) {
    to->d = scale_of_half(load_u16(block));
    put(to->q, wasm_v128_load(block + 2));
    put(to->q + 16, wasm_v128_load(block + 18));
}

static void decode_q4_0(const uint8_t *block, small_weights *to) {
    v128_t bytes = wasm_v128_load(block + 2), eight = wasm_i8x16_const_splat(8);
    to->d = scale_of_half(load_u16(block));
    put(to->q, wasm_i8x16_sub(low_nibbles(bytes), eight));
    put(to->q + 16, wasm_i8x16_sub(high_nibbles(bytes), eight));
}

INLINE void decode_table(const uint8_t *nibbles, v128_t values, small_weights *to) {
    v128_t bytes = wasm_v128_load(nibbles);
    put(to->q, wasm_i8x16_swizzle(values, low_nibbles(bytes)));
    put(to->q + 16, wasm_i8x16_swizzle(values, high_nibbles(bytes)));
}

static void decode_iq4_nl(const uint8_t *block, small_weights *to) {
    to->d = scale_of_half(load_u16(block));
    decode_table(block + 2, IQ4_VALUES, to);
}

/* The scale is 2^(e - 128): half of E8M0, because the table holds doubled values. */
static void decode_mxfp4(const uint8_t *block, small_weights *to) {
    uint32_t e = block[0];
    to->d = float_of_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23);
    decode_table(block + 1, MXFP4_VALUES, to);
}

/* `count` (a multiple of 8) float weights of one row. */
INLINE void decode_floats(uint32_t type, const uint8_t *from, float *to, uint32_t count) {
    for (uint32_t i = 0; i < count; i += 4) {
        v128_t value;
        if (type == F32) value = wasm_v128_load(from + 4 * i);
        else {
            value = wasm_u32x4_load16x4(from + 2 * i);
            value = type == F16 ? floats_of_halves(value) : wasm_i32x4_shl(value, 16);
        }
        wasm_v128_store(to + i, value);
    }
}

#endif
