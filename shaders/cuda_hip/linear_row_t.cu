/* linear_row_t.cu: linear for few rows with a transposed weight, [inputs][outputs]. A thread takes
 * one unit of neighbouring outputs for up to ROWS rows, EB_ROW_T_LANES threads lie side by side,
 * and the slices of a block share the inputs. Not for MXFP4. */
#include "linear.cuh"
#include "shapes.h"

constexpr unsigned DEPTH = 4;    /* loads under way */
constexpr unsigned N_JOINED = 8; /* sums of a thread that the slices join at a time */
constexpr unsigned PITCH = EB_LINEAR_ROW_T_THREADS + 1;

/* The outputs from col on of input k. */
template <unsigned DTYPE>
static EB_DEVICE eb_words4 load_outputs(const linear_place &p, unsigned k, unsigned col,
                                        bool aligned) {
    unsigned n_outs = p.item->w.cols;
    eb_addr row = w_row_of<DTYPE>(p, k);
    if (col + unit_of<DTYPE>() > n_outs) return load_part<DTYPE>(row, col, n_outs);
    return load_unit(row, col / unit_of<DTYPE>(), aligned);
}

/* This thread's share of the inputs. */
template <unsigned DTYPE, unsigned ROWS>
static EB_DEVICE void add_inputs(const eb_linear_args &a, const linear_place &p, unsigned row0,
                                 unsigned col, float *sums) {
    unsigned n_in = p.item->w.rows, slices = n_threads() / EB_ROW_T_LANES;
    bool aligned = is_aligned<DTYPE>(a, p);
    const float *x[ROWS];
    EB_UNROLL
    for (unsigned r = 0; r < ROWS; r++)
        x[r] = x_row_of(a, p, row0 + r < a.n_rows ? row0 + r : a.n_rows - 1);
    for (unsigned k0 = thread_id() / EB_ROW_T_LANES; k0 < n_in; k0 += DEPTH * slices) {
        eb_words4 held[DEPTH];
        EB_UNROLL
        for (unsigned d = 0; d < DEPTH; d++)
            if (k0 + d * slices < n_in)
                held[d] = load_outputs<DTYPE>(p, k0 + d * slices, col, aligned);
        EB_UNROLL
        for (unsigned d = 0; d < DEPTH; d++) {
            if (k0 + d * slices >= n_in) continue;
            EB_UNROLL
            for (unsigned i = 0; i < unit_of<DTYPE>(); i++) {
                float w = quad_of<DTYPE>(held[d], i / 4).v[i % 4];
                EB_UNROLL
                for (unsigned r = 0; r < ROWS; r++)
                    sums[r * unit_of<DTYPE>() + i] += x[r][k0 + d * slices] * w;
            }
        }
    }
}

template <unsigned DTYPE, unsigned ROWS>
static EB_DEVICE void linear_rows_t(const eb_linear_args &a) {
    constexpr unsigned UNIT = unit_of<DTYPE>(), SUMS = ROWS * UNIT;
    EB_SHARED(float, parts, [N_JOINED * PITCH]);
    linear_place p = place_of(a);
    unsigned row0 = p.row_block * ROWS, out0 = p.block * EB_ROW_T_LANES * UNIT;
    unsigned col = out0 + thread_id() % EB_ROW_T_LANES * UNIT;
    float sums[SUMS]; /* [row][output] */
    EB_UNROLL
    for (unsigned v = 0; v < SUMS; v++) sums[v] = 0.0f;
    if (col < p.item->w.cols) add_inputs<DTYPE, ROWS>(a, p, row0, col, sums);
    EB_UNROLL
    for (unsigned v0 = 0; v0 < SUMS; v0 += N_JOINED) {
        sync_block();
        EB_UNROLL
        for (unsigned j = 0; j < N_JOINED; j++)
            if (v0 + j < SUMS) parts[j * PITCH + thread_id()] = sums[(v0 + j) % SUMS];
        sync_block();
        for (unsigned t = thread_id(); t < EB_ROW_T_LANES * N_JOINED; t += n_threads()) {
            unsigned v = v0 + t % N_JOINED, lane = t / N_JOINED;
            unsigned r = row0 + v / UNIT, o = out0 + lane * UNIT + v % UNIT;
            if (v >= SUMS || r >= a.n_rows || o >= p.item->w.cols) continue;
            float sum = 0.0f;
            for (unsigned i = lane; i < n_threads(); i += EB_ROW_T_LANES)
                sum += parts[t % N_JOINED * PITCH + i];
            put_sum(p, r, o, sum);
        }
    }
}

EB_KERNEL(eb_linear_row_t_f32_1_plain, eb_linear_args, EB_LINEAR_ROW_T_THREADS) {
    linear_rows_t<EB_F32, 1>(A);
}
EB_KERNEL(eb_linear_row_t_f32_4_plain, eb_linear_args, EB_LINEAR_ROW_T_THREADS) {
    linear_rows_t<EB_F32, 4>(A);
}
EB_KERNEL(eb_linear_row_t_f16_1_plain, eb_linear_args, EB_LINEAR_ROW_T_THREADS) {
    linear_rows_t<EB_F16, 1>(A);
}
EB_KERNEL(eb_linear_row_t_f16_4_plain, eb_linear_args, EB_LINEAR_ROW_T_THREADS) {
    linear_rows_t<EB_F16, 4>(A);
}
EB_KERNEL(eb_linear_row_t_bf16_1_plain, eb_linear_args, EB_LINEAR_ROW_T_THREADS) {
    linear_rows_t<EB_BF16, 1>(A);
}
EB_KERNEL(eb_linear_row_t_bf16_4_plain, eb_linear_args, EB_LINEAR_ROW_T_THREADS) {
    linear_rows_t<EB_BF16, 4>(A);
}
