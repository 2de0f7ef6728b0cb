/* op_mla.c: mla_append and mla_decode. The expanded form is in op_mla_prefill.c. */
#include "backends/rotary.h"
#include "backends/vulkan/matrix.h"
#include "shaders/common/args_mla.h"

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
    struct vk_launch l = {.kernel = VK_mla_rotate,
                          .threads = vk_threads(vk_stream_device(s), 128),
                          .args = &args,
                          .groups = a->rows.n_rows,
                          .work = (uint64_t)a->rows.n_rows * (a->n_heads + 1) * n * 16};
    uint64_t q_cols = (uint64_t)a->n_heads * a->q_head_stride;
    vk_reads_rows(&l, &a->rows);
    vk_reads_mat(&l, &a->kv, a->rows.n_rows, (uint64_t)a->kv_lora + a->rope_dim);
    vk_writes_mat(&l, &a->q, a->rows.n_rows, q_cols);
    vk_uses_pages(&l, &a->pages, a->rows.n_seqs, true);
    return vk_launch(s, &l, err);
}

int32_t vk_mla_append(ebro_stream *s, const ebro_mla_append_args *a, ebro_error *err) {
    uint64_t cols = (uint64_t)a->kv_lora + a->rope_dim;
    const struct eb_mla_append_args args = {.pages = eb_arg_pages(&a->pages),
                                            .kv = eb_arg_mat(&a->kv),
                                            .norm_weight = eb_arg_vec(&a->norm_weight),
                                            .row_offsets = eb_arg_span(a->rows.row_offsets),
                                            .n_seqs = a->rows.n_seqs,
                                            .kv_lora = a->kv_lora,
                                            .rope_dim = a->rope_dim,
                                            .rotary_dim = a->rotary_dim,
                                            .eps = a->norm_eps};
    struct vk_launch l = {.kernel = VK_mla_append,
                          .threads = vk_threads(vk_stream_device(s), a->kv_lora > 128 ? 256 : 64),
                          .args = &args,
                          .groups = a->rows.n_rows,
                          .work = a->rows.n_rows * cols * 8};
    vk_reads_rows(&l, &a->rows);
    vk_reads_mat(&l, &a->kv, a->rows.n_rows, cols);
    vk_reads_vec(&l, &a->norm_weight, a->kv_lora);
    vk_uses_pages(&l, &a->pages, a->rows.n_seqs, true);
    int32_t st = vk_launch(s, &l, err);
    for (uint32_t p = 0; st == EBRO_OK && p < a->rotary_dim / 2; p += EB_MLA_TURNS) {
        uint32_t rest = a->rotary_dim / 2 - p;
        st = rotate(s, a, p, rest < EB_MLA_TURNS ? rest : EB_MLA_TURNS, err);
    }
    return st;
}

/* ---- mla_decode ------------------------------------------------------------------------- */

/* Of mla_decode_matrix. */
enum {
    MATRIX_EDGE = 16,
    MATRIX_SHARED_BYTES = 46592,
    MATRIX_GROUPS =
        1024, /* of a call, where it has the choice: some for each core of a large GPU */
    MATRIX_MIN_SPLITS = 8
};

/* Of one call, bounding its scratch and the time of a launch. */
static const uint64_t MAX_PARTS = UINT64_C(128) << 20; /* bytes */
static const uint64_t MAX_WORK = UINT64_C(1) << 36;    /* multiply-adds */

/* How a call is cut up. Without matrix units by the shape of a row alone, so that it gives the same
 * bytes in any company. */
struct plan {
    bool on_matrix;      /* by mla_decode_matrix */
    uint32_t heads;      /* of a workgroup */
    uint32_t n_splits;   /* of a row, at most */
    uint64_t all_splits; /* of the call: no less than those of a call of fewer rows */
    uint32_t slices;     /* threads that share a quad of columns */
    uint64_t groups;     /* of a split */
    uint64_t part_bytes; /* of a row */
    uint64_t row_work;
};

static bool on_matrix_units(const ebro_dev *dev, const ebro_mla_decode_args *a) {
    return vk_matrix_fits(dev, VK_mla_decode_matrix, EB_MLA_MATRIX_THREADS, MATRIX_SHARED_BYTES) &&
           a->pages.dtype == EBRO_BF16 && a->kv_lora == EB_MLA_MATRIX_LORA &&
           a->rope_dim == EB_MLA_MATRIX_ROPE && a->n_heads % MATRIX_EDGE == 0;
}

