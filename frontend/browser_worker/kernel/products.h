/* Products of one weight matrix with prepared rows: out[r][o] = sum over i of weights[o][i] * rows[r][i].

   Weights are decoded for eight outputs at a time, one block of each, and every row meets them while they lie in the
   first cache; the innermost loop holds a tile of 2 outputs x 4 rows in registers. Q4_K, Q5_K and Q6_K have ways of their
   own (wide.h). Integer sums are exact, so only the order of float sums differs from ggml's. */
#ifndef PRODUCTS_H
#define PRODUCTS_H

#include "wide.h"

typedef struct { uint32_t type, n_in, n_out; const uint8_t *data; uint32_t expert_bytes; } matrix;

INLINE v128_t scaled(v128_t integers, float scale) {
    return wasm_f32x4_mul(wasm_f32x4_convert_i32x4(integers), wasm_f32x4_splat(scale));
}

/* Two outputs x R rows of one block of 256. */
#define K_TILE(R)                                                                                                      \
    APART void k_tile_##R(const k_weights *w, const k_block *const *rows, v128_t (*total)[OUTPUTS]) {                  \
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
            UNROLL for (int o = 0; o < 2; o++)                                                                         \
                total[r][o] = wasm_f32x4_add(total[r][o], scaled(sums[r][o], w[o].d * x[r]->d));                       \
    }
K_TILE(1)
K_TILE(2)
K_TILE(4)

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

static void clear_totals(workspace *space, uint32_t rows) {
    for (uint32_t r = 0; r < rows; r++)
        for (int o = 0; o < OUTPUTS; o++) space->totals.four[r][o] = wasm_f32x4_const_splat(0.0f);
}

static void store_totals(workspace *space, float *const *out, uint32_t rows, uint32_t output) {
    for (uint32_t r = 0; r < rows; r++)
        for (int o = 0; o < OUTPUTS; o++) out[r][output + o] = sum_of_lanes(space->totals.four[r][o]);
}

/* The totals of a tile; those of its next row are OUTPUTS further on. */
INLINE v128_t (*total_of(workspace *space, uint32_t row, int output))[OUTPUTS] {
    return (v128_t(*)[OUTPUTS])&space->totals.four[row][output];
}

typedef void (*k_decoder)(const uint8_t *block, k_weights *to);
typedef void (*small_decoder)(const uint8_t *block, small_weights *to);

INLINE uint32_t at_most(uint32_t value, uint32_t limit) { return value < limit ? value : limit; }

INLINE void k_product(const matrix *m, const uint8_t *data, const void *const *rows, uint32_t count, float *const *out,
                      k_decoder decode, uint32_t block_bytes, workspace *space) {
    k_weights *weights = space->weights.k;
    uint32_t blocks = m->n_in / 256;
    for (uint32_t output = 0; output < m->n_out; output += OUTPUTS) {
        clear_totals(space, count);
        for (uint32_t b = 0; b < blocks; b++) {
            const k_block *at[MAX_ROWS];
            for (uint32_t r = 0; r < count; r++) at[r] = (const k_block *)rows[r] + b;
            for (int o = 0; o < OUTPUTS; o++)
                decode(data + ((output + o) * blocks + b) * block_bytes, weights + o);
            for (int o = 0; o < OUTPUTS; o += 2) {
                uint32_t r = 0;
                for (; r + 4 <= count; r += 4) k_tile_4(weights + o, at + r, total_of(space, r, o));
                if (r + 2 <= count) k_tile_2(weights + o, at + r, total_of(space, r, o)), r += 2;
                if (r < count) k_tile_1(weights + o, at + r, total_of(space, r, o));
            }
        }
        store_totals(space, out, count, output);
    }
}

