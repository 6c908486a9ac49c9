/* Products of one weight matrix with prepared rows: out[r][o] = sum over i of weights[o][i] * rows[r][i].

   Weights are decoded for eight outputs at a time, one block of each, and every row meets them while they lie in the
   first cache; the innermost loop holds a tile of 2 outputs x 4 rows in registers. A single row of Q4_K, the common
   case, has a loop of its own without that detour. Integer sums are exact, so only the order of float sums differs from ggml's. */
#ifndef PRODUCTS_H
#define PRODUCTS_H

#include "blocks.h"

#define OUTPUTS 8 /* decoded at once */
#define MAX_ROWS 32

typedef struct { uint32_t type, n_in, n_out; const uint8_t *data; uint32_t expert_bytes; } matrix;

/* Sums of one group of outputs: [row][output], four partial sums each. */
static v128_t totals[MAX_ROWS][OUTPUTS];

INLINE v128_t dot(v128_t sum, v128_t a, v128_t b) { return wasm_i32x4_add(sum, wasm_i32x4_dot_i16x8(a, b)); }

INLINE v128_t scaled(v128_t integers, float scale) {
    return wasm_f32x4_mul(wasm_f32x4_convert_i32x4(integers), wasm_f32x4_splat(scale));
}

/* Two outputs x R rows of one block of 256. */
#define K_TILE(R)                                                                                                      \
    APART void k_tile_##R(const k_weights *w, const k_block *const *rows, v128_t (*total)[OUTPUTS], int minima) {      \
        const k_block *x[R];                                                                                           \
        v128_t sums[R][2];                                                                                             \
        UNROLL for (int r = 0; r < R; r++) x[r] = rows[r], sums[r][0] = sums[r][1] = wasm_i32x4_const_splat(0);        \
        for (int i = 0; i < 256; i += 16)                                                                              \
            UNROLL for (int k = 0; k < 16; k += 8) {                                                                   \
                v128_t first = wasm_v128_load(w[0].q + i + k), second = wasm_v128_load(w[1].q + i + k);                \
                UNROLL for (int r = 0; r < R; r++) {                                                                   \
                    v128_t value = wasm_v128_load(x[r]->q + i + k);                                                    \
                    sums[r][0] = dot(sums[r][0], first, value);                                                        \
                    sums[r][1] = dot(sums[r][1], second, value);                                                       \
                }                                                                                                      \
            }                                                                                                          \
        UNROLL for (int r = 0; r < R; r++)                                                                             \
            UNROLL for (int o = 0; o < 2; o++) {                                                                       \
                v128_t sum = wasm_f32x4_add(total[r][o], scaled(sums[r][o], w[o].d * x[r]->d));                        \
                if (minima) {                                                                                          \
                    v128_t below = wasm_i32x4_dot_i16x8(wasm_v128_load(w[o].minima), wasm_v128_load(x[r]->sums));      \
                    sum = wasm_f32x4_sub(sum, scaled(below, w[o].dmin * x[r]->d));                                     \
                }                                                                                                      \
                total[r][o] = sum;                                                                                     \
            }                                                                                                          \
    }
K_TILE(1)
K_TILE(2)
K_TILE(4)

#define RUN 8 /* blocks of 32 decoded at once, per output */

