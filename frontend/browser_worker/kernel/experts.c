/* The expert kernel of the browser worker: rows x experts -> rows, gate, up, SwiGLU and down per pair.

   One memory holds one slice. JavaScript (frontend/static/worker/kernel.js) places slice, request and scratch there and
   calls the exports; every size is checked here again, because requests come from strangers. `begin` takes a request,
   `work` computes it: alone, or built with THREADS once in each thread that shares the memory, each with its part of the
   outputs. Built by frontend/browser_worker/build.py. */
#include "products.h"

#define EXPORT(name) __attribute__((export_name(#name), visibility("default"))) name

enum { GATE, UP, DOWN };
enum { ROWS_F32 = 0, ROWS_Q8 = 1 };
enum { OK = 0, BAD_SHAPE = 1, BAD_TYPE = 2, BAD_ROW = 3, BAD_EXPERT = 4 };

typedef struct { uint16_t row, expert; } pair;

static matrix matrices[3];
static uint32_t experts;
/* The request: pairs of one expert after the other. All per pair but `out`, which is where the answer of a pair goes. */
static struct {
    uint32_t count;
    pair pairs[MAX_ROWS];
    const void *gate_rows[MAX_ROWS], *up_rows[MAX_ROWS], *down_rows[MAX_ROWS];
    float *gates[MAX_ROWS], *ups[MAX_ROWS], *out[MAX_ROWS];
} job;

uint32_t EXPORT(most_pairs)(void) { return MAX_ROWS; }
uint32_t EXPORT(most_threads)(void) { return MAX_THREADS; }

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
static uint32_t inner_row_bytes(void) { return padded(matrices[DOWN].n_in * 4); }

/* Scratch memory that a request wants; the sum may exceed 32 bits. */
double EXPORT(scratch_bytes)(uint32_t rows, uint32_t pairs) {
    double inner = 2.0 * inner_row_bytes() + down_row_bytes();
    return (double)rows * (gate_row_bytes() + up_row_bytes()) + pairs * inner + 64;
}

static int check(const pair *pairs, uint32_t pair_count, uint32_t row_count, uint32_t first_expert) {
    if (!pair_count || pair_count > MAX_ROWS) return BAD_SHAPE;
    for (uint32_t i = 0; i < pair_count; i++) {
        if (pairs[i].row >= row_count) return BAD_ROW;
        if (pairs[i].expert < first_expert || pairs[i].expert - first_expert >= experts) return BAD_EXPERT;
    }
    return OK;
}

/* Fills the job, pairs of one expert side by side and otherwise in their order. `gate` and `up`: prepared rows; `inner`:
   memory for what lies between the matrices. */
static void plan(const pair *pairs, uint32_t pair_count, uint32_t first_expert, const uint8_t *gate, const uint8_t *up,
                 uint8_t *inner, float *out) {
    uint32_t n_embd = matrices[GATE].n_in, to = 0;
    for (uint32_t expert = 0; expert < experts && to < pair_count; expert++)
        for (uint32_t i = 0; i < pair_count; i++) {
            if (pairs[i].expert != first_expert + expert) continue;
            job.pairs[to] = (pair){pairs[i].row, (uint16_t)expert};
            job.gate_rows[to] = gate + pairs[i].row * gate_row_bytes();
            job.up_rows[to] = up_row_bytes() ? up + pairs[i].row * up_row_bytes() : job.gate_rows[to];
            job.gates[to] = (float *)inner, inner += inner_row_bytes();
            job.ups[to] = (float *)inner, inner += inner_row_bytes();
            job.down_rows[to] = inner, inner += down_row_bytes();
            job.out[to++] = out + i * n_embd;
        }
    job.count = pair_count;
}

/* rows: `row_count` rows, float32 or q8; pairs: 1 to MAX_ROWS of (row u16, expert u16), experts numbered in the model;
   out: `pair_count` rows of n_embd float32. rows, scratch and out are aligned to 16 bytes. Returns OK or why not; `work`
   does the rest. */
