/* res.cu: attn_res_mix: dst = sum of softmax(score) * source, score = <rms_norm(source,
 * norm_weight), proj>. A block takes a row. Scores are taken four sources at a time, so that their
 * loads overlap.
 *
 * Sources are squared as they are; where that leaves the range of f32, they are read again to find
 * their largest magnitude, and once more divided by it. dst may be a source: every score is there
 * before a thread writes, and then it writes what it has read. */
#include "common/args_res.h"
#include "math.cuh"
#include "memory.cuh"
#include "shapes.h"

enum { GROUP = 4 };

struct sums {
    float dot[GROUP], square[GROUP];
};

/* Source first + i, or the last one where there are no more. */
static EB_DEVICE eb_addr source_row(const eb_res_args &a, unsigned i) {
    return (eb_addr)row_of(a.sources[i < a.n_sources ? i : a.n_sources - 1], block_id());
}

/* Of sources first .. first + 3 divided by `scale`: dot products with norm_weight * proj, and sums
 * of squares. */
static EB_DEVICE sums sums_of(const eb_res_args &a, unsigned first, const float *scale,
                              float *parts) {
    sums t = {{0.0f, 0.0f, 0.0f, 0.0f}, {0.0f, 0.0f, 0.0f, 0.0f}};
    bool wide = a.wide != 0;
    for (unsigned c = thread_id() * 4; c < a.n_cols; c += n_threads() * 4) {
        eb_vec4 w = load4(a.norm_weight.at, c, a.n_cols, a.norm_weight.dtype, wide);
        eb_vec4 p = load4(a.proj.at, c, a.n_cols, a.proj.dtype, wide);
        for (unsigned s = 0; s < GROUP; s++) {
            eb_vec4 x = load4(source_row(a, first + s), c, a.n_cols, EB_F32, wide);
            for (unsigned j = 0; j < 4; j++) {
                float v = x.v[j] / scale[s];
                t.dot[s] += v * (w.v[j] * p.v[j]);
                t.square[s] += v * v;
            }
        }
    }
    for (unsigned s = 0; s < GROUP; s++) {
        t.dot[s] = block_sum(t.dot[s], parts);
        t.square[s] = block_sum(t.square[s], parts);
    }
    return t;
}

/* Powers of two near the largest magnitudes. */
static EB_DEVICE void find_scales(const eb_res_args &a, unsigned first, float *scale,
                                  float *parts) {
    float largest[GROUP] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (unsigned c = thread_id() * 4; c < a.n_cols; c += n_threads() * 4) {
        for (unsigned s = 0; s < GROUP; s++) {
            eb_vec4 x = load4(source_row(a, first + s), c, a.n_cols, EB_F32, a.wide != 0);
            for (unsigned j = 0; j < 4; j++) largest[s] = fmaxf(largest[s], fabsf(x.v[j]));
        }
    }
    for (unsigned s = 0; s < GROUP; s++) {
        float most = fminf(fmaxf(block_max(largest[s], parts), 1e-36f), 1e36f);
        scale[s] = float_of(bits_of(most) & 0x7f800000u);
    }
}

/* Whether f32 held them; NaN counts as held: another scale would not help. */
static EB_DEVICE bool held(const sums &t) {
    for (unsigned s = 0; s < GROUP; s++) {
        if (fabsf(t.dot[s]) >= 1e38f || t.square[s] >= 1e38f || t.square[s] <= 1e-20f) return false;
    }
    return true;
}

static EB_DEVICE void scores_of(const eb_res_args &a, unsigned first, float *score, float *parts) {
    float scale[GROUP] = {1.0f, 1.0f, 1.0f, 1.0f};
    sums t = sums_of(a, first, scale, parts);
    if (!held(t)) {
        find_scales(a, first, scale, parts);
        t = sums_of(a, first, scale, parts);
    }
    /* sqrt(mean + eps) = scale * sqrt(mean / scale^2 + eps / scale^2). */
    for (unsigned s = 0; s < GROUP; s++) {
        float root_eps = sqrtf(a.eps) / scale[s];
        score[s] = t.dot[s] / sqrtf(t.square[s] / (float)a.n_cols + root_eps * root_eps);
    }
}

/* In place, by every thread for its own source; scores that are all -inf weigh the same. */
static EB_DEVICE void softmax(float *weights, unsigned n) {
    float largest = weights[0], sum = 0.0f, own = 0.0f;
    for (unsigned s = 1; s < n; s++) largest = fmaxf(largest, weights[s]);
    for (unsigned s = 0; s < n; s++) {
        float x = weights[s], p = largest == -INFINITY ? 1.0f : exp_neg(largest - x);
        if (x != x) p = x;
        if (s == thread_id()) own = p;
        sum += p;
    }
    sync_block();
    if (thread_id() < n) weights[thread_id()] = own / sum;
    sync_block();
}

EB_KERNEL(eb_res_mix_plain, eb_res_args, EB_RES_THREADS) {
    EB_SHARED(float, parts, [32]);
    EB_SHARED(float, weights, [EB_MAX_SOURCES]);
    unsigned n = A.n_sources;
    if (n > 1) {
        for (unsigned first = 0; first < n; first += GROUP) {
            float score[GROUP];
            scores_of(A, first, score, parts);
            for (unsigned s = 0; s < GROUP; s++)
                if (thread_id() == s && first + s < n) weights[first + s] = score[s];
        }
        sync_block();
        softmax(weights, n);
    } else {
        if (thread_id() == 0) weights[0] = 1.0f;
        sync_block();
    }
    if (A.probs.at != 0 && thread_id() < n)
        row_of(A.probs, block_id())[thread_id()] = weights[thread_id()];
    for (unsigned c = thread_id() * 4; c < A.n_cols; c += n_threads() * 4) {
        eb_vec4 sum = {{0.0f, 0.0f, 0.0f, 0.0f}};
        for (unsigned s = 0; s < n; s++) {
            eb_vec4 x = load4(source_row(A, s), c, A.n_cols, EB_F32, A.wide != 0);
            for (unsigned j = 0; j < 4; j++) sum.v[j] += weights[s] * x.v[j];
        }
        store4(row_of(A.dst, block_id()), c, A.n_cols, sum, A.wide != 0);
    }
}
