/* Products of the arranged types (arranged.h) with prepared rows.

   One row: nibbles are multiplied where they stand. A dot product over a half's lowest 4, 8, 12 and all 16 bits gives
   sums of which each holds the one before it, so three masks and four dot products serve 16 outputs, and differences
   and shifts, once per scale, part them. Rows of five or six bits take two outputs to a half.

   Several rows: a block of a group is decoded once, with scales, and meets them two at a time.

   Both add integers exactly and then the same floats in the same order: an answer does not depend on how many rows came
   with it.

   Compiler and engine shape this code. LLVM moves a chain of sums to its end, so that what a basic block loads spills
   out of the registers: inner loops stay loops, of few steps. V8 builds a constant anew at each use: masks are loaded. */
#ifndef WIDE_H
#define WIDE_H

#include "workspace.h"

#define ROLLED _Pragma("clang loop unroll(disable)")

typedef struct { v128_t a, b, c, d; } four;

static const uint16_t bit_masks[3][8] = {
    {0x000f, 0x000f, 0x000f, 0x000f, 0x000f, 0x000f, 0x000f, 0x000f},
    {0x00ff, 0x00ff, 0x00ff, 0x00ff, 0x00ff, 0x00ff, 0x00ff, 0x00ff},
    {0x0fff, 0x0fff, 0x0fff, 0x0fff, 0x0fff, 0x0fff, 0x0fff, 0x0fff},
};
static const uint8_t nibble_masks[4][16] = {
    {0x0f, 0x0f, 0x0f, 0x0f, 0x0f, 0x0f, 0x0f, 0x0f, 0x0f, 0x0f, 0x0f, 0x0f, 0x0f, 0x0f, 0x0f, 0x0f},
    {0x10, 0x10, 0x10, 0x10, 0x10, 0x10, 0x10, 0x10, 0x10, 0x10, 0x10, 0x10, 0x10, 0x10, 0x10, 0x10},
    {0x30, 0x30, 0x30, 0x30, 0x30, 0x30, 0x30, 0x30, 0x30, 0x30, 0x30, 0x30, 0x30, 0x30, 0x30, 0x30},
    {0x3f, 0x3f, 0x3f, 0x3f, 0x3f, 0x3f, 0x3f, 0x3f, 0x3f, 0x3f, 0x3f, 0x3f, 0x3f, 0x3f, 0x3f, 0x3f},
};
static const uint32_t half_masks[2][4] = {
    {0x8fffe000, 0x8fffe000, 0x8fffe000, 0x8fffe000}, {0x77800000, 0x77800000, 0x77800000, 0x77800000} /* 2^112 */
};
/* volatile: or the compiler makes a constant of it. */
INLINE v128_t loaded(const void *mask) { return *(const volatile v128_t *)mask; }

INLINE v128_t dot(v128_t sum, v128_t a, v128_t b) { return wasm_i32x4_add(sum, wasm_i32x4_dot_i16x8(a, b)); }
INLINE v128_t none(void) { return wasm_i32x4_const_splat(0); }

/* --- scales ------------------------------------------------------------------------------------------------------- */

/* 16 half floats, finite. */
INLINE void halves_to_floats(const uint8_t *from, v128_t *to, v128_t mask, v128_t power) {
    UNROLL for (int k = 0; k < 4; k++) {
        v128_t value = wasm_i32x4_shr(wasm_i32x4_shl(wasm_u32x4_load16x4(from + 8 * k), 16), 3);
        to[k] = wasm_f32x4_mul(wasm_v128_and(value, mask), power);
    }
}

