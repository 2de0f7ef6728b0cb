/* op_kda.c: kda_conv; KDA's chunked form, kda_prep and kda_recur; kda_step, token by token. */
#include <inttypes.h>

#include "backends/cuda_hip/cuda_hip.h"
#include "shaders/common/args_kda.h"
#include "shaders/cuda_hip/shapes.h"

static int32_t check_dim(ebro_stream *s, const char *op, uint32_t dim, ebro_error *err) {
    if (dim <= EB_KDA_MAX_DIM) return EBRO_OK;
    return gpu_stream_device(s)->host->fail(
        err, EBRO_UNSUPPORTED, GPU_BACKEND ": %s: head_dim is %" PRIu32 ", the most is %d", op, dim,
        EB_KDA_MAX_DIM);
}

/* ---- convolution ------------------------------------------------------------------------ */

/* The windows that the rows leave, behind everything that reads them. */
static int32_t windows(ebro_stream *s, const ebro_kda_conv_args *a, uint32_t channel_groups,
                       ebro_error *err) {
    struct eb_kda_windows_args args = {.rows = eb_arg_rows(&a->rows),
                                       .state = eb_arg_states(&a->state),
                                       .n_channels = a->n_channels,
                                       .channel_groups = channel_groups};
    for (int i = 0; i < 3; i++) args.x[i] = eb_arg_mat(&a->x[i]);
    const struct gpu_launch l = {.kernel = GPU_kda_windows,
                                 .threads = EB_KDA_CONV_THREADS,
                                 .groups = 3ull * channel_groups * a->rows.n_seqs,
                                 .args = &args};
    return gpu_launch(s, &l, err);
}

int32_t gpu_kda_conv(ebro_stream *s, const ebro_kda_conv_args *a, ebro_error *err) {
    struct eb_kda_conv_args args = {
        .rows = eb_arg_rows(&a->rows),
        .state = eb_arg_states(&a->state),
        .n_channels = a->n_channels,
        .channel_groups = (uint32_t)gpu_div_up(a->n_channels, 4 * EB_KDA_CONV_THREADS),
        .row_groups = (uint32_t)gpu_div_up(a->rows.n_rows, EB_KDA_CONV_BLOCK_ROWS)};
    for (int i = 0; i < 3; i++) {
        args.x[i] = eb_arg_mat(&a->x[i]);
        args.dst[i] = eb_arg_mat(&a->out[i]);
        args.weight[i] = eb_arg_vec(&a->weight[i]);
    }
    const struct gpu_launch l = {.kernel = GPU_kda_conv,
                                 .threads = EB_KDA_CONV_THREADS,
                                 .groups = 3ull * args.channel_groups * args.row_groups,
                                 .args = &args};
    int32_t st = gpu_launch(s, &l, err);
    return st == EBRO_OK ? windows(s, a, args.channel_groups, err) : st;
}

/* ---- work memory ------------------------------------------------------------------------ */

enum { WORK_ALIGN = 16 };

