/* norm.cu: rms_norm: out = x / sqrt(mean(x^2) + eps) * weight * sigmoid(gate). A block takes a row,
 * or each of its waves one. The row is divided by its largest magnitude before it is squared: the
 * square of a large f32 is not an f32. out may be x: a thread reads what it writes. */
#include "common/args_norm.h"
#include "math.cuh"
#include "memory.cuh"
#include "shapes.h"

/* One over a power of two, so that the product rounds nothing. Its square must be an f32 too. */
static EB_DEVICE float scale_for(float largest) {
    unsigned power = bits_of(fminf(fmaxf(largest, 1e-15f), 1e30f)) & 0x7f800000u;
    return float_of((254u << 23) - power);
}

/* sqrt(mean + eps) = sqrt(mean * scale^2 + eps * scale^2) / scale */
static EB_DEVICE float root_of(const eb_norm_args &a, float sum, float scale) {
    return sqrtf(sum / (float)a.n_cols + a.eps * scale * scale);
}

static EB_DEVICE float largest_of(const float *x, unsigned n, unsigned first, unsigned step) {
    float largest = 0.0f;
    for (unsigned c = first; c < n; c += step) largest = fmaxf(largest, fabsf(x[c]));
    return largest;
}

static EB_DEVICE float squares_of(const float *x, unsigned n, unsigned first, unsigned step,
                                  float scale) {
    float sum = 0.0f;
    for (unsigned c = first; c < n; c += step) {
        float v = x[c] * scale;
        sum += v * v;
    }
    return sum;
}

static EB_DEVICE void write_row(const eb_norm_args &a, unsigned row, unsigned first, unsigned step,
                                float scale, float root) {
    const float *x = row_of(a.x, row);
    const float *gate = a.gate.at != 0 ? row_of(a.gate, row) : nullptr;
    float *out = row_of(a.dst, row);
    for (unsigned c = first; c < a.n_cols; c += step) {
        float v = x[c] * scale / root;
        if (a.weight.at != 0) v *= load(a.weight.at, c, a.weight.dtype);
        if (gate != nullptr) v *= sigmoid(gate[c]);
        out[c] = v;
    }
}

EB_KERNEL(eb_norm_plain, eb_norm_args, EB_NORM_THREADS) {
    EB_SHARED(float, parts, [32]);
    const float *x = row_of(A.x, block_id());
    float scale = scale_for(block_max(largest_of(x, A.n_cols, thread_id(), n_threads()), parts));
    float sum = block_sum(squares_of(x, A.n_cols, thread_id(), n_threads(), scale), parts);
    write_row(A, block_id(), thread_id(), n_threads(), scale, root_of(A, sum, scale));
}

EB_KERNEL(eb_norm_wave_plain, eb_norm_args, EB_NORM_THREADS) {
    unsigned row = block_id() * n_waves() + wave_id();
    if (row >= A.n_rows) return;
    const float *x = row_of(A.x, row);
    float scale = scale_for(wave_max(largest_of(x, A.n_cols, lane_id(), EB_WAVE)));
    float sum = wave_sum(squares_of(x, A.n_cols, lane_id(), EB_WAVE, scale));
    write_row(A, row, lane_id(), EB_WAVE, scale, root_of(A, sum, scale));
}
