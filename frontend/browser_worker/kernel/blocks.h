/* Blocks of quantised weights to int16 weights and float scales.

   Blocks of 256 give q * integer scale and a float scale; blocks of 32 give q and a float scale. Values come in the order
   of rows.h. Q4_K, Q5_K and Q6_K: arranged.h.

   Source: ggml 0.25.3, src/ggml-common.h (layouts) and src/ggml-quants.c (dequantize_row_*). */
#ifndef BLOCKS_H
#define BLOCKS_H

#include "rows.h"

/* Numbers of enum ggml_type. */
enum { F32 = 0, F16 = 1, Q4_0 = 2, Q8_0 = 8, Q4_K = 12, Q5_K = 13, Q6_K = 14, IQ4_NL = 20, IQ4_XS = 23, BF16 = 30, MXFP4 = 39 };

typedef struct { int16_t q[256]; float d; } k_weights;
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