INLINE void small_product(const matrix *m, const uint8_t *data, const void *const *rows, uint32_t count,
                          float *const *out, small_decoder decode, uint32_t block_bytes, workspace *space) {
    small_weights (*weights)[RUN] = space->weights.small;
    uint32_t blocks = m->n_in / 32;
    for (uint32_t output = 0; output < m->n_out; output += OUTPUTS) {
        clear_totals(space, count);
        for (uint32_t start = 0; start < blocks; start += RUN) {
            const small_block *at[MAX_ROWS];
            uint32_t run = at_most(RUN, blocks - start), r = 0;
            for (; r < count; r++) at[r] = (const small_block *)rows[r] + start;
            for (uint32_t o = 0; o < OUTPUTS; o++)
                for (uint32_t b = 0; b < run; b++)
                    decode(data + ((output + o) * blocks + start + b) * block_bytes, &weights[o][b]);
            for (int o = 0; o < OUTPUTS; o += 2) {
                for (r = 0; r + 2 <= count; r += 2) small_tile_2(weights[o], weights[o + 1], at + r, run, total_of(space, r, o));
                if (r < count) small_tile_1(weights[o], weights[o + 1], at + r, run, total_of(space, r, o));
            }
        }
        store_totals(space, out, count, output);
    }
}

INLINE void float_product(const matrix *m, const uint8_t *data, const void *const *rows, uint32_t count,
                          float *const *out, const uint32_t type, uint32_t value_bytes, workspace *space) {
    float (*weights)[FLOATS] = space->weights.floats;
    v128_t (*totals)[OUTPUTS] = space->totals.four;
    for (uint32_t output = 0; output < m->n_out; output += OUTPUTS) {
        clear_totals(space, count);
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
        store_totals(space, out, count, output);
    }
}

#define PRODUCT(NAME, CALL)                                                                                            \
    APART void NAME(const matrix *m, const uint8_t *data, const void *const *rows, uint32_t count, float *const *out,  \
                    workspace *space) {                                                                                \
        CALL;                                                                                                          \
    }
PRODUCT(q4_k_product, wide_product(Q4_K, one_row_of_4, data, m->n_in, m->n_out, rows, count, out, space))
PRODUCT(q5_k_product, wide_product(Q5_K, one_row_of_5, data, m->n_in, m->n_out, rows, count, out, space))
PRODUCT(q6_k_product, wide_product(Q6_K, one_row_of_6, data, m->n_in, m->n_out, rows, count, out, space))
PRODUCT(iq4_xs_product, k_product(m, data, rows, count, out, decode_iq4_xs, 136, space))
PRODUCT(q4_0_product, small_product(m, data, rows, count, out, decode_q4_0, 18, space))
PRODUCT(q8_0_product, small_product(m, data, rows, count, out, decode_q8_0, 34, space))
PRODUCT(iq4_nl_product, small_product(m, data, rows, count, out, decode_iq4_nl, 18, space))
PRODUCT(mxfp4_product, small_product(m, data, rows, count, out, decode_mxfp4, 17, space))
PRODUCT(f16_product, float_product(m, data, rows, count, out, F16, 2, space))
PRODUCT(bf16_product, float_product(m, data, rows, count, out, BF16, 2, space))
PRODUCT(f32_product, float_product(m, data, rows, count, out, F32, 4, space))

/* rows: count (1 to MAX_ROWS) rows prepared for the matrix's type; out: as many rows of n_out floats. */
static void product(const matrix *m, const uint8_t *data, const void *const *rows, uint32_t count, float *const *out,
                    workspace *space) {
    switch (m->type) {
    case Q4_K: q4_k_product(m, data, rows, count, out, space); break;
    case Q5_K: q5_k_product(m, data, rows, count, out, space); break;
    case Q6_K: q6_k_product(m, data, rows, count, out, space); break;
    case IQ4_XS: iq4_xs_product(m, data, rows, count, out, space); break;
    case Q4_0: q4_0_product(m, data, rows, count, out, space); break;
    case Q8_0: q8_0_product(m, data, rows, count, out, space); break;
    case IQ4_NL: iq4_nl_product(m, data, rows, count, out, space); break;
    case MXFP4: mxfp4_product(m, data, rows, count, out, space); break;
    case F16: f16_product(m, data, rows, count, out, space); break;
    case BF16: bf16_product(m, data, rows, count, out, space); break;
    case F32: f32_product(m, data, rows, count, out, space); break;
    }
}

#endif