/* Two outputs x R rows of up to RUN blocks of 32. */
#define SMALL_TILE(R)                                                                                                  \
    APART void small_tile_##R(const small_weights *first, const small_weights *second, const small_block *const *rows, \
                              uint32_t blocks, v128_t (*total)[OUTPUTS]) {                                             \
        const small_block *x[R];                                                                                       \
        v128_t all[R][2];                                                                                              \
        UNROLL for (int r = 0; r < R; r++) x[r] = rows[r], all[r][0] = total[r][0], all[r][1] = total[r][1];           \
        for (uint32_t b = 0; b < blocks; b++, first++, second++) {                                                     \
            v128_t sums[R][2];                                                                                         \
            UNROLL for (int r = 0; r < R; r++) sums[r][0] = sums[r][1] = wasm_i32x4_const_splat(0);                    \
            UNROLL for (int i = 0; i < 32; i += 8) {                                                                   \
                v128_t one = wasm_v128_load(first->q + i), two = wasm_v128_load(second->q + i);                        \
                UNROLL for (int r = 0; r < R; r++) {                                                                   \
                    v128_t value = wasm_v128_load(x[r][b].q + i);                                                      \
                    sums[r][0] = dot(sums[r][0], one, value);                                                          \
                    sums[r][1] = dot(sums[r][1], two, value);                                                          \
                }                                                                                                      \
            }                                                                                                          \
            UNROLL for (int r = 0; r < R; r++) {                                                                       \
                all[r][0] = wasm_f32x4_add(all[r][0], scaled(sums[r][0], first->d * x[r][b].d));                       \
                all[r][1] = wasm_f32x4_add(all[r][1], scaled(sums[r][1], second->d * x[r][b].d));                      \
            }                                                                                                          \
        }                                                                                                              \
        UNROLL for (int r = 0; r < R; r++) total[r][0] = all[r][0], total[r][1] = all[r][1];                           \
    }
SMALL_TILE(1)
SMALL_TILE(2)

static void clear_totals(uint32_t rows) {
    for (uint32_t r = 0; r < rows; r++)
        for (int o = 0; o < OUTPUTS; o++) totals[r][o] = wasm_f32x4_const_splat(0.0f);
}

static void store_totals(float *const *out, uint32_t rows, uint32_t output) {
    for (uint32_t r = 0; r < rows; r++)
        for (int o = 0; o < OUTPUTS; o++) out[r][output + o] = sum_of_lanes(totals[r][o]);
}

/* The totals of a tile; those of its next row are OUTPUTS further on. */
INLINE v128_t (*total_of(uint32_t row, int output))[OUTPUTS] { return (v128_t(*)[OUTPUTS])&totals[row][output]; }

typedef void (*k_decoder)(const uint8_t *block, k_weights *to);
typedef void (*small_decoder)(const uint8_t *block, small_weights *to);

INLINE uint32_t at_most(uint32_t value, uint32_t limit) { return value < limit ? value : limit; }

INLINE void k_product(const matrix *m, const uint8_t *data, const void *const *rows, uint32_t count, float *const *out,
                      k_decoder decode, uint32_t block_bytes, const int minima) {
    static k_weights weights[OUTPUTS];
    uint32_t blocks = m->n_in / 256;
    for (uint32_t output = 0; output < m->n_out; output += OUTPUTS) {
        clear_totals(count);
        for (uint32_t b = 0; b < blocks; b++) {
            const k_block *at[MAX_ROWS];
            for (uint32_t r = 0; r < count; r++) at[r] = (const k_block *)rows[r] + b;
            for (int o = 0; o < OUTPUTS; o++)
                decode(data + ((output + o) * blocks + b) * block_bytes, weights + o);
            for (int o = 0; o < OUTPUTS; o += 2) {
                uint32_t r = 0;
                for (; r + 4 <= count; r += 4) k_tile_4(weights + o, at + r, total_of(r, o), minima);
                if (r + 2 <= count) k_tile_2(weights + o, at + r, total_of(r, o), minima), r += 2;
                if (r < count) k_tile_1(weights + o, at + r, total_of(r, o), minima);
            }
        }
        store_totals(out, count, output);
    }
}

INLINE void small_product(const matrix *m, const uint8_t *data, const void *const *rows, uint32_t count,
                          float *const *out, small_decoder decode, uint32_t block_bytes) {
    static small_weights weights[OUTPUTS][RUN];
    uint32_t blocks = m->n_in / 32;
    for (uint32_t output = 0; output < m->n_out; output += OUTPUTS) {
        clear_totals(count);
        for (uint32_t start = 0; start < blocks; start += RUN) {
            const small_block *at[MAX_ROWS];
            uint32_t run = at_most(RUN, blocks - start), r = 0;
            for (; r < count; r++) at[r] = (const small_block *)rows[r] + start;
            for (uint32_t o = 0; o < OUTPUTS; o++)
                for (uint32_t b = 0; b < run; b++)
                    decode(data + ((output + o) * blocks + start + b) * block_bytes, &weights[o][b]);
            for (int o = 0; o < OUTPUTS; o += 2) {
                for (r = 0; r + 2 <= count; r += 2) small_tile_2(weights[o], weights[o + 1], at + r, run, total_of(r, o));
                if (r < count) small_tile_1(weights[o], weights[o + 1], at + r, run, total_of(r, o));
            }
        }
        store_totals(out, count, output);
    }
}