int EXPORT(begin)(const uint8_t *rows, uint32_t row_dtype, uint32_t row_count, const pair *pairs, uint32_t pair_count,
                  uint32_t first_expert, float *out, uint8_t *scratch) {
    uint32_t n_embd = matrices[GATE].n_in;
    uint32_t row_bytes = row_dtype == ROWS_F32 ? n_embd * 4 : q8_row_bytes();
    if (row_dtype > ROWS_Q8 || !row_bytes) return BAD_SHAPE;
    int status = check(pairs, pair_count, row_count, first_expert);
    if (status) return status;
    uint8_t *gate = (uint8_t *)padded((uint32_t)scratch), *up = gate + row_count * gate_row_bytes();
    for (uint32_t r = 0; r < row_count; r++, rows += row_bytes) {
        if (row_dtype == ROWS_Q8) prepare_wire(rounding_of(GATE), rows, n_embd, gate + r * gate_row_bytes());
        else {
            prepare_floats(rounding_of(GATE), (const float *)rows, n_embd, gate + r * gate_row_bytes());
            if (up_row_bytes()) prepare_floats(rounding_of(UP), (const float *)rows, n_embd, up + r * up_row_bytes());
        }
    }
    plan(pairs, pair_count, first_expert, gate, up, up + row_count * up_row_bytes(), out);
    return OK;
}

/* Outputs `from` to `to` of one matrix, for `count` pairs of one expert from `first` on. */
static void part_of_product(int role, uint32_t first, uint32_t count, const void *const *rows, float *const *out, uint32_t from,
                            uint32_t to, workspace *space) {
    const matrix *m = &matrices[role];
    matrix part = *m;
    float *starts[MAX_ROWS];
    part.n_out = to - from;
    for (uint32_t i = 0; i < count; i++) starts[i] = out[first + i] + from;
    const uint8_t *data = m->data + job.pairs[first].expert * m->expert_bytes + (uint32_t)matrix_bytes(m->type, m->n_in, from);
    if (to > from) product(&part, data, rows + first, count, starts, space);
}

static uint32_t pairs_of_expert(uint32_t first) {
    uint32_t count = 1;
    while (first + count < job.count && job.pairs[first + count].expert == job.pairs[first].expert) count++;
    return count;
}

/* Where a part of `outputs` (a multiple of 32) begins. */
static uint32_t share(uint32_t outputs, uint32_t part, uint32_t parts) { return outputs / 32 * part / parts * 32; }

/* Computes part `part` of `parts` of the job; returns 1 when all parts are done, 0 when another thread is gone: then the
   job may be computed once more, alone. */
int EXPORT(work)(uint32_t part, uint32_t parts) {
    workspace *space = &workspaces[part];
    uint32_t n_ff = matrices[DOWN].n_in, from = share(n_ff, part, parts), to = share(n_ff, part + 1, parts);
    for (uint32_t i = 0, count; i < job.count; i += count) {
        count = pairs_of_expert(i);
        part_of_product(GATE, i, count, job.gate_rows, job.gates, from, to, space);
        part_of_product(UP, i, count, job.up_rows, job.ups, from, to, space);
        for (uint32_t k = i; k < i + count; k++) swiglu(job.gates[k] + from, job.ups[k] + from, to - from);
    }
    if (!meet(parts)) return 0;
    for (uint32_t i = part; i < job.count; i += parts)
        prepare_floats(rounding_of(DOWN), job.gates[i], n_ff, (void *)job.down_rows[i]);
    if (!meet(parts)) return 0;
    from = share(matrices[DOWN].n_out, part, parts), to = share(matrices[DOWN].n_out, part + 1, parts);
    for (uint32_t i = 0, count; i < job.count; i += count) {
        count = pairs_of_expert(i);
        part_of_product(DOWN, i, count, job.down_rows, job.out, from, to, space);
    }
    return meet(parts);
}

/* `count` float32 to float16, in place: the answer of compact modes. */
void EXPORT(to_half)(float *values, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        uint16_t half = half_of_float(values[i]);
        ((loose_u16 *)values)[i].value = half;
    }
}
