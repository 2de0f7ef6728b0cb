#version 450
/* kda_plan: where a sequence's tiles start and which of their rows are emitted (args_kda.h). One
 * workgroup. */
#extension GL_GOOGLE_include_directive : require
#define EB_ARGS eb_kda_plan_args
#include "common/args_kda.h"
#include "common.glsl"
#include "kda.glsl"

/* What one thread writes another one reads. */
layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer PShared { uint v[]; };

shared uint sums[256];

/* The sum over the threads up to this one. */
uint scan(uint x) {
    sums[THREAD] = x;
    barrier();
    for (uint step = 1u; step < THREADS; step *= 2u) {
        uint y = THREAD >= step ? sums[THREAD - step] : 0u;
        barrier();
        sums[THREAD] += y;
        barrier();
    }
    return sums[THREAD];
}

void main() {
    if (GROUP >= push.n_groups) return;
    uint n_seqs = A.rows.n_seqs, n_tiles = 0u;
    for (uint first = 0u; first <= n_seqs; first += THREADS) {
        uint s = first + THREAD, n = 0u;
        if (s < n_seqs) n = seq_begin(A.rows, s + 1u) - seq_begin(A.rows, s);
        n = (n + EB_KDA_CHUNK - 1u) / EB_KDA_CHUNK;
        uint end = n_tiles + scan(n);
        if (s <= n_seqs) PShared(A.work.tiles).v[s] = end - n;
        n_tiles += sums[THREADS - 1u];
        barrier();
    }
    if (A.n_emit == 0u) return;
    for (uint t = THREAD; t < n_tiles; t += THREADS) PShared(A.work.masks).v[t] = 0u;
    memoryBarrierBuffer();
    barrier();
    uint n_rows = seq_begin(A.rows, n_seqs);
    for (uint e = THREAD; e < A.n_emit; e += THREADS) {
        uint row = uint(PI32(A.emit_rows).v[e]);
        if (row >= n_rows) continue;
        uint s = seq_of_row(A.rows, row), at = row - seq_begin(A.rows, s);
        uint t = PShared(A.work.tiles).v[s] + at / EB_KDA_CHUNK;
        atomicOr(PShared(A.work.masks).v[t], 1u << at % EB_KDA_CHUNK);
        PShared(A.work.marks).v[row] = e;
    }
}
