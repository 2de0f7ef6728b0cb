/* op_kda.c: kda_conv, and KDA's chunked form: kda_prep and kda_recur. Token by token:
 * op_kda_step.c. */
#include <inttypes.h>

#include "backends/vulkan/kda.h"

/* ---- convolution ------------------------------------------------------------------------ */

int32_t vk_kda_conv(ebro_stream *s, const ebro_kda_conv_args *a, ebro_error *err) {
    const ebro_rows *rows = &a->rows;
    uint32_t threads =
        vk_threads(vk_stream_device(s), a->n_channels > 256 ? 128 : 64); /* four channels each */
    bool aligned = a->n_channels % 4 == 0;
    struct eb_kda_conv_args args = {
        .rows = eb_arg_rows(rows),
        .state = eb_arg_states(&a->state),
        .n_channels = a->n_channels,
        .channel_groups = (uint32_t)vk_div_up(a->n_channels, (uint64_t)threads * 4),
        .row_groups = (uint32_t)vk_div_up(rows->n_rows, EB_KDA_CONV_ROWS)};
    struct vk_launch l = {.kernel = VK_kda_conv,
                          .threads = threads,
                          .args = &args,
                          .n_specs = 1,
                          .groups = 3ull * args.channel_groups * args.row_groups,
                          .work = 24ull * rows->n_rows * a->n_channels};
    for (int i = 0; i < 3; i++) {
        args.x[i] = eb_arg_mat(&a->x[i]);
        args.dst[i] = eb_arg_mat(&a->out[i]);
        args.weight[i] = eb_arg_vec(&a->weight[i]);
        aligned = aligned && eb_mat_is_wide(&a->x[i]) && eb_mat_is_wide(&a->out[i]);
        vk_reads_mat(&l, &a->x[i], rows->n_rows, a->n_channels);
        vk_reads_vec(&l, &a->weight[i], (uint64_t)a->n_channels * EBRO_CONV_WIDTH);
    }
    vk_reads_rows(&l, rows);
    vk_uses_states(&l, &a->state, rows->n_seqs);
    l.writes_any = false;
    for (int i = 0; i < 3; i++) vk_writes_mat(&l, &a->out[i], rows->n_rows, a->n_channels);
    l.specs[0] = aligned;
    int32_t st = vk_launch(s, &l, err);
    return st == EBRO_OK ? vk_kda_windows(s, rows, a->x, a->n_channels, &a->state, err) : st;
}

int32_t vk_kda_windows(ebro_stream *s, const ebro_rows *rows, const ebro_mat x[3],
                       uint32_t n_channels, const ebro_state_io *state, ebro_error *err) {
    uint32_t threads = vk_threads(vk_stream_device(s), n_channels > 256 ? 128 : 64);
    bool aligned = n_channels % 4 == 0;
    struct eb_kda_windows_args args = {
        .rows = eb_arg_rows(rows),
        .state = eb_arg_states(state),
        .n_channels = n_channels,
        .channel_groups = (uint32_t)vk_div_up(n_channels, (uint64_t)threads * 4)};
    struct vk_launch l = {.kernel = VK_kda_windows,
                          .threads = threads,
                          .args = &args,
                          .n_specs = 1,
                          .groups = 3ull * args.channel_groups * rows->n_seqs,
                          .work = 72ull * rows->n_seqs * n_channels};
    for (int i = 0; i < 3; i++) {
        args.x[i] = eb_arg_mat(&x[i]);
        aligned = aligned && eb_mat_is_wide(&x[i]);
        vk_reads_mat(&l, &x[i], rows->n_rows, n_channels);
    }
    vk_reads_rows(&l, rows);
    vk_uses_states(&l, state, rows->n_seqs);
    l.specs[0] = aligned;
    return vk_launch(s, &l, err);
}

/* ---- work memory ------------------------------------------------------------------------ */

enum {
    /* Rows of a sequence in one launch of the recurrence, and of all of them: what keeps a launch
     * short. Between two a state waits in f32, so that cuts cost no precision. */
    CARRY_ROWS = 4096,
    LAUNCH_ROWS = 2 * CARRY_ROWS,
    LAUNCH_CHUNKS = 1 << 16, /* of all heads, in one launch of kda_prep */
    WORK_ALIGN = 16
};

