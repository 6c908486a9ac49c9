/* SHA-256 (FIPS 180-4): browsers offer crypto.subtle at secure addresses only. */
#include <stdint.h>

#define EXPORT(name) __attribute__((export_name(#name), visibility("default"))) name

typedef struct { uint32_t h[8]; uint32_t filled; uint64_t bytes; uint8_t block[64]; } sha256_state;

static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
    0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
    0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
    0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t turned(uint32_t x, int by) { return x >> by | x << (32 - by); }

static void add_block(sha256_state *state, const uint8_t *at) {
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++, at += 4)
        w[i] = (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] + (turned(a, 7) ^ turned(a, 18) ^ a >> 3) + (turned(b, 17) ^ turned(b, 19) ^ b >> 10);
    }
    for (int i = 0; i < 8; i++) v[i] = state->h[i];
    for (int i = 0; i < 64; i++) {
        uint32_t one = v[7] + (turned(v[4], 6) ^ turned(v[4], 11) ^ turned(v[4], 25)) + ((v[4] & v[5]) ^ (~v[4] & v[6])) + K[i] + w[i];
        uint32_t two = (turned(v[0], 2) ^ turned(v[0], 13) ^ turned(v[0], 22)) + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        v[7] = v[6], v[6] = v[5], v[5] = v[4], v[4] = v[3] + one;
        v[3] = v[2], v[2] = v[1], v[1] = v[0], v[0] = one + two;
    }
    for (int i = 0; i < 8; i++) state->h[i] += v[i];
}

uint32_t EXPORT(sha256_state_bytes)(void) { return sizeof(sha256_state); }

void EXPORT(sha256_begin)(sha256_state *state) {
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    for (int i = 0; i < 8; i++) state->h[i] = start[i];
    state->filled = 0, state->bytes = 0;
}

void EXPORT(sha256_add)(sha256_state *state, const uint8_t *data, uint32_t size) {
    state->bytes += size;
    while (size) {
        if (!state->filled && size >= 64) {
            add_block(state, data);
            data += 64, size -= 64;
            continue;
        }
        state->block[state->filled++] = *data++, size--;
        if (state->filled == 64) add_block(state, state->block), state->filled = 0;
    }
}

/* Writes the 32 bytes of the digest; the state may not be added to any more. */
void EXPORT(sha256_end)(sha256_state *state, uint8_t *digest) {
    uint64_t bits = state->bytes * 8;
    static const uint8_t mark = 0x80, zero = 0;
    sha256_add(state, &mark, 1);
    while (state->filled != 56) sha256_add(state, &zero, 1);
    uint8_t length[8];
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)(bits >> (56 - 8 * i));
    sha256_add(state, length, 8);
    for (int i = 0; i < 32; i++) digest[i] = (uint8_t)(state->h[i / 4] >> (24 - 8 * (i % 4)));
}