#define FLOATS 32 /* decoded at once, per output */

INLINE void float_product(const matrix *m, const uint8_t *data, const void *const *rows, uint32_t count,
                          float *const *out, const uint32_t type, uint32_t value_bytes) {
    static float weights[OUTPUTS][FLOATS];
    for (uint32_t output = 0; output < m->n_out; output += OUTPUTS) {
        clear_totals(count);
        for (uint32_t start = 0; start < m->n_in; start += FLOATS) {
            for (int o = 0; o < OUTPUTS; o++)
                decode_floats(type, data + ((output + o) * m->n_in + start) * value_bytes, weights[o], FLOATS);
            for (uint32_t r = 0; r < count; r++)
                for (int o = 0; o < OUTPUTS; o += 4) {
                    v128_t sums[4];
                    for (int k = 0; k < 4; k++) sums[k] = totals[r][o + k];
                    for (int i = 0; i < FLOATS; i += 4) {
                        v128_t x = wasm_v128_load((const float *)rows[r] + start + i);
                        for (int k = 0; k < 4; k++)
                            sums[k] = wasm_f32x4_add(sums[k], wasm_f32x4_mul(wasm_v128_load(weights[o + k] + i), x));
                    }
                    for (int k = 0; k < 4; k++) totals[r][o + k] = sums[k];
                }
        }
        store_totals(out, count, output);
    }
}

/* --- one row of Q4_K ---------------------------------------------------------------------------------------------- */

/* 32 bytes hold 32 values in their low nibbles and the next 32 in their high ones; `x` are those 64 values of the row.
   The nibbles of 16-bit lanes are taken out where they stand: the odd low ones 256 times too large, the even high ones
   16 times; shifting the sums back is exact. */
INLINE v128_t q4_pair(const uint8_t *q, const int16_t *x, v128_t scale_low, v128_t scale_high) {
    v128_t a = wasm_v128_load(q), b = wasm_v128_load(q + 16);
    v128_t even = wasm_i16x8_const_splat(0x000f), odd = wasm_i16x8_const_splat(0x0f00), even_high = wasm_i16x8_const_splat(0x00f0);
    v128_t sum = wasm_i32x4_dot_i16x8(wasm_v128_and(a, odd), wasm_v128_load(x + 8));
    sum = wasm_i32x4_shr(dot(sum, wasm_v128_and(b, odd), wasm_v128_load(x + 24)), 8);
    sum = dot(sum, wasm_v128_and(a, even), wasm_v128_load(x));
    sum = dot(sum, wasm_v128_and(b, even), wasm_v128_load(x + 16));
    v128_t total = wasm_i32x4_mul(sum, scale_low);
    sum = wasm_i32x4_dot_i16x8(wasm_v128_and(a, even_high), wasm_v128_load(x + 32));
    sum = wasm_i32x4_shr(dot(sum, wasm_v128_and(b, even_high), wasm_v128_load(x + 48)), 4);
    sum = dot(sum, wasm_u16x8_shr(a, 12), wasm_v128_load(x + 40));
    sum = dot(sum, wasm_u16x8_shr(b, 12), wasm_v128_load(x + 56));
    return wasm_i32x4_add(total, wasm_i32x4_mul(sum, scale_high));
}

#define LANE(v, i) wasm_i32x4_shuffle(v, v, i, i, i, i)

/* Engines gather the loads of a basic block at its start: the loop over four pairs stays a loop, so that what it loads
   fits into the registers. */
