#version 450
/* mla_merge: joins the parts of mla_decode: one workgroup for 32 quads of columns of one head of
 * one row, 32 to 256 threads. Teams of 32 take every so many-th part; all is added in one order. */
#extension GL_GOOGLE_include_directive : require
#define EB_REDUCE
#define EB_ARGS eb_mla_merge_args
#include "common/args_mla.h"
#include "common.glsl"
#include "mla.glsl"

const uint QUADS = 32u;

shared float weights[MLA_SPLITS];
shared vec4 team_sums[256];

void main() {
    if (GROUP >= push.n_groups) return;
    uint n_quads = (A.kv_lora + 3u) / 4u, n_blocks = (n_quads + QUADS - 1u) / QUADS;
    uint block = GROUP % n_blocks, head = GROUP / n_blocks % A.n_heads;
    uint index = GROUP / n_blocks / A.n_heads, row = A.first_row + index;
    if (row >= uint(PI32(A.row_offsets).v[A.n_seqs])) return;
    uint seq = mla_seq_of(A.row_offsets, A.n_seqs, row);
    uint end = min(mla_position(A.row_offsets, A.context, seq, row) + 1u, A.token_end);
    uint tokens = split_tokens(end, A.n_splits), first = A.token_begin / tokens, n = 0u;
    if (A.token_begin < end) n = (end - 1u) / tokens + 1u - first;

    uint part_quads = A.slices * n_quads + 1u;
    uint first_part = (index * A.n_splits + first) * A.n_heads + head;
    uvec2 parts = plus_mul(A.parts, first_part, part_quads * 16u);
    uint stride = A.n_heads * part_quads; /* quads from part to part */
    float top = UNSEEN, total = 0.0;
    for (uint i = THREAD; i < n; i += THREADS) {
        top = max(top, PVec4(parts).v[i * stride + part_quads - 1u].x);
    }
    top = group_max(top);
    for (uint i = THREAD; i < n; i += THREADS) {
        vec4 run = PVec4(parts).v[i * stride + part_quads - 1u];
        weights[i] = exp(run.x - top);
        total += run.y * weights[i];
    }
    total = group_sum(total);

    uint quad = block * QUADS + THREAD % QUADS, team = THREAD / QUADS, n_teams = THREADS / QUADS;
    vec4 sum = vec4(0.0);
    if (quad < n_quads) {
        for (uint i = team; i < n; i += n_teams) {
            vec4 part = vec4(0.0);
            for (uint s = 0u; s < A.slices; s++) {
                part += PVec4(parts).v[i * stride + s * n_quads + quad];
            }
            sum += weights[i] * part;
        }
    }
    team_sums[THREAD] = sum;
    barrier();
    if (team == 0u && quad < n_quads) {
        for (uint t = 1u; t < n_teams; t++) sum += team_sums[t * QUADS + THREAD];
        uvec2 to = plus(row_of(A.dst, row), head * A.kv_lora * 4u);
        bool aligned = quads_aligned(to, F32) && A.kv_lora % 4u == 0u;
        store_quad(to, quad * 4u, A.kv_lora, aligned, n > 0u ? sum / total : vec4(0.0));
    }
    if (block == 0u && THREAD == 0u && !absent(A.lse.at)) {
        PF32(row_of(A.lse, row)).v[head] = n > 0u ? top + log(total) : NO_LSE;
    }
}
