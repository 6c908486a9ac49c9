/* The expert kernel of the browser worker: rows x experts -> rows, gate, up, SwiGLU and down per pair.

   One instance of this module serves one slice, which lies in its memory. JavaScript (frontend/static/worker/kernel.js)
   places slice, request and scratch there and calls the exports; every size is checked here again, because requests come
   from strangers. Built by frontend/browser_worker/build.py. */
#include "products.h"

#define EXPORT(name) __attribute__((export_name(#name), visibility("default"))) name

enum { GATE, UP, DOWN };
enum { ROWS_F32 = 0, ROWS_Q8 = 1 };
enum { OK = 0, BAD_SHAPE = 1, BAD_TYPE = 2, BAD_ROW = 3, BAD_EXPERT = 4 };

static matrix matrices[3];
static uint32_t experts;

/* Bytes of a matrix of one expert; 0 for a type that is not known or a width that it cannot have. */
double EXPORT(matrix_bytes)(uint32_t type, uint32_t n_in, uint32_t n_out) {
    type_facts facts = facts_of(type);
    return facts.values && n_in % facts.values == 0 ? (double)(n_in / facts.values) * facts.bytes * n_out : 0;
}

/* Describes the slice. Weights: (experts, n_out, n_in) of a ggml type; where gate and up share a tensor, `up` points at
   the second half of the first expert and expert_bytes is that of both. Returns OK, BAD_TYPE or BAD_SHAPE. */
int EXPORT(describe)(uint32_t role, uint32_t type, uint32_t n_in, uint32_t n_out, uint32_t data, uint32_t expert_bytes,
                     uint32_t expert_count) {
    type_facts facts = facts_of(type);
    if (!facts.values) return BAD_TYPE;
    if (role > DOWN || !n_in || !n_out || n_in % facts.values || n_in % 32 || n_out % 32) return BAD_SHAPE;
    if (matrix_bytes(type, n_in, n_out) > expert_bytes || !expert_count) return BAD_SHAPE;
    matrices[role] = (matrix){type, n_in, n_out, (const uint8_t *)data, expert_bytes};
    experts = expert_count;
    return OK;
}

/* Bytes of scratch memory that `arrange` wants. */
uint32_t EXPORT(arrange_bytes)(uint32_t role) {
    return is_arranged(matrices[role].type) ? (uint32_t)matrix_bytes(matrices[role].type, matrices[role].n_in, WIDE) : 0;
}

/* Puts a described matrix of all experts into the order that products want (arranged.h), in place; once, before the
   first `compute`. */
void EXPORT(arrange)(uint32_t role, uint8_t *scratch) {
    const matrix *m = &matrices[role];
    for (uint32_t expert = 0; expert < experts; expert++) {
        uint8_t *data = (uint8_t *)m->data + expert * m->expert_bytes;
        if (m->type == Q4_K) arrange_rows(Q4_K, data, m->n_in, m->n_out, scratch);
        if (m->type == Q5_K) arrange_rows(Q5_K, data, m->n_in, m->n_out, scratch);
        if (m->type == Q6_K) arrange_rows(Q6_K, data, m->n_in, m->n_out, scratch);
    }
}

static enum rounding rounding_of(int role) { return facts_of(matrices[role].type).rounding; }

/* Bytes of one q8 row of this slice; 0 where only float32 rows are exact. */
uint32_t EXPORT(q8_row_bytes)(void) {
    enum rounding rounding = rounding_of(GATE);
    if (rounding != rounding_of(UP) || rounding > AS_Q8_0) return 0;
    return rounding == AS_Q8_K ? matrices[GATE].n_in / 256 * K_WIRE_BYTES : matrices[GATE].n_in / 32 * SMALL_WIRE_BYTES;
}

static uint32_t padded(uint32_t bytes) { return (bytes + 63) & ~63u; }
static uint32_t gate_row_bytes(void) { return padded(prepared_bytes(rounding_of(GATE), matrices[GATE].n_in)); }
static uint32_t up_row_bytes(void) {
    return rounding_of(UP) == rounding_of(GATE) ? 0 : padded(prepared_bytes(rounding_of(UP), matrices[UP].n_in));
}
static uint32_t down_row_bytes(void) { return padded(prepared_bytes(rounding_of(DOWN), matrices[DOWN].n_in)); }

/* Scratch memory that `compute` wants for so many rows; the sum may exceed 32 bits. */
double EXPORT(scratch_bytes)(uint32_t rows) {
    double inner = 2.0 * padded(matrices[DOWN].n_in * 4) + down_row_bytes();
    return (double)rows * (gate_row_bytes() + up_row_bytes()) + MAX_ROWS * inner + 64;
}

typedef struct { uint16_t row, expert; } pair;
typedef struct { uint8_t *gate, *up, *inner, *inner_up, *prepared; } scratch_layout;

