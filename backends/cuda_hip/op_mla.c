/* op_mla.c: mla_append and mla_decode. The expanded form is in op_mla_prefill.c. */
#include "backends/cuda_hip/cuda_hip.h"
#include "backends/rotary.h"
#include "shaders/cuda_hip/shapes.h"

/* ---- mla_append ------------------------------------------------------------------------- */

/* Pairs [first, first + n). */
static int32_t rotate(ebro_stream *s, const ebro_mla_append_args *a, uint32_t first, uint32_t n,
                      ebro_error *err) {
    struct eb_mla_rotate_args args = {.pages = eb_arg_pages(&a->pages),
                                      .kv = eb_arg_mat(&a->kv),
                                      .q = eb_arg_mat(&a->q),
                                      .row_offsets = eb_arg_span(a->rows.row_offsets),
                                      .n_seqs = a->rows.n_seqs,
                                      .n_heads = a->n_heads,
                                      .q_head_stride = a->q_head_stride,
                                      .q_rope_offset = a->q_rope_offset,
                                      .kv_lora = a->kv_lora,
                                      .first_pair = first,
                                      .n_pairs = n};
    for (uint32_t i = 0; i < n; i++)
        args.turns[i] = eb_rotary_turn(a->rotary_theta, a->rotary_dim, first + i);
    const struct gpu_launch l = {.kernel = GPU_mla_rotate,
                                 .threads = EB_MLA_ROTATE_THREADS,
                                 .groups = a->rows.n_rows,
                                 .args = &args};
    return gpu_launch(s, &l, err);
}

int32_t gpu_mla_append(ebro_stream *s, const ebro_mla_append_args *a, ebro_error *err) {
    const struct eb_mla_append_args args = {.pages = eb_arg_pages(&a->pages),
                                            .kv = eb_arg_mat(&a->kv),
                                            .norm_weight = eb_arg_vec(&a->norm_weight),
                                            .row_offsets = eb_arg_span(a->rows.row_offsets),
                                            .n_seqs = a->rows.n_seqs,
                                            .kv_lora = a->kv_lora,
                                            .rope_dim = a->rope_dim,
                                            .rotary_dim = a->rotary_dim,
                                            .eps = a->norm_eps};
    const struct gpu_launch l = {.kernel = GPU_mla_append,
                                 .threads = EB_MLA_APPEND_THREADS,
                                 .groups = a->rows.n_rows,
                                 .args = &args};
    int32_t st = gpu_launch(s, &l, err);
    for (uint32_t p = 0; st == EBRO_OK && p < a->rotary_dim / 2; p += EB_MLA_TURNS) {
        uint32_t rest = a->rotary_dim / 2 - p;
        st = rotate(s, a, p, rest < EB_MLA_TURNS ? rest : EB_MLA_TURNS, err);
    }
    return st;
}

/* ---- mla_decode ------------------------------------------------------------------------- */

/* Blocks of a call on matrix units, where it has the choice: eight for each processor of a large
 * GPU.
 */
enum { MATRIX_GROUPS = 1024, MATRIX_MIN_SPLITS = 8 };

/* Of one call, bounding its scratch. */
static const uint64_t MAX_PARTS = UINT64_C(128) << 20; /* bytes */

/* How a call is cut up. Without matrix units by the shape of a row alone, so that it gives the same
 * bytes in any company. */
struct plan {
    enum gpu_kernel kernel;
    uint32_t shared_bytes;
    uint32_t n_splits;   /* of a row, at most */
    uint64_t all_splits; /* of the call: no less than those of a call of fewer rows */
    uint64_t groups;     /* of a split */
    uint64_t part_bytes; /* of a split */
};

static bool on_matrix_units(const ebro_dev *dev, const ebro_mla_decode_args *a) {
    return (dev->kernels[GPU_mla_decode_matrix].needs & EBRO_CAP_MATRIX) != 0 &&
           dev->shared_bytes_most >= EB_MLA_DECODE_MATRIX_SHARED && a->pages.dtype == EBRO_BF16 &&
           a->kv_lora == EB_MLA_MATRIX_LORA && a->rope_dim == EB_MLA_MATRIX_ROPE;
}

/* Parts are written and read again: where rows alone are work enough, they have few. */
static struct plan plan_on_matrix(const ebro_mla_decode_args *a) {
    uint64_t n_rows = a->rows.n_rows, most = MATRIX_GROUPS / (n_rows > 0 ? n_rows : 1);
    if (most > EB_MLA_SPLITS) most = EB_MLA_SPLITS;
    if (most < MATRIX_MIN_SPLITS) most = MATRIX_MIN_SPLITS;
    uint64_t all = n_rows * EB_MLA_SPLITS, bound = n_rows * MATRIX_MIN_SPLITS;
    if (bound < MATRIX_GROUPS) bound = MATRIX_GROUPS;
    return (struct plan){.kernel = GPU_mla_decode_matrix,
                         .shared_bytes = EB_MLA_DECODE_MATRIX_SHARED,
                         .n_splits = (uint32_t)most,
                         .all_splits = all < bound ? all : bound,
                         .groups = gpu_div_up(a->n_heads, EB_MLA_MATRIX_HEADS)};
}