static uint64_t sum(uint64_t a, uint64_t b) {
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t product(uint64_t a, uint64_t b) {
    return a != 0 && b > UINT64_MAX / a ? UINT64_MAX : a * b;
}

/* Offsets in bytes from the first aligned byte of `work`. UINT64_MAX: more than can be. */
struct layout {
    uint64_t masks, marks, chunks, end;
    uint64_t n_chunks; /* of one head */
    uint32_t n_tiles, padded, chunk_floats;
};

static struct layout lay_out(const ebro_rows *rows, uint32_t n_emit, uint32_t n_heads,
                             uint32_t dim) {
    struct layout l = {.padded = (uint32_t)gpu_div_up(dim, 32) * 32};
    uint32_t most_seqs = rows->n_seqs < rows->n_rows ? rows->n_seqs : rows->n_rows;
    l.n_tiles = rows->n_rows / EB_KDA_CHUNK + most_seqs;
    l.n_chunks = (uint64_t)l.n_tiles + n_emit;
    l.chunk_floats = 2 * EB_KDA_CHUNK * (l.padded + EB_KDA_CHUNK) + (EB_KDA_CHUNK + 1) * l.padded;
    l.masks = gpu_div_up((uint64_t)rows->n_seqs + 1, 4) * 16;
    l.marks = l.masks + gpu_div_up(l.n_tiles, 4) * 16;
    l.chunks = l.marks + gpu_div_up(n_emit > 0 ? rows->n_rows : 0, 4) * 16;
    l.end = sum(l.chunks, product(product(l.n_chunks, n_heads), l.chunk_floats * 4ull));
    return l;
}

uint64_t gpu_scratch_kda_prep(const ebro_dev *dev, const ebro_kda_prep_args *a) {
    (void)dev;
    return sum(lay_out(&a->rows, a->n_emit, a->gate.n_heads, a->gate.head_dim).end, WORK_ALIGN);
}

static struct eb_kda_work_arg work_arg(ebro_span work, const struct layout *l, uint32_t n_heads,
                                       uint32_t dim) {
    eb_addr base = (eb_arg_span(work) + WORK_ALIGN - 1) / WORK_ALIGN * WORK_ALIGN;
    return (struct eb_kda_work_arg){.tiles = base,
                                    .masks = base + l->masks,
                                    .marks = base + l->marks,
                                    .chunks = base + l->chunks,
                                    .n_heads = n_heads,
                                    .dim = dim,
                                    .padded = l->padded,
                                    .chunk_floats = l->chunk_floats,
                                    .n_tiles = l->n_tiles};
}

/* ---- preparation ------------------------------------------------------------------------ */

int32_t gpu_kda_prep(ebro_stream *s, const ebro_kda_prep_args *a, ebro_error *err) {
    uint32_t dim = a->gate.head_dim, n_heads = a->gate.n_heads;
    const struct layout l = lay_out(&a->rows, a->n_emit, n_heads, dim);
    const struct eb_kda_prep_args args = {.rows = eb_arg_rows(&a->rows),
                                          .work = work_arg(a->work, &l, n_heads, dim),
                                          .q = eb_arg_mat(&a->q),
                                          .k = eb_arg_mat(&a->k),
                                          .gate = eb_arg_gate(&a->gate),
                                          .emit_rows = eb_arg_span(a->emit_rows),
                                          .n_emit = a->n_emit};
    const struct eb_kda_plan_args plan_args = {
        .rows = args.rows, .work = args.work, .emit_rows = args.emit_rows, .n_emit = args.n_emit};
    const struct gpu_launch plan = {
        .kernel = GPU_kda_plan, .threads = EB_KDA_PLAN_THREADS, .groups = 1, .args = &plan_args};
    const struct gpu_launch prep = {.kernel = dim <= 128 ? GPU_kda_prep_128 : GPU_kda_prep,
                                    .threads = EB_KDA_PREP_THREADS,
                                    .groups = product(l.n_chunks, n_heads),
                                    .args = &args,
                                    .shared_bytes = EB_KDA_PREP_SHARED};
    int32_t st = check_dim(s, "kda_prep", dim, err);
    if (st == EBRO_OK) st = gpu_launch(s, &plan, err);
    return st == EBRO_OK ? gpu_launch(s, &prep, err) : st;
}

/* ---- recurrence ------------------------------------------------------------------------- */

/* Shared memory of a block (kda_recur.cu): S and V, U, the parts of the product; the chunk where it
 * is staged. */
static uint32_t recur_shared_bytes(uint32_t padded, bool staged) {
    uint32_t n =
        (padded + 2 * EB_KDA_CHUNK + EB_KDA_RECUR_PARTS * 2 * EB_KDA_CHUNK) * EB_KDA_RECUR_COLS;
    uint32_t chunk =
        2 * EB_KDA_CHUNK * (padded + EB_KDA_CHUNK + EB_KDA_RECUR_PAD) + (EB_KDA_CHUNK + 1) * padded;
    return (staged ? n + chunk : n) * 4;
}

int32_t gpu_kda_recur(ebro_stream *s, const ebro_kda_recur_args *a, ebro_error *err) {
    const ebro_dev *dev = gpu_stream_device(s);
    uint32_t dim = a->head_dim, n_heads = a->n_heads;
    const struct layout l = lay_out(&a->rows, a->state.n_emit, n_heads, dim);
    const struct eb_kda_recur_all_args args = {
        .rows = eb_arg_rows(&a->rows),
        .work = work_arg(a->work, &l, n_heads, dim),
        .v = eb_arg_mat(&a->v),
        .dst = eb_arg_mat(&a->out),
        .state = eb_arg_states(&a->state),
        .n_blocks = (uint32_t)gpu_div_up(dim, EB_KDA_RECUR_COLS)};
    bool staged = dim == 128 && recur_shared_bytes(128, true) <= dev->shared_bytes_most;
    const struct gpu_launch launch = {
        .kernel = staged ? GPU_kda_recur_128 : GPU_kda_recur,
        .threads = EB_KDA_RECUR_THREADS,
        .groups = product((uint64_t)a->rows.n_seqs * n_heads, args.n_blocks),
        .args = &args,
        .shared_bytes = recur_shared_bytes(l.padded, staged)};
    int32_t st = check_dim(s, "kda_recur", dim, err);
    return st == EBRO_OK ? gpu_launch(s, &launch, err) : st;
}

/* ---- step ------------------------------------------------------------------------------- */

int32_t gpu_kda_step(ebro_stream *s, const ebro_kda_step_args *a, ebro_error *err) {
    uint32_t dim = a->gate.head_dim, n_heads = a->gate.n_heads;
    struct eb_kda_step_any_args args = {.step = {.rows = eb_arg_rows(&a->rows),
                                                 .gate = eb_arg_gate(&a->gate),
                                                 .windows = eb_arg_states(&a->windows),
                                                 .state = eb_arg_states(&a->state),
                                                 .out_gate = eb_arg_mat(&a->out_gate),
                                                 .dst = eb_arg_mat(&a->out),
                                                 .norm_weight = eb_arg_vec(&a->norm_weight),
                                                 .n_heads = n_heads,
                                                 .norm_eps = a->norm_eps},
                                        .dim = dim};
    for (int i = 0; i < 3; i++) {
        args.step.x[i] = eb_arg_mat(&a->x[i]);
        args.step.weight[i] = eb_arg_vec(&a->conv_weight[i]);
    }
    bool is_bf16 = a->state.region.dtype == EBRO_BF16;
    enum gpu_kernel any = is_bf16 ? GPU_kda_step_bf16 : GPU_kda_step;
    enum gpu_kernel of_128 = is_bf16 ? GPU_kda_step_128_bf16 : GPU_kda_step_128;
    /* The struct for any head starts with the one for heads of 128. */
    const struct gpu_launch l = {.kernel = dim == 128 ? of_128 : any,
                                 .threads = EB_KDA_STEP_THREADS,
                                 .groups = (uint64_t)a->rows.n_seqs * n_heads,
                                 .args = &args};
    int32_t st = check_dim(s, "kda_step", dim, err);
    return st == EBRO_OK ? gpu_launch(s, &l, err) : st;
}