/* Up to MAX_ROWS pairs of one expert. */
static void compute_group(const scratch_layout *scratch, const pair *pairs, const uint32_t *chosen, uint32_t count,
                          uint32_t expert, float *out) {
    const void *gate_rows[MAX_ROWS], *up_rows[MAX_ROWS], *down_rows[MAX_ROWS];
    float *gates[MAX_ROWS], *ups[MAX_ROWS], *outputs[MAX_ROWS];
    uint32_t n_ff = matrices[DOWN].n_in, n_embd = matrices[DOWN].n_out;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t row = pairs[chosen[i]].row;
        gate_rows[i] = scratch->gate + row * gate_row_bytes();
        up_rows[i] = up_row_bytes() ? scratch->up + row * up_row_bytes() : gate_rows[i];
        gates[i] = (float *)(scratch->inner + i * padded(n_ff * 4));
        ups[i] = (float *)(scratch->inner_up + i * padded(n_ff * 4));
        down_rows[i] = scratch->prepared + i * down_row_bytes();
        outputs[i] = out + (uint32_t)chosen[i] * n_embd;
    }
    product(&matrices[GATE], matrices[GATE].data + expert * matrices[GATE].expert_bytes, gate_rows, count, gates);
    product(&matrices[UP], matrices[UP].data + expert * matrices[UP].expert_bytes, up_rows, count, ups);
    for (uint32_t i = 0; i < count; i++) {
        swiglu(gates[i], ups[i], n_ff);
        prepare_floats(rounding_of(DOWN), gates[i], n_ff, (void *)down_rows[i]);
    }
    product(&matrices[DOWN], matrices[DOWN].data + expert * matrices[DOWN].expert_bytes, down_rows, count, outputs);
}

/* rows: `row_count` rows, float32 or q8; pairs: `pair_count` of (row u16, expert u16), experts numbered in the model;
   out: `pair_count` rows of n_embd float32. rows, scratch and out are aligned to 16 bytes. Returns OK or why not. */
int EXPORT(compute)(const uint8_t *rows, uint32_t row_dtype, uint32_t row_count, const pair *pairs, uint32_t pair_count,
                    uint32_t first_expert, float *out, uint8_t *scratch_start) {
    uint32_t n_embd = matrices[GATE].n_in;
    uint32_t row_bytes = row_dtype == ROWS_F32 ? n_embd * 4 : q8_row_bytes();
    if (row_dtype > ROWS_Q8 || !row_bytes) return BAD_SHAPE;
    for (uint32_t i = 0; i < pair_count; i++) {
        if (pairs[i].row >= row_count) return BAD_ROW;
        if (pairs[i].expert < first_expert || pairs[i].expert - first_expert >= experts) return BAD_EXPERT;
    }
    scratch_layout scratch = {.gate = (uint8_t *)padded((uint32_t)scratch_start)};
    scratch.up = scratch.gate + row_count * gate_row_bytes();
    scratch.inner = scratch.up + row_count * up_row_bytes();
    scratch.inner_up = scratch.inner + MAX_ROWS * padded(matrices[DOWN].n_in * 4);
    scratch.prepared = scratch.inner_up + MAX_ROWS * padded(matrices[DOWN].n_in * 4);
    for (uint32_t r = 0; r < row_count; r++, rows += row_bytes) {
        if (row_dtype == ROWS_Q8) prepare_wire(rounding_of(GATE), rows, n_embd, scratch.gate + r * gate_row_bytes());
        else {
            prepare_floats(rounding_of(GATE), (const float *)rows, n_embd, scratch.gate + r * gate_row_bytes());
            if (up_row_bytes()) prepare_floats(rounding_of(UP), (const float *)rows, n_embd, scratch.up + r * up_row_bytes());
        }
    }
    for (uint32_t expert = 0; expert < experts; expert++) {
        uint32_t chosen[MAX_ROWS], count = 0;
        for (uint32_t i = 0; i < pair_count; i++) {
            if (pairs[i].expert != first_expert + expert) continue;
            chosen[count++] = i;
            if (count == MAX_ROWS) compute_group(&scratch, pairs, chosen, count, expert, out), count = 0;
        }
        if (count) compute_group(&scratch, pairs, chosen, count, expert, out);
    }
    return OK;
}

/* sums: `row_count` rows of n_embd, each the values of its pairs times their weights, in the order of the pairs; as
   float32, or turned into float16 in place at the end. values: what `compute` gave. */
void EXPORT(add_up)(const float *values, const pair *pairs, const float *weights, uint32_t pair_count, uint32_t row_count,
                    float *sums, uint32_t as_half) {
    uint32_t n_embd = matrices[DOWN].n_out, all = row_count * n_embd;
    for (uint32_t i = 0; i < all; i++) sums[i] = 0;
    for (uint32_t p = 0; p < pair_count; p++) {
        float *row = sums + pairs[p].row * n_embd;
        for (uint32_t i = 0; i < n_embd; i++) row[i] += values[p * n_embd + i] * weights[p];
    }
    if (!as_half) return;
    for (uint32_t i = 0; i < all; i++) {
        uint16_t half = half_of_float(sums[i]);
        ((loose_u16 *)sums)[i].value = half;
    }
}