static struct plan plan_on_any(const ebro_mla_decode_args *a) {
    bool few = a->n_heads <= EB_MLA_DECODE_FEW_HEADS;
    uint32_t heads = few ? EB_MLA_DECODE_FEW_HEADS : EB_MLA_DECODE_HEADS;
    return (struct plan){
        .kernel = few ? GPU_mla_decode_few : GPU_mla_decode,
        .n_splits = EB_MLA_SPLITS,
        .all_splits = (uint64_t)a->rows.n_rows * EB_MLA_SPLITS,
        .groups = gpu_div_up(a->n_heads, heads) * gpu_div_up(a->kv_lora, 4 * EB_MLA_DECODE_QUADS)};
}

static struct plan plan_of(const ebro_dev *dev, const ebro_mla_decode_args *a) {
    struct plan p = on_matrix_units(dev, a) ? plan_on_matrix(a) : plan_on_any(a);
    uint64_t tiles = gpu_div_up(a->pages.max_context, EB_MLA_TOKENS);
    if (tiles < p.n_splits) p.n_splits = (uint32_t)tiles;
    if (a->rows.n_rows * tiles < p.all_splits) p.all_splits = a->rows.n_rows * tiles;
    p.part_bytes = (uint64_t)a->n_heads * (gpu_div_up(a->kv_lora, 4) + 1) * 16;
    return p;
}

/* Of the parts of a row. */
static uint64_t row_bytes(const struct plan *p) {
    return p->n_splits * p->part_bytes;
}

/* With room to align it. */
uint64_t gpu_scratch_mla_decode(const ebro_dev *dev, const ebro_mla_decode_args *a) {
    const struct plan p = plan_of(dev, a);
    uint64_t all = p.all_splits * p.part_bytes;
    uint64_t most = row_bytes(&p) > MAX_PARTS ? row_bytes(&p) : MAX_PARTS;
    return (all < most ? all : most) + 16;
}

static uint32_t rows_at_once(const ebro_mla_decode_args *a, const struct plan *p) {
    uint64_t n = row_bytes(p) > 0 ? MAX_PARTS / row_bytes(p) : a->rows.n_rows;
    if (n == 0) n = 1;
    return n < a->rows.n_rows ? (uint32_t)n : a->rows.n_rows;
}

static int32_t splits(ebro_stream *s, const ebro_mla_decode_args *a, const struct plan *p,
                      eb_addr parts, uint32_t first_row, uint32_t n_rows, ebro_error *err) {
    const struct eb_mla_decode_args args = {.pages = eb_arg_pages(&a->pages),
                                            .q = eb_arg_mat(&a->q),
                                            .parts = parts,
                                            .row_offsets = eb_arg_span(a->rows.row_offsets),
                                            .n_seqs = a->rows.n_seqs,
                                            .first_row = first_row,
                                            .n_heads = a->n_heads,
                                            .kv_lora = a->kv_lora,
                                            .rope_dim = a->rope_dim,
                                            .scale = a->scale,
                                            .token_begin = a->token_begin,
                                            .token_end = a->token_end,
                                            .n_splits = p->n_splits,
                                            .slices = 1};
    const struct gpu_launch l = {.kernel = p->kernel,
                                 .threads = EB_MLA_DECODE_THREADS, /* of each of them */
                                 .groups = n_rows * p->n_splits * p->groups,
                                 .args = &args,
                                 .shared_bytes = p->shared_bytes};
    return gpu_launch(s, &l, err);
}

static int32_t merge(ebro_stream *s, const ebro_mla_decode_args *a, const struct plan *p,
                     eb_addr parts, uint32_t first_row, uint32_t n_rows, ebro_error *err) {
    const struct eb_mla_merge_args args = {.dst = eb_arg_mat(&a->out),
                                           .lse = eb_arg_mat(&a->lse),
                                           .parts = parts,
                                           .row_offsets = eb_arg_span(a->rows.row_offsets),
                                           .context = eb_arg_span(a->pages.context),
                                           .n_seqs = a->rows.n_seqs,
                                           .first_row = first_row,
                                           .n_heads = a->n_heads,
                                           .kv_lora = a->kv_lora,
                                           .token_begin = a->token_begin,
                                           .token_end = a->token_end,
                                           .n_splits = p->n_splits,
                                           .slices = 1};
    const struct gpu_launch l = {
        .kernel = GPU_mla_merge,
        .threads = EB_MLA_MERGE_THREADS,
        .groups = (uint64_t)n_rows * a->n_heads * gpu_div_up(a->kv_lora, 4 * EB_MLA_MERGE_QUADS),
        .args = &args};
    return gpu_launch(s, &l, err);
}

int32_t gpu_mla_decode(ebro_stream *s, const ebro_mla_decode_args *a, ebro_error *err) {
    const struct plan p = plan_of(gpu_stream_device(s), a);
    uint32_t at_once = rows_at_once(a, &p);
    eb_addr parts = (eb_arg_span(a->scratch) + 15) / 16 * 16;
    int32_t st = EBRO_OK;
    for (uint32_t row = 0; st == EBRO_OK && row < a->rows.n_rows; row += at_once) {
        uint32_t rest = a->rows.n_rows - row, n = rest < at_once ? rest : at_once;
        st = splits(s, a, &p, parts, row, n, err);
        if (st == EBRO_OK) st = merge(s, a, &p, parts, row, n, err);
    }
    return st;
}
