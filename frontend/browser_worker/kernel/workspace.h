/* What one thread needs while it computes, and how threads wait for each other. */
#ifndef WORKSPACE_H
#define WORKSPACE_H

#include "arranged.h"

#define MAX_ROWS 32 /* rows that meet a matrix at once, and pairs of one request */
#define OUTPUTS 8   /* decoded at once, of types that are not arranged */
#define RUN 8       /* blocks of 32 decoded at once, per output */
#define FLOATS 32   /* float weights decoded at once, per output */

/* Scales of one group and block. scales: [32 or 16 inputs][output]; minima: [two of 32 inputs][four outputs], int16
   pairs, or `below`: their products with the sums of a row. */
typedef struct { uint8_t scales[16][WIDE]; v128_t d[4], dmin[4], minima[4][4], below[4]; } group_scales;
/* One arranged group: [pair][four outputs], int16: quant * scale. */
typedef struct { v128_t w[PAIRS][4]; } decoded_group;

typedef struct {
    union { v128_t four[MAX_ROWS][OUTPUTS], wide[MAX_ROWS][4]; } totals; /* [row][output]: four partial sums; [row][four outputs] */
    union {
        struct { group_scales scales; decoded_group group; } wide;
        k_weights k[OUTPUTS];
        small_weights small[OUTPUTS][RUN];
        float floats[OUTPUTS][FLOATS];
    } weights;
} workspace;

#ifdef THREADS
#define MAX_THREADS 8
#define SPINS 4096 /* looks at the counter before a thread sleeps: some microseconds */
#define PATIENCE 5000000000LL /* nanoseconds asleep after which another thread must be dead: its part takes milliseconds */
#define TIMED_OUT 2 /* what the instruction answers */

static struct { uint32_t round, arrived; } meeting;

/* Returns 1 when all `parts` threads have come: everything written before is seen by all afterwards; 0 when one does not. */
static int meet(uint32_t parts) {
    if (parts == 1) return 1;
    uint32_t round = __atomic_load_n(&meeting.round, __ATOMIC_SEQ_CST);
    if (__atomic_add_fetch(&meeting.arrived, 1, __ATOMIC_SEQ_CST) == parts) {
        __atomic_store_n(&meeting.arrived, 0, __ATOMIC_SEQ_CST);
        __atomic_add_fetch(&meeting.round, 1, __ATOMIC_SEQ_CST);
        __builtin_wasm_memory_atomic_notify((int *)&meeting.round, MAX_THREADS);
        return 1;
    }
    for (int i = 0; i < SPINS; i++)
        if (__atomic_load_n(&meeting.round, __ATOMIC_SEQ_CST) != round) return 1;
    while (__atomic_load_n(&meeting.round, __ATOMIC_SEQ_CST) == round)
        if (__builtin_wasm_memory_atomic_wait32((int *)&meeting.round, (int)round, PATIENCE) == TIMED_OUT)
            return __atomic_load_n(&meeting.round, __ATOMIC_SEQ_CST) != round;
    return 1;
}
#else
#define MAX_THREADS 1
static int meet(uint32_t parts) { return (void)parts, 1; }
#endif

static workspace workspaces[MAX_THREADS];

#endif