/* Minima of two of 32 inputs, as pairs. */
INLINE void pair_up(v128_t first, v128_t second, v128_t *to) {
    v128_t low = wasm_i8x16_shuffle(first, second, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    v128_t high = wasm_i8x16_shuffle(first, second, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    to[0] = wasm_u16x8_extend_low_u8x16(low), to[1] = wasm_u16x8_extend_high_u8x16(low);
    to[2] = wasm_u16x8_extend_low_u8x16(high), to[3] = wasm_u16x8_extend_high_u8x16(high);
}

/* For one row (below), or for any (minima) where x is null. */
INLINE void read_scales(const uint32_t type, const uint8_t *group, const k_block *x, group_scales *to) {
    v128_t mask = loaded(half_masks[0]), power = loaded(half_masks[1]);
    halves_to_floats(group, to->d, mask, power);
    if (type == Q6_K) {
        __builtin_memcpy(to->scales, group + 32, 256);
        return;
    }
    halves_to_floats(group + 32, to->dmin, mask, power);
    const uint8_t *packed = group + 64;
    v128_t low = loaded(nibble_masks[0]), six = loaded(nibble_masks[3]), two = loaded(nibble_masks[2]);
    v128_t below[4] = {none(), none(), none(), none()};
    ROLLED for (int j = 0; j < 4; j += 2, packed += 2 * WIDE) {
        v128_t minima[2][2];
        UNROLL for (int i = 0; i < 2; i++) {
            const uint8_t *at = packed + WIDE * i;
            v128_t a = wasm_v128_load(at), b = wasm_v128_load(at + 4 * WIDE), c = wasm_v128_load(at + 8 * WIDE);
            wasm_v128_store(to->scales[j + i], wasm_v128_and(a, six));
            v128_t upper = wasm_v128_and(wasm_u16x8_shr(a, 2), two);
            wasm_v128_store(to->scales[4 + j + i], wasm_v128_or(wasm_v128_and(c, low), upper));
            minima[0][i] = wasm_v128_and(b, six);
            upper = wasm_v128_and(wasm_u16x8_shr(b, 2), two);
            minima[1][i] = wasm_v128_or(wasm_v128_and(wasm_u16x8_shr(c, 4), low), upper);
        }
        UNROLL for (int half = 0; half < 2; half++) {
            v128_t pairs[4];
            pair_up(minima[half][0], minima[half][1], pairs);
            v128_t sums = x ? wasm_v128_load32_splat(x->sums + 4 * half + j) : none();
            UNROLL for (int k = 0; k < 4; k++) {
                if (x) below[k] = dot(below[k], pairs[k], sums);
                else to->minima[2 * half + j / 2][k] = pairs[k];
            }
        }
    }
    if (x) UNROLL for (int k = 0; k < 4; k++) to->below[k] = below[k];
}

/* sums, now complete, times scales, and less the minima, added to the totals of one row; single: `below` is of this row. */
INLINE void settle(const uint32_t type, const int single, const group_scales *scales, const k_block *x, const v128_t *sums,
                   v128_t *totals) {
    v128_t d = wasm_v128_load32_splat(&x->d);
    UNROLL for (int k = 0; k < 4; k++) {
        v128_t scaled = wasm_f32x4_mul(wasm_f32x4_convert_i32x4(sums[k]), wasm_f32x4_mul(scales->d[k], d));
        v128_t total = wasm_f32x4_add(totals[k], scaled);
        if (type != Q6_K) {
            v128_t below = single ? scales->below[k] : none();
            for (int j = 0; j < 4 && !single; j++)
                below = dot(below, scales->minima[j][k], wasm_v128_load32_splat(x->sums + 2 * j));
            total = wasm_f32x4_sub(total, wasm_f32x4_mul(wasm_f32x4_convert_i32x4(below), wasm_f32x4_mul(scales->dmin[k], d)));
        }
        totals[k] = total;
    }
}

/* --- one row ------------------------------------------------------------------------------------------------------ */

/* Adds parts * scales to the sums; scales: 16 bytes, signed in Q6_K. */
INLINE void apply(const uint32_t type, v128_t *sums, four parts, const uint8_t *scales) {
    v128_t low, high, s[4];
    if (type == Q6_K) {
        low = wasm_i16x8_load8x8(scales), high = wasm_i16x8_load8x8(scales + 8);
        s[0] = wasm_i32x4_extend_low_i16x8(low), s[1] = wasm_i32x4_extend_high_i16x8(low);
        s[2] = wasm_i32x4_extend_low_i16x8(high), s[3] = wasm_i32x4_extend_high_i16x8(high);
    } else {
        low = wasm_u16x8_load8x8(scales), high = wasm_u16x8_load8x8(scales + 8);
        s[0] = wasm_u32x4_extend_low_u16x8(low), s[1] = wasm_u32x4_extend_high_u16x8(low);
        s[2] = wasm_u32x4_extend_low_u16x8(high), s[3] = wasm_u32x4_extend_high_u16x8(high);
    }
    sums[0] = wasm_i32x4_add(sums[0], wasm_i32x4_mul(parts.a, s[0]));
    sums[1] = wasm_i32x4_add(sums[1], wasm_i32x4_mul(parts.b, s[1]));
    sums[2] = wasm_i32x4_add(sums[2], wasm_i32x4_mul(parts.c, s[2]));
    sums[3] = wasm_i32x4_add(sums[3], wasm_i32x4_mul(parts.d, s[3]));
}

/* Four bits. The highest nibble is eight too little, made good from the start. */
APART void one_row_of_4(const uint8_t *group, const k_block *x, group_scales *scales, v128_t *totals) {
    read_scales(Q4_K, group, x, scales);
    const uint8_t *q = group + head_bytes(Q4_K);
    const int16_t *values = x->q;
    v128_t first = loaded(bit_masks[0]), second = loaded(bit_masks[1]), third = loaded(bit_masks[2]);
    v128_t sums[4] = {none(), none(), none(), none()};
    ROLLED for (int j = 0; j < 8; j++) {
        v128_t a = none(), b = none(), c = none(), d = wasm_i32x4_splat(x->sums[j] * (8 << 12));
        ROLLED for (int step = 0; step < 8; step++, q += 32, values += 4)
            UNROLL for (int i = 0; i < 2; i++) {
                v128_t w = wasm_v128_load(q + 16 * i), two = wasm_v128_load32_splat(values + 2 * i);
                a = dot(a, wasm_v128_and(w, first), two);
                b = dot(b, wasm_v128_and(w, second), two);
                c = dot(c, wasm_v128_and(w, third), two);
                d = dot(d, w, two);
            }
        four parts = {a, wasm_i32x4_shr(wasm_i32x4_sub(b, a), 4), wasm_i32x4_shr(wasm_i32x4_sub(c, b), 8),
                      wasm_i32x4_shr(wasm_i32x4_sub(d, c), 12)};
        apply(Q4_K, sums, parts, scales->scales[j]);
    }
    settle(Q4_K, 1, scales, x, sums, totals);
}

/* Five or six bits: outputs k = 0 and 2 of a half in one vector, 1 and 3 in another. Weights of Q6_K are 32 too large,
   which is taken off from the start. */
INLINE void one_row_of_more(const uint32_t type, const uint8_t *group, const k_block *x, group_scales *scales, v128_t *totals) {
    read_scales(type, group, x, scales);
    const int six = type == Q6_K, bits = six ? 2 : 1;
    const uint8_t *q = group + head_bytes(type), *high = q + 16 * PAIRS;
    const int16_t *values = x->q;
    v128_t nibbles = loaded(nibble_masks[0]), uppers = loaded(nibble_masks[six ? 2 : 1]), lowest = loaded(bit_masks[1]);
    v128_t sums[4] = {none(), none(), none(), none()};
    ROLLED for (int j = 0; j < (six ? 16 : 8); j++) {
        v128_t a = six ? wasm_i32x4_splat(x->halves[j] * -32) : none(), b = six ? wasm_i32x4_splat(x->halves[j] * -(32 + (32 << 8))) : a;
        v128_t c = a, d = b;
        ROLLED for (int share = 0; share < 4; share++, high += 16) {
            v128_t even = wasm_v128_load(high), odd = wasm_i16x8_shl(even, 4);
            ROLLED for (int step = 0; step < (six ? 1 : 2); step++, q += 32, values += 4) {
                UNROLL for (int i = 0; i < 2; i++) {
                    v128_t w = wasm_v128_load(q + 16 * i), two = wasm_v128_load32_splat(values + 2 * i);
                    v128_t e = wasm_v128_or(wasm_v128_and(w, nibbles), wasm_v128_and(wasm_u16x8_shr(even, i * bits), uppers));
                    v128_t o = wasm_v128_or(wasm_v128_and(wasm_u16x8_shr(w, 4), nibbles), wasm_v128_and(wasm_u16x8_shr(odd, i * bits), uppers));
                    a = dot(a, wasm_v128_and(e, lowest), two);
                    b = dot(b, e, two);
                    c = dot(c, wasm_v128_and(o, lowest), two);
                    d = dot(d, o, two);
                }
                even = wasm_u16x8_shr(even, 2 * bits), odd = wasm_u16x8_shr(odd, 2 * bits);
            }
        }
        four parts = {a, c, wasm_i32x4_shr(wasm_i32x4_sub(b, a), 8), wasm_i32x4_shr(wasm_i32x4_sub(d, c), 8)};
        apply(type, sums, parts, scales->scales[j]);
    }
    settle(type, 1, scales, x, sums, totals);
}

APART void one_row_of_5(const uint8_t *group, const k_block *x, group_scales *scales, v128_t *totals) {
    one_row_of_more(Q5_K, group, x, scales, totals);
}
APART void one_row_of_6(const uint8_t *group, const k_block *x, group_scales *scales, v128_t *totals) {
    one_row_of_more(Q6_K, group, x, scales, totals);
}

/* --- several rows ------------------------------------------------------------------------------------------------- */

/* Four vectors of weights of one pair, by their place in a half. */
INLINE four parts_of_pair(const uint32_t type, v128_t w, v128_t even, v128_t odd) {
    v128_t lowest = loaded(bit_masks[1]), nibbles = loaded(nibble_masks[0]);
    if (type == Q4_K) w = wasm_v128_xor(w, wasm_i16x8_const_splat((int16_t)0x8000));
    v128_t e = wasm_v128_and(w, nibbles), o = wasm_v128_and(wasm_u16x8_shr(w, 4), nibbles);
    if (type != Q4_K) {
        v128_t uppers = loaded(nibble_masks[type == Q6_K ? 2 : 1]);
        e = wasm_v128_or(e, wasm_v128_and(even, uppers)), o = wasm_v128_or(o, wasm_v128_and(odd, uppers));
    }
    four parts = {wasm_v128_and(e, lowest), wasm_v128_and(o, lowest), wasm_u16x8_shr(e, 8), wasm_u16x8_shr(o, 8)};
    if (type == Q6_K) {
        v128_t offset = wasm_i16x8_const_splat(32);
        parts.a = wasm_i16x8_sub(parts.a, offset), parts.b = wasm_i16x8_sub(parts.b, offset);
        parts.c = wasm_i16x8_sub(parts.c, offset), parts.d = wasm_i16x8_sub(parts.d, offset);
    }
    return parts;
}

INLINE void decode_group(const uint32_t type, const uint8_t *group, const group_scales *scales, decoded_group *to) {
    const uint32_t share = sharers(type), bits = high_bits(type), sub = type == Q6_K ? 8 : 16; /* pairs of one scale */
    const uint8_t *q = group + head_bytes(type), *high = q + 16 * PAIRS;
    ROLLED for (uint32_t j = 0; j < PAIRS / sub; j++) {
        v128_t s = wasm_v128_load(scales->scales[j]);
        v128_t low = wasm_i8x16_shuffle(s, s, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
        v128_t up = wasm_i8x16_shuffle(s, s, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15);
        v128_t first = wasm_i16x8_extend_low_i8x16(low), second = wasm_i16x8_extend_high_i8x16(low);
        v128_t third = wasm_i16x8_extend_low_i8x16(up), fourth = wasm_i16x8_extend_high_i8x16(up);
        ROLLED for (uint32_t pair = sub * j; pair < sub * (j + 1); pair++) {
            v128_t even = none(), odd = none();
            if (bits) {
                v128_t shared = wasm_v128_load(high + 16 * (pair / share));
                even = wasm_u16x8_shr(shared, bits * (pair % share)), odd = wasm_u16x8_shr(wasm_i16x8_shl(shared, 4), bits * (pair % share));
            }
            four parts = parts_of_pair(type, wasm_v128_load(q + 16 * pair), even, odd);
            to->w[pair][0] = wasm_i16x8_mul(parts.a, first), to->w[pair][1] = wasm_i16x8_mul(parts.b, second);
            to->w[pair][2] = wasm_i16x8_mul(parts.c, third), to->w[pair][3] = wasm_i16x8_mul(parts.d, fourth);
        }
    }
}

/* 16 outputs x R rows of one block. */
#define WIDE_TILE(R)                                                                                                   \
    INLINE void wide_tile_##R(const uint32_t type, const decoded_group *group, const group_scales *scales,             \
                              const k_block *const *rows, v128_t (*totals)[4]) {                                       \
        v128_t sums[R][4];                                                                                             \
        UNROLL for (int r = 0; r < R; r++) UNROLL for (int k = 0; k < 4; k++) sums[r][k] = none();                     \
        const int16_t *x[R];                                                                                           \
        UNROLL for (int r = 0; r < R; r++) x[r] = rows[r]->q;                                                          \
        ROLLED for (uint32_t pair = 0; pair < PAIRS; pair++) {                                                         \
            v128_t two[R];                                                                                             \
            UNROLL for (int r = 0; r < R; r++) two[r] = wasm_v128_load32_splat(x[r] + 2 * pair);                       \
            UNROLL for (int k = 0; k < 4; k++)                                                                         \
                UNROLL for (int r = 0; r < R; r++) sums[r][k] = dot(sums[r][k], group->w[pair][k], two[r]);            \
        }                                                                                                              \
        UNROLL for (int r = 0; r < R; r++) settle(type, 0, scales, rows[r], sums[r], totals[r]);                       \
    }
WIDE_TILE(1)
WIDE_TILE(2)

/* --- products ----------------------------------------------------------------------------------------------------- */

typedef void (*one_row)(const uint8_t *group, const k_block *x, group_scales *scales, v128_t *totals);

INLINE void wide_product(const uint32_t type, one_row compute_one, const uint8_t *data, uint32_t n_in, uint32_t n_out,
                         const void *const *rows, uint32_t count, float *const *out, workspace *space) {
    v128_t (*totals)[4] = space->totals.wide;
    group_scales *scales = &space->weights.wide.scales;
    decoded_group *decoded = &space->weights.wide.group;
    uint32_t blocks = n_in / 256, bytes = WIDE * facts_of(type).bytes;
    for (uint32_t output = 0; output < n_out; output += WIDE) {
        for (uint32_t r = 0; r < count; r++)
            for (int k = 0; k < 4; k++) totals[r][k] = none();
        for (uint32_t b = 0; b < blocks; b++, data += bytes) {
            const k_block *at[MAX_ROWS];
            for (uint32_t r = 0; r < count; r++) at[r] = (const k_block *)rows[r] + b;
            if (count == 1) {
                compute_one(data, at[0], scales, totals[0]);
                continue;
            }
            read_scales(type, data, 0, scales);
            decode_group(type, data, scales, decoded);
            uint32_t r = 0;
            for (; r + 2 <= count; r += 2) wide_tile_2(type, decoded, scales, at + r, totals + r);
            if (r < count) wide_tile_1(type, decoded, scales, at + r, totals + r);
        }
        for (uint32_t r = 0; r < count; r++)
            for (int k = 0; k < 4; k++) wasm_v128_store(out[r] + output + 4 * k, totals[r][k]);
    }
}

#endif
