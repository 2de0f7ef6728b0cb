#version 450
/* res_mix: dst = sum of softmax(score) * source, score = <rms_norm(source, norm_weight), proj>. One
 * workgroup per row. Scores are taken four sources at a time, so that their loads overlap.
 *
 * Sources are squared as they are; where that leaves the range of f32, they are read again to find
 * their largest magnitude, and once more divided by it. dst may be a source: every score is there
 * before a thread writes, and then it writes what it has read. */
#extension GL_GOOGLE_include_directive : require
#define EB_ARGS eb_res_args
#include "common/args_res.h"
#include "common.glsl"
#include "math.glsl"
#include "rows.glsl"

/* ---- over the workgroup, four sources at a time ----------------------------------------- */

shared vec4 parts[512];

vec4 sum_or_max(vec4 a, vec4 b, bool largest) {
    return largest ? max(a, b) : a + b;
}

/* Called by all threads; all get the result. Magnitudes where the largest is asked for. */
#ifdef EB_SUBGROUP
vec4 subgroup4(vec4 v, bool largest) {
    return largest ? subgroupMax(v) : subgroupAdd(v);
}

vec4 reduce4(vec4 v, bool largest) {
    barrier();
    v = subgroup4(v, largest);
    if (subgroupElect()) parts[gl_SubgroupID] = v;
    barrier();
    v = vec4(0.0);
    for (uint i = gl_SubgroupInvocationID; i < THREADS / SUBGROUP; i += SUBGROUP) {
        v = sum_or_max(v, parts[i], largest);
    }
    return subgroup4(v, largest);
}
#else
vec4 reduce4(vec4 v, bool largest) {
    barrier();
    parts[THREAD] = v;
    barrier();
    for (uint n = THREADS / 2u; n > 0u; n /= 2u) {
        if (THREAD < n) parts[THREAD] = sum_or_max(parts[THREAD], parts[THREAD + n], largest);
        barrier();
    }
    return parts[0];
}
#endif

/* ---- scores ----------------------------------------------------------------------------- */

shared float weights[EB_MAX_SOURCES];

vec4 vector4(eb_vec_arg v, uint col) {
    return load4(v.at, col, A.n_cols, v.dtype, A.wide != 0u);
}

/* Source first + i, or the last one where there are no more. */
uvec2 source_row(uint i) {
    return row_of(A.sources[min(i, A.n_sources - 1u)], GROUP);
}

/* Of sources first .. first + 3 divided by `scale`: dot products with norm_weight * proj, and sums
 * of squares. */
void sums(uint first, vec4 scale, out vec4 dots, out vec4 squares) {
    uvec2 rows[4];
    [[unroll]] for (uint s = 0u; s < 4u; s++) rows[s] = source_row(first + s);
    dots = squares = vec4(0.0);
    for (uint c = THREAD * 4u; c < A.n_cols; c += THREADS * 4u) {
        vec4 w = vector4(A.norm_weight, c) * vector4(A.proj, c);
        [[unroll]] for (uint s = 0u; s < 4u; s++) {
            vec4 x = load4(rows[s], c, A.n_cols, F32, A.wide != 0u) / scale[s];
            dots[s] += dot(x, w);
            squares[s] += dot(x, x);
        }
    }
    dots = reduce4(dots, false);
    squares = reduce4(squares, false);
}

/* Powers of two near the largest magnitudes. */
vec4 scales(uint first) {
    vec4 largest = vec4(0.0);
    for (uint c = THREAD * 4u; c < A.n_cols; c += THREADS * 4u) {
        [[unroll]] for (uint s = 0u; s < 4u; s++) {
            vec4 x = abs(load4(source_row(first + s), c, A.n_cols, F32, A.wide != 0u));
            largest[s] = max(largest[s], max(max(x.x, x.y), max(x.z, x.w)));
        }
    }
    largest = clamp(reduce4(largest, true), 1e-36, 1e36);
    return uintBitsToFloat(floatBitsToUint(largest) & 0x7f800000u);
}

vec4 scores(uint first) {
    vec4 dots, squares, scale = vec4(1.0);
    for (uint attempt = 0u; attempt < 2u; attempt++) {
        if (attempt > 0u) scale = scales(first);
        sums(first, scale, dots, squares);
        if (all(lessThan(abs(dots), vec4(1e38))) && all(lessThan(squares, vec4(1e38))) &&
            all(greaterThan(squares, vec4(1e-20)))) {
            break;
        }
    }
    /* sqrt(mean + eps) = scale * sqrt(mean / scale^2 + eps / scale^2). Two divisions by a small scale
     * would be made one by its square, which may be 0. */
    vec4 root_eps = sqrt(A.eps) / scale;
    return dots / sqrt(squares / float(A.n_cols) + root_eps * root_eps);
}

/* ---- the row ---------------------------------------------------------------------------- */

/* In place; scores that are all -inf weigh the same. Every thread of the first ones has its own. */
void softmax() {
    float largest = weights[0], sum = 0.0, own = 0.0;
    for (uint s = 1u; s < A.n_sources; s++) largest = max(largest, weights[s]);
    for (uint s = 0u; s < A.n_sources; s++) {
        float x = weights[s], p = exp_neg(largest - x);
        if (isnan(x)) p = x;
        if (isinf(largest) && largest < 0.0 && !isnan(x)) p = 1.0;
        if (s == THREAD) own = p;
        sum += p;
    }
    barrier();
    if (THREAD < A.n_sources) weights[THREAD] = own / sum;
    barrier();
}

void main() {
    if (GROUP >= push.n_groups) return;
    uint n = A.n_sources;
    if (n > 1u) {
        for (uint first = 0u; first < n; first += 4u) {
            vec4 score = scores(first);
            if (THREAD < 4u && first + THREAD < n) weights[first + THREAD] = score[THREAD];
        }
        barrier();
        softmax();
    } else {
        if (THREAD == 0u) weights[0] = 1.0;
        barrier();
    }
    if (!absent(A.probs.at) && THREAD < n) PF32(row_of(A.probs, GROUP)).v[THREAD] = weights[THREAD];
    uvec2 to = row_of(A.dst, GROUP);
    for (uint c = THREAD * 4u; c < A.n_cols; c += THREADS * 4u) {
        vec4 sum = vec4(0.0);
        for (uint s = 0u; s < n; s++) {
            sum += weights[s] * load4(source_row(s), c, A.n_cols, F32, A.wide != 0u);
        }
        store4(to, c, A.n_cols, sum, A.wide != 0u);
    }
}
