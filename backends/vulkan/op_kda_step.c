/* op_kda_step.c: the KDA chain token by token, in one launch. */
#include "backends/vulkan/kda.h"

enum { STEP_ROWS = 16 /* of the state in a thread's registers, at most; four columns each */ };

/* Threads along the columns of the state: all columns at once where the registers hold them. */
static uint32_t choose_cols4(uint32_t threads, uint32_t dim) {
    uint32_t cols4 = 1;
    while (cols4 * 4 < dim && vk_div_up(dim, threads / (cols4 * 2)) <= STEP_ROWS) cols4 *= 2;
    return cols4;
}

static bool choose_aligned(const ebro_kda_step_args *a) {
    bool aligned =
        eb_mat_is_wide(&a->gate.g_raw) && eb_mat_is_wide(&a->out_gate) && eb_mat_is_wide(&a->out);
    for (int i = 0; i < 3; i++) aligned = aligned && eb_mat_is_wide(&a->x[i]);
    return aligned;
}

static void step_accesses(struct vk_launch *l, const ebro_kda_step_args *a) {
    uint32_t n_rows = a->rows.n_rows;
    uint64_t channels = (uint64_t)a->gate.n_heads * a->gate.head_dim;
    vk_reads_rows(l, &a->rows);
    for (int i = 0; i < 3; i++) {
        vk_reads_mat(l, &a->x[i], n_rows, channels);
        vk_reads_vec(l, &a->conv_weight[i], channels * EBRO_CONV_WIDTH);
    }
    vk_kda_reads_gate(l, &a->gate, n_rows);
    vk_uses_states(l, &a->windows, a->rows.n_seqs);
    vk_uses_states(l, &a->state, a->rows.n_seqs);
    vk_reads_mat(l, &a->out_gate, n_rows, channels);
    vk_reads_vec(l, &a->norm_weight, a->gate.head_dim);
    vk_writes_mat(l, &a->out, n_rows, channels);
}

int32_t vk_kda_step(ebro_stream *s, const ebro_kda_step_args *a, ebro_error *err) {
    uint32_t dim = a->gate.head_dim, n_heads = a->gate.n_heads;
    int32_t st = vk_kda_check_dim(s, "kda_step", dim, err);
    if (st != EBRO_OK) return st;
    uint32_t threads = vk_threads(vk_stream_device(s), dim > 64 ? 256 : 128);
    uint32_t cols4 = choose_cols4(threads, dim);
    struct eb_kda_step_args args = {.rows = eb_arg_rows(&a->rows),
                                    .gate = eb_arg_gate(&a->gate),
                                    .windows = eb_arg_states(&a->windows),
                                    .state = eb_arg_states(&a->state),
                                    .out_gate = eb_arg_mat(&a->out_gate),
                                    .dst = eb_arg_mat(&a->out),
                                    .norm_weight = eb_arg_vec(&a->norm_weight),
                                    .n_heads = n_heads,
                                    .norm_eps = a->norm_eps};
    for (int i = 0; i < 3; i++) {
        args.x[i] = eb_arg_mat(&a->x[i]);
        args.weight[i] = eb_arg_vec(&a->conv_weight[i]);
    }
    struct vk_launch l = {
        .kernel = VK_kda_step,
        .threads = threads,
        .specs = {choose_aligned(a), args.state.region.dtype, cols4,
                  (uint32_t)vk_div_up(dim, threads / cols4), dim, a->rows.max_rows > 1},
        .n_specs = 6,
        .args = &args,
        .groups = (uint64_t)a->rows.n_seqs * n_heads,
        .work = (uint64_t)n_heads * dim * dim * (8ull * a->rows.n_seqs + 4ull * a->rows.n_rows)};
    step_accesses(&l, a);
    return vk_launch(s, &l, err);
}
