/* Q4_K, Q5_K and Q6_K as this kernel keeps them: sixteen outputs side by side, arranged in place when a slice is opened.

   A group is 16 outputs x 256 inputs and has the bytes of its 16 blocks. What belongs to one pair of inputs lies in one
   vector: lane l (32 bits) has one input in each half, and the four nibbles of a half are outputs l, 4 + l, 8 + l and
   12 + l. So one load of weights and two values of a row, broadcast, serve 16 outputs; lanes of sums are outputs, which
   need not be added up in the end, and scales meet whole vectors.

     Q4_K  d[16], dmin[16] (half floats), packed scales and minima [12][16], q[128][16]; the highest bit of a half stands
           inverted, so that its highest nibble, read with a sign, is eight too little
     Q5_K  the same without that, then the fifth bits: high[32][16], one vector for four pairs
     Q6_K  d[16], int8 scales[16][16], q[128][16], then bits five and six: high[64][16], one vector for two pairs

   High bits of output 4k + l stand in nibble k ^ 1 of the half. Pairs count positions of rows.h. */
#ifndef ARRANGED_H
#define ARRANGED_H

#include "blocks.h"

#define WIDE 16   /* outputs of a group */
#define PAIRS 128 /* of inputs in a block */

INLINE int is_arranged(uint32_t type) { return type == Q4_K || type == Q5_K || type == Q6_K; }
/* Bytes before q[]. */
INLINE uint32_t head_bytes(const uint32_t type) { return type == Q6_K ? 288 : 256; }
/* Pairs that share a vector of high bits; high bits of a value. */
INLINE uint32_t sharers(const uint32_t type) { return type == Q5_K ? 4 : 2; }
INLINE uint32_t high_bits(const uint32_t type) { return type == Q6_K ? 2 : type == Q5_K ? 1 : 0; }

/* The input whose value stands at a position of a prepared row. */
INLINE uint32_t input_at(uint32_t position) {
    uint32_t at = position % 16;
    return position - at + (at < 8 ? 2 * at : 2 * at - 15);
}

/* One weight as it is stored: without scale, minimum and offset. */
INLINE uint32_t quant_at(const uint32_t type, const uint8_t *block, uint32_t input) {
    if (type == Q6_K) {
        uint32_t half = input / 128, part = input % 128 / 32, at = input % 32;
        uint32_t low = block[64 * half + 32 * (part & 1) + at] >> 4 * (part >> 1) & 15;
        return low | (block[128 + 32 * half + at] >> 2 * part & 3u) << 4;
    }
    const uint8_t *q = block + (type == Q5_K ? 48 : 16);
    uint32_t low = q[input / 64 * 32 + input % 32] >> (input % 64 < 32 ? 0 : 4) & 15;
    return type == Q5_K ? low | (block[16 + input % 32] >> input / 32 & 1u) << 4 : low;
}

INLINE void arrange_head(const uint32_t type, const uint8_t *block, uint8_t *to, uint32_t output) {
    const uint8_t *d = block + (type == Q6_K ? 208 : 0);
    to[2 * output] = d[0], to[2 * output + 1] = d[1];
    if (type == Q6_K) {
        for (uint32_t j = 0; j < 16; j++) to[32 + WIDE * j + output] = block[192 + j];
    } else {
        to[32 + 2 * output] = block[2], to[33 + 2 * output] = block[3];
        for (uint32_t j = 0; j < 12; j++) to[64 + WIDE * j + output] = block[4 + j];
    }
}

/* One group, from 16 blocks that lie `stride` bytes apart. */
INLINE void arrange_group(const uint32_t type, const uint8_t *from, uint32_t stride, uint8_t *to) {
    const uint32_t head = head_bytes(type), bits = high_bits(type), share = sharers(type);
    for (uint32_t output = 0; output < WIDE; output++) arrange_head(type, from + output * stride, to, output);
    for (uint32_t i = head; i < WIDE * facts_of(type).bytes; i++) to[i] = 0;
    for (uint32_t output = 0; output < WIDE; output++) {
        const uint8_t *block = from + output * stride;
        uint32_t k = output / 4, byte = 4 * (output % 4) + k / 2;
        for (uint32_t position = 0; position < 256; position++) {
            uint32_t value = quant_at(type, block, input_at(position)), pair = position / 2, at = byte + 2 * (position % 2);
            if (type == Q4_K && k == 3) value ^= 8;
            to[head + 16 * pair + at] |= (uint8_t)((value & 15) << 4 * (k % 2));
            if (!bits) continue;
            uint32_t shift = 4 * (1 - k % 2) + bits * (pair % share);
            to[head + 16 * (PAIRS + pair / share) + at] |= (uint8_t)((value >> 4) << shift);
        }
    }
}

/* n_out (a multiple of 16) rows of n_in weights, in place; `scratch`: as many bytes as 16 rows. */
INLINE void arrange_rows(const uint32_t type, uint8_t *data, uint32_t n_in, uint32_t n_out, uint8_t *scratch) {
    uint32_t bytes = facts_of(type).bytes, blocks = n_in / 256, stride = blocks * bytes;
    for (uint32_t output = 0; output < n_out; output += WIDE, data += WIDE * stride) {
        __builtin_memcpy(scratch, data, WIDE * stride);
        for (uint32_t b = 0; b < blocks; b++) arrange_group(type, scratch + b * bytes, stride, data + b * WIDE * bytes);
    }
}

#endif