APART float q4_k_one_output(const uint8_t *block, const k_block *x, uint32_t blocks) {
    v128_t total = wasm_f32x4_const_splat(0);
    static uint32_t scales[8];
    for (uint32_t b = 0; b < blocks; b++, block += 144, x++) {
        packed_scales packed = unpack_scales(block + 4);
        v128_t eight = wasm_u16x8_extend_low_u8x16(wasm_i64x2_splat((int64_t)packed.scales));
        wasm_v128_store(scales, wasm_u32x4_extend_low_u16x8(eight));
        wasm_v128_store(scales + 4, wasm_u32x4_extend_high_u16x8(eight));
        v128_t minima = wasm_u16x8_extend_low_u8x16(wasm_i64x2_splat((int64_t)packed.minima));
        v128_t below = wasm_i32x4_dot_i16x8(minima, wasm_v128_load(x->sums));
        v128_t factors = wasm_f32x4_mul(floats_of_scales(wasm_u32x4_extend_low_u16x8(wasm_v128_load32_zero(block))),
                                        wasm_f32x4_splat(x->d));
        total = wasm_f32x4_sub(total, wasm_f32x4_mul(wasm_f32x4_convert_i32x4(below), LANE(factors, 1)));
        v128_t sum = wasm_i32x4_const_splat(0);
        _Pragma("clang loop unroll(disable)")
        for (int j = 0; j < 4; j++) {
            v128_t two = wasm_v128_load64_zero(scales + 2 * j);
            sum = wasm_i32x4_add(sum, q4_pair(block + 16 + 32 * j, x->q + 64 * j, LANE(two, 0), LANE(two, 1)));
        }
        total = wasm_f32x4_add(total, wasm_f32x4_mul(wasm_f32x4_convert_i32x4(sum), LANE(factors, 0)));
    }
    return sum_of_lanes(total);
}

static void q4_k_one_row(const matrix *m, const uint8_t *data, const k_block *row, float *out) {
    uint32_t blocks = m->n_in / 256;
    for (uint32_t output = 0; output < m->n_out; output++, data += blocks * 144)
        out[output] = q4_k_one_output(data, row, blocks);
}

#define PRODUCT(NAME, CALL)                                                                                            \
    APART void NAME(const matrix *m, const uint8_t *data, const void *const *rows, uint32_t count, float *const *out) { \
        CALL;                                                                                                          \
    }
PRODUCT(q4_k_product, k_product(m, data, rows, count, out, decode_q4_k, 144, 1))
PRODUCT(q5_k_product, k_product(m, data, rows, count, out, decode_q5_k, 176, 1))
PRODUCT(q6_k_product, k_product(m, data, rows, count, out, decode_q6_k, 210, 0))
PRODUCT(iq4_xs_product, k_product(m, data, rows, count, out, decode_iq4_xs, 136, 0))
PRODUCT(q4_0_product, small_product(m, data, rows, count, out, decode_q4_0, 18))
PRODUCT(q8_0_product, small_product(m, data, rows, count, out, decode_q8_0, 34))
PRODUCT(iq4_nl_product, small_product(m, data, rows, count, out, decode_iq4_nl, 18))
PRODUCT(mxfp4_product, small_product(m, data, rows, count, out, decode_mxfp4, 17))
PRODUCT(f16_product, float_product(m, data, rows, count, out, F16, 2))
PRODUCT(bf16_product, float_product(m, data, rows, count, out, BF16, 2))
PRODUCT(f32_product, float_product(m, data, rows, count, out, F32, 4))

/* rows: count (1 to MAX_ROWS) rows prepared for the matrix's type; out: as many rows of n_out floats. */
static void product(const matrix *m, const uint8_t *data, const void *const *rows, uint32_t count, float *const *out) {
    switch (m->type) {
    case Q4_K:
        if (count == 1) q4_k_one_row(m, data, rows[0], out[0]);
        else q4_k_product(m, data, rows, count, out);
        break;
    case Q5_K: q5_k_product(m, data, rows, count, out); break;
    case Q6_K: q6_k_product(m, data, rows, count, out); break;
    case IQ4_XS: iq4_xs_product(m, data, rows, count, out); break;
    case Q4_0: q4_0_product(m, data, rows, count, out); break;
    case Q8_0: q8_0_product(m, data, rows, count, out); break;
    case IQ4_NL: iq4_nl_product(m, data, rows, count, out); break;
    case MXFP4: mxfp4_product(m, data, rows, count, out); break;
    case F16: f16_product(m, data, rows, count, out); break;
    case BF16: bf16_product(m, data, rows, count, out); break;
    case F32: f32_product(m, data, rows, count, out); break;
    }
}

#endif