/* Parts are written and read again: where rows alone are work enough, they have few. */
static struct plan plan_on_matrix(const ebro_mla_decode_args *a) {
    uint64_t n_rows = a->rows.n_rows, most = MATRIX_GROUPS / (n_rows > 0 ? n_rows : 1);
    if (most > EB_MLA_SPLITS) most = EB_MLA_SPLITS;
    if (most < MATRIX_MIN_SPLITS) most = MATRIX_MIN_SPLITS;
    uint64_t all = n_rows * EB_MLA_SPLITS, bound = n_rows * MATRIX_MIN_SPLITS;
    if (bound < MATRIX_GROUPS) bound = MATRIX_GROUPS;
    return (struct plan){.on_matrix = true,
                         .heads = EB_MLA_MATRIX_HEADS,
                         .n_splits = (uint32_t)most,
                         .all_splits = all < bound ? all : bound,
                         .slices = 1,
                         .groups = vk_div_up(a->n_heads, EB_MLA_MATRIX_HEADS)};
}

static struct plan plan_on_any(const ebro_mla_decode_args *a) {
    uint64_t n_quads = vk_div_up(a->kv_lora, 4);
    struct plan p = {.heads = a->n_heads > 8   ? 16
                              : a->n_heads > 4 ? 8
                                               : 4,
                     .slices = EB_MLA_THREADS};
    while (p.slices > 1 && EB_MLA_THREADS / p.slices < n_quads) p.slices /= 2;
    p.n_splits = EB_MLA_SPLITS;
    p.all_splits = (uint64_t)a->rows.n_rows * EB_MLA_SPLITS;
    p.groups = vk_div_up(a->n_heads, p.heads) * vk_div_up(n_quads, EB_MLA_THREADS / p.slices);
    return p;
}

static struct plan plan_of(const ebro_dev *dev, const ebro_mla_decode_args *a) {
    struct plan p = on_matrix_units(dev, a) ? plan_on_matrix(a) : plan_on_any(a);
    uint64_t n_quads = vk_div_up(a->kv_lora, 4),
             tiles = vk_div_up(a->pages.max_context, EB_MLA_TOKENS);
    if (tiles < p.n_splits) p.n_splits = (uint32_t)tiles;
    if (a->rows.n_rows * tiles < p.all_splits) p.all_splits = a->rows.n_rows * tiles;
    p.part_bytes = (uint64_t)p.n_splits * a->n_heads * (p.slices * n_quads + 1) * 16;
    p.row_work =
        (uint64_t)a->n_heads * a->pages.max_context * (2 * (uint64_t)a->kv_lora + a->rope_dim);
    return p;
}

/* With room to align it. */
uint64_t vk_scratch_mla_decode(const ebro_dev *dev, const ebro_mla_decode_args *a) {
    const struct plan p = plan_of(dev, a);
    uint64_t all = p.n_splits > 0 ? p.all_splits * (p.part_bytes / p.n_splits) : 0;
    uint64_t most = MAX_PARTS;
    if (most < p.part_bytes) most = p.part_bytes;
    return (all < most ? all : most) + 16;
}

static uint32_t rows_at_once(const ebro_mla_decode_args *a, const struct plan *p) {
    uint64_t n = MAX_PARTS / p->part_bytes, by_work = MAX_WORK / p->row_work;
    if (n > by_work) n = by_work;
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
                                            .slices = p->slices};
    struct vk_launch l = {.kernel = p->on_matrix ? VK_mla_decode_matrix : VK_mla_decode,
                          .threads = p->on_matrix ? EB_MLA_MATRIX_THREADS : EB_MLA_THREADS,
                          .specs = {p->heads, (uint32_t)a->pages.dtype},
                          .n_specs = p->on_matrix ? 0 : 2,
                          .args = &args,
                          .groups = n_rows * p->n_splits * p->groups,
                          .work = n_rows * p->row_work};
    uint64_t q_cols = (uint64_t)a->n_heads * ((uint64_t)a->kv_lora + a->rope_dim);
    vk_reads_rows(&l, &a->rows);
    vk_reads_mat(&l, &a->q, a->rows.n_rows, q_cols);
    vk_uses_pages(&l, &a->pages, a->rows.n_seqs, false);
    vk_writes_span(&l, a->scratch, n_rows * p->part_bytes + 16);
    return vk_launch(s, &l, err);
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
                                           .slices = p->slices};
    struct vk_launch l = {.kernel = VK_mla_merge,
                          .threads = EB_MLA_THREADS,
                          .args = &args,
                          .groups = (uint64_t)n_rows * a->n_heads * vk_div_up(a->kv_lora, 128),
                          .work = n_rows * p->part_bytes};
    vk_reads_rows(&l, &a->rows);
    vk_reads_span(&l, a->pages.context, (uint64_t)a->rows.n_seqs * sizeof(int32_t));
    vk_reads_span(&l, a->scratch, n_rows * p->part_bytes + 16);
    vk_writes_mat(&l, &a->out, a->rows.n_rows, (uint64_t)a->n_heads * a->kv_lora);
    vk_writes_mat(&l, &a->lse, a->rows.n_rows, a->n_heads);
    return vk_launch(s, &l, err);
}

int32_t vk_mla_decode(ebro_stream *s, const ebro_mla_decode_args *a, ebro_error *err) {
    const struct plan p = plan_of(vk_stream_device(s), a);
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
