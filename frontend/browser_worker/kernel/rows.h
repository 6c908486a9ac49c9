/* Rows prepared for products: rounded as ggml rounds them, int8 widened to int16.

   Within 16 values the eight even ones come first, then the eight odd ones: weights are split the same way by two
   shifts of 16-bit lanes, which costs less than widening them in order.

   Source: ggml 0.25.3, quantize_row_q8_K_ref, quantize_row_q8_0 (x86). */
#ifndef ROWS_H
#define ROWS_H

#include "numbers.h"

enum rounding { AS_Q8_K, AS_Q8_0, AS_F16, AS_BF16, AS_F32 };

/* d * q; sums of 32 and of 16 values */
typedef struct { int16_t q[256]; int16_t sums[8], halves[16]; float d; float unused[3]; } k_block;
typedef struct { int16_t q[32]; float d; float unused[3]; } small_block;

#define K_WIRE_BYTES 260     /* float32 scale, 256 int8 */
#define SMALL_WIRE_BYTES 34  /* float16 scale, 32 int8 */

static uint32_t prepared_bytes(enum rounding rounding, uint32_t n) {
    if (rounding == AS_Q8_K) return n / 256 * sizeof(k_block);
    if (rounding == AS_Q8_0) return n / 32 * sizeof(small_block);
    return n * sizeof(float);
}

/* 16 int8 to 8 even and 8 odd int16. */
INLINE v128_t evens(v128_t bytes) { return wasm_i16x8_shr(wasm_i16x8_shl(bytes, 8), 8); }
INLINE v128_t odds(v128_t bytes) { return wasm_i16x8_shr(bytes, 8); }

INLINE void widen(const int8_t *from, int16_t *to, uint32_t count) {
    for (uint32_t i = 0; i < count; i += 16) {
        v128_t bytes = wasm_v128_load(from + i);
        wasm_v128_store(to + i, evens(bytes));
        wasm_v128_store(to + i + 8, odds(bytes));
    }
}

static void finish_k_block(k_block *block, const int8_t *q, float d) {
    widen(q, block->q, 256);
    for (int j = 0; j < 16; j++) {
        v128_t sum = wasm_i32x4_extadd_pairwise_i16x8(wasm_i16x8_extadd_pairwise_i8x16(wasm_v128_load(q + 16 * j)));
        block->halves[j] = (int16_t)(wasm_i32x4_extract_lane(sum, 0) + wasm_i32x4_extract_lane(sum, 1) +
                                     wasm_i32x4_extract_lane(sum, 2) + wasm_i32x4_extract_lane(sum, 3));
    }
    for (int j = 0; j < 8; j++) block->sums[j] = (int16_t)(block->halves[2 * j] + block->halves[2 * j + 1]);
    block->d = d;
}

INLINE float largest_magnitude(const float *x, uint32_t count) {
    v128_t largest = wasm_f32x4_const_splat(0.0f);
    for (uint32_t i = 0; i < count; i += 4)
        largest = wasm_f32x4_pmax(largest, wasm_f32x4_abs(wasm_v128_load(x + i)));
    largest = wasm_f32x4_pmax(largest, wasm_i32x4_shuffle(largest, largest, 2, 3, 0, 1));
    largest = wasm_f32x4_pmax(largest, wasm_i32x4_shuffle(largest, largest, 1, 0, 3, 2));
    return wasm_f32x4_extract_lane(largest, 0);
}

/* Rounded to the nearest, ties to even; at most 127. */
INLINE void quantize(const float *x, float inverse, int8_t *q, uint32_t count) {
    v128_t factor = wasm_f32x4_splat(inverse);
    for (uint32_t i = 0; i < count; i += 16) {
        v128_t part[4];
        for (int k = 0; k < 4; k++)
            part[k] = wasm_i32x4_trunc_sat_f32x4(wasm_f32x4_nearest(wasm_f32x4_mul(wasm_v128_load(x + i + 4 * k), factor)));
        v128_t low = wasm_i16x8_narrow_i32x4(part[0], part[1]), high = wasm_i16x8_narrow_i32x4(part[2], part[3]);
        wasm_v128_store(q + i, wasm_i8x16_narrow_i16x8(low, high));
    }
}

static void prepare_k_block(const float *x, k_block *block) {
    int8_t q[256];
    float largest = largest_magnitude(x, 256);
    if (!(largest > 0)) { /* zeros, or nothing but NaN */
        for (int i = 0; i < 256; i++) q[i] = 0;
        finish_k_block(block, q, 0.0f);
        return;
    }
    int first = 0; /* the first value of largest magnitude becomes -127, with whatever sign it has */
    while (first < 255 && !(x[first] == largest || x[first] == -largest)) first++;
    float inverse = -127.0f / x[first];
    quantize(x, inverse, q, 256);
    finish_k_block(block, q, 1.0f / inverse);
}

static void prepare_small_block(const float *x, small_block *block) {
    int8_t q[32];
    float largest = largest_magnitude(x, 32);
    quantize(x, largest > 0 ? 127.0f / largest : 0.0f, q, 32);
    widen(q, block->q, 32);
    block->d = float_of_half(half_of_float(largest / 127.0f));
}

/* One row of n float32 values. */
static void prepare_floats(enum rounding rounding, const float *x, uint32_t n, void *to) {
    float *values = to;
    switch (rounding) {
    case AS_Q8_K:
        for (uint32_t b = 0; b < n / 256; b++) prepare_k_block(x + 256 * b, (k_block *)to + b);
        break;
    case AS_Q8_0:
        for (uint32_t b = 0; b < n / 32; b++) prepare_small_block(x + 32 * b, (small_block *)to + b);
        break;
    case AS_F16:
        for (uint32_t i = 0; i < n; i++) values[i] = float_of_half(half_of_float(x[i]));
        break;
    case AS_BF16:
        for (uint32_t i = 0; i < n; i++) values[i] = bfloat_rounded(x[i]);
        break;
    case AS_F32:
        for (uint32_t i = 0; i < n; i++) values[i] = x[i];
        break;
    }
}

/* One q8 row as it comes over the wire. */
static void prepare_wire(enum rounding rounding, const uint8_t *wire, uint32_t n, void *to) {
    if (rounding == AS_Q8_K) {
        for (uint32_t b = 0; b < n / 256; b++, wire += K_WIRE_BYTES) {
            finish_k_block((k_block *)to + b, (const int8_t *)wire + 4, float_of_bits(load_u32(wire)));
        }
    } else {
        for (uint32_t b = 0; b < n / 32; b++, wire += SMALL_WIRE_BYTES) {
            small_block *block = (small_block *)to + b;
            widen((const int8_t *)wire + 2, block->q, 32);
            block->d = float_of_half(load_u16(wire));
        }
    }
}

#endif