static uint64_t sum(uint64_t a, uint64_t b) {
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t product(uint64_t a, uint64_t b) {
    return a != 0 && b > UINT64_MAX / a ? UINT64_MAX : a * b;
}

/* Offsets in bytes from the first aligned byte of `work`. UINT64_MAX: more than can be. */
struct layout {
    uint64_t masks, marks, chunks, carry, end;
    uint64_t n_chunks; /* of one head */
    uint32_t n_tiles, padded, chunk_floats;
};

static struct layout lay_out(const ebro_rows *rows, uint32_t n_emit, uint32_t n_heads,
                             uint32_t dim) {
    struct layout l = {.padded = (uint32_t)vk_div_up(dim, 32) * 32};
    uint32_t most_seqs = rows->n_seqs < rows->n_rows ? rows->n_seqs : rows->n_rows;
    l.n_tiles = rows->n_rows / EB_KDA_CHUNK + most_seqs;
    l.n_chunks = (uint64_t)l.n_tiles + n_emit;
    l.chunk_floats = 2 * EB_KDA_CHUNK * (l.padded + EB_KDA_CHUNK) + (EB_KDA_CHUNK + 1) * l.padded;
    l.masks = (vk_div_up((uint64_t)rows->n_seqs + 1, 4)) * 16;
    l.marks = l.masks + vk_div_up(l.n_tiles, 4) * 16;
    l.chunks = l.marks + vk_div_up(n_emit > 0 ? rows->n_rows : 0, 4) * 16;
    uint64_t heads = product(l.n_chunks, n_heads);
    l.carry = sum(l.chunks, product(heads, l.chunk_floats * 4ull));
    uint64_t states = product(rows->n_rows / CARRY_ROWS, n_heads);
    l.end = sum(l.carry, product(states, 4ull * dim * dim));
    return l;
}

uint64_t vk_scratch_kda_prep(const ebro_dev *dev, const ebro_kda_prep_args *a) {
    (void)dev;
    struct layout l = lay_out(&a->rows, a->n_emit, a->gate.n_heads, a->gate.head_dim);
    return sum(l.end, WORK_ALIGN);
}

static struct eb_kda_work_arg work_arg(ebro_span work, const struct layout *l, uint32_t n_heads,
                                       uint32_t dim) {
    eb_addr base = (eb_arg_span(work) + WORK_ALIGN - 1) / WORK_ALIGN * WORK_ALIGN;
    return (struct eb_kda_work_arg){.tiles = base,
                                    .masks = base + l->masks,
                                    .marks = base + l->marks,
                                    .chunks = base + l->chunks,
                                    .carry = base + l->carry,
                                    .n_heads = n_heads,
                                    .dim = dim,
                                    .padded = l->padded,
                                    .chunk_floats = l->chunk_floats,
                                    .n_tiles = l->n_tiles};
}

static int32_t check_size(ebro_stream *s, const char *op, const struct layout *l, uint32_t n_heads,
                          uint32_t dim, ebro_error *err) {
    int32_t st = vk_kda_check_dim(s, op, dim, err);
    if (st != EBRO_OK || product(l->n_chunks, n_heads) <= UINT32_MAX / 2) return st;
    return vk_stream_device(s)->host->fail(err, EBRO_UNSUPPORTED,
                                           "vulkan: %s: %" PRIu64 " chunks of %" PRIu32
                                           " heads, the most is %u",
                                           op, l->n_chunks, n_heads, UINT32_MAX / 2);
}

/* ---- preparation ------------------------------------------------------------------------ */

static int32_t plan(ebro_stream *s, const ebro_kda_prep_args *a, const struct layout *l,
                    ebro_error *err) {
    const struct eb_kda_plan_args args = {
        .rows = eb_arg_rows(&a->rows),
        .work = work_arg(a->work, l, a->gate.n_heads, a->gate.head_dim),
        .emit_rows = eb_arg_span(a->emit_rows),
        .n_emit = a->n_emit};
    struct vk_launch launch = {.kernel = VK_kda_plan,
                               .threads = vk_threads(vk_stream_device(s), 256),
                               .args = &args,
                               .groups = 1,
                               .work = l->chunks};
    vk_reads_rows(&launch, &a->rows);
    vk_reads_span(&launch, a->emit_rows, (uint64_t)a->n_emit * sizeof(int32_t));
    vk_writes_span(&launch, a->work, l->chunks + WORK_ALIGN);
    return vk_launch(s, &launch, err);
}

int32_t vk_kda_prep(ebro_stream *s, const ebro_kda_prep_args *a, ebro_error *err) {
    uint32_t dim = a->gate.head_dim, n_heads = a->gate.n_heads, n_rows = a->rows.n_rows;
    uint64_t channels = (uint64_t)n_heads * dim;
    struct layout l = lay_out(&a->rows, a->n_emit, n_heads, dim);
    int32_t st = check_size(s, "kda_prep", &l, n_heads, dim, err);
    if (st == EBRO_OK) st = plan(s, a, &l, err);
    struct eb_kda_prep_args args = {.rows = eb_arg_rows(&a->rows),
                                    .work = work_arg(a->work, &l, n_heads, dim),
                                    .q = eb_arg_mat(&a->q),
                                    .k = eb_arg_mat(&a->k),
                                    .gate = eb_arg_gate(&a->gate),
                                    .emit_rows = eb_arg_span(a->emit_rows),
                                    .n_emit = a->n_emit};
    struct vk_launch launch = {
        .kernel = VK_kda_prep,
        .threads = vk_threads(vk_stream_device(s), dim > 64 ? 256 : 128),
        .args = &args,
        .specs = {eb_mat_is_wide(&a->q) && eb_mat_is_wide(&a->k), dim, l.padded},
        .n_specs = 3};
    vk_reads_rows(&launch, &a->rows);
    vk_reads_mat(&launch, &a->q, n_rows, channels);
    vk_reads_mat(&launch, &a->k, n_rows, channels);
    vk_kda_reads_gate(&launch, &a->gate, n_rows);
    vk_reads_span(&launch, a->emit_rows, (uint64_t)a->n_emit * sizeof(int32_t));
    vk_reads_span(&launch, a->work, l.chunks);
    vk_writes(&launch, a->work.mem, a->work.offset + l.chunks, l.carry - l.chunks + WORK_ALIGN);
    for (uint64_t first = 0, n_groups = l.n_chunks * n_heads; st == EBRO_OK && first < n_groups;
         first += LAUNCH_CHUNKS) {
        launch.groups = n_groups - first < LAUNCH_CHUNKS ? n_groups - first : LAUNCH_CHUNKS;
        launch.work = launch.groups * EB_KDA_CHUNK * EB_KDA_CHUNK * dim * 3;
        args.first_group = (uint32_t)first;
        st = vk_launch(s, &launch, err);
    }
    return st;
}

/* ---- recurrence ------------------------------------------------------------------------- */

enum { RECUR_THREADS = 128, RECUR_COLS = 32, STATE_VEC4 = 512 /* of shared memory, at most */ };

/* For any device: as many columns as fit. Returns them. */
static uint32_t choose_plain(const ebro_dev *dev, const struct layout *l,
                             struct vk_launch *launch) {
    uint32_t cols4 = 1;
    while (cols4 * 2 <= RECUR_COLS / 4 && cols4 * 2 * l->padded <= STATE_VEC4) cols4 *= 2;
    launch->kernel = VK_kda_recur;
    launch->threads = vk_threads(dev, RECUR_THREADS);
    launch->specs[1] = cols4;
    launch->n_specs = 2;
    return cols4 * 4;
}

/* By subgroups: eight rows of the state to a lane where that divides it, fewer lanes otherwise. */
static uint32_t choose_wide(const ebro_dev *dev, const struct layout *l, struct vk_launch *launch) {
    uint32_t lanes = 8, subgroup = dev->subgroup;
    while (lanes * 2 <= subgroup && l->padded % (lanes * 2 * 4) == 0 && l->padded / lanes > 8)
        lanes *= 2;
    uint32_t cols = 4 * (subgroup / lanes), n = cols < RECUR_COLS ? RECUR_COLS / cols : 1;
    while (n > 1 && n * subgroup > vk_threads(dev, 256)) n /= 2;
    uint32_t threads = n * subgroup, v_rows = lanes < EB_KDA_CHUNK ? EB_KDA_CHUNK / lanes : 1;
    uint32_t n_u = n * EB_KDA_CHUNK * (subgroup / lanes);
    uint32_t first = 2 * EB_KDA_CHUNK * (l->padded + EB_KDA_CHUNK) / 4;
    uint32_t second = (EB_KDA_CHUNK + 1) * l->padded / 4;
    if ((n_u + first + second) * 16 > dev->limits.maxComputeSharedMemorySize) first = second = 1;
    const uint32_t specs[] = {launch->specs[0],
                              lanes,
                              l->padded / lanes,
                              v_rows,
                              n_u,
                              first,
                              second,
                              (uint32_t)vk_div_up(first, threads),
                              (uint32_t)vk_div_up(second, threads)};
    memcpy(launch->specs, specs, sizeof specs);
    launch->n_specs = sizeof specs / sizeof specs[0];
    launch->kernel = VK_kda_recur_wide;
    launch->threads = threads;
    return n * cols;
}

static void recur_accesses(struct vk_launch *launch, const ebro_kda_recur_args *a,
                           const struct layout *l) {
    uint64_t channels = (uint64_t)a->n_heads * a->head_dim;
    vk_reads_rows(launch, &a->rows);
    vk_reads_mat(launch, &a->v, a->rows.n_rows, channels);
    vk_reads_span(launch, a->work, l->carry + WORK_ALIGN);
    vk_writes(launch, a->work.mem, a->work.offset + l->carry, l->end - l->carry + WORK_ALIGN);
    vk_uses_states(launch, &a->state, a->rows.n_seqs);
    vk_writes_mat(launch, &a->out, a->rows.n_rows, channels);
}

int32_t vk_kda_recur(ebro_stream *s, const ebro_kda_recur_args *a, ebro_error *err) {
    const ebro_dev *dev = vk_stream_device(s);
    const ebro_rows *rows = &a->rows;
    uint32_t dim = a->head_dim, n_heads = a->n_heads;
    struct layout l = lay_out(rows, a->state.n_emit, n_heads, dim);
    int32_t st = check_size(s, "kda_recur", &l, n_heads, dim, err);
    if (st != EBRO_OK) return st;
    struct eb_kda_recur_args args = {.rows = eb_arg_rows(rows),
                                     .work = work_arg(a->work, &l, n_heads, dim),
                                     .v = eb_arg_mat(&a->v),
                                     .dst = eb_arg_mat(&a->out),
                                     .state = eb_arg_states(&a->state),
                                     .carry_rows = CARRY_ROWS};
    struct vk_launch launch = {.args = &args,
                               .specs = {eb_mat_is_wide(&a->v) && eb_mat_is_wide(&a->out)}};
    bool wide = (dev->variants[VK_kda_recur_wide]->needs & EBRO_CAP_SUBGROUP) != 0;
    uint32_t cols =
        wide && dev->subgroup >= 8 ? choose_wide(dev, &l, &launch) : choose_plain(dev, &l, &launch);
    recur_accesses(&launch, a, &l);
    args.n_blocks = (uint32_t)vk_div_up(dim, cols);
    /* As many sequences at once as keep a launch short, and all where all do. */
    uint32_t longest = rows->max_rows < CARRY_ROWS ? rows->max_rows : CARRY_ROWS;
    uint32_t n_seqs = rows->n_rows <= LAUNCH_ROWS ? rows->n_seqs : LAUNCH_ROWS / longest;
    for (uint32_t first = 0; first < rows->n_seqs; first += n_seqs) {
        uint32_t n = rows->n_seqs - first < n_seqs ? rows->n_seqs - first : n_seqs;
        uint64_t row = 0;
        do {
            args.first_seq = first;
            args.first_tile = (uint32_t)(row / EB_KDA_CHUNK);
            args.end_tile = args.first_tile + CARRY_ROWS / EB_KDA_CHUNK;
            launch.groups = (uint64_t)n * n_heads * args.n_blocks;
            launch.work = (uint64_t)n * longest * n_heads * dim * (3ull * dim + 32);
            if ((st = vk_launch(s, &launch, err)) != EBRO_OK) return st;
            row += CARRY_ROWS;
        } while (row < rows->max_rows);
    }
    return EBRO_OK;
}
