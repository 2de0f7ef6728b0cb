/* bench_mem.c: `ebro bench mem`: what the memory manager itself costs: matching prompts, taking and
 * dropping blocks, steps; how fast pages are copied; and how fast a sequence is saved and loaded.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench_rig.h"
#include "engine/engine.h"

static const char usage[] =
    "usage: ebro bench mem [-m MODEL] [-dev DEV] [-r RUNS] [options]\n"
    "\n"
    "Measures the memory manager, in processor time of one thread:\n"
    "  match deep     a prompt of 100,000 tokens against a tree of 10,000 nodes, half of\n"
    "                 them on its way\n"
    "  match wide     the same against 10,000 other prompts and one that is equal\n"
    "  blocks         reserve, take and drop: two operations a block, in changing order\n"
    "  step           begin and commit of one token, without the model\n"
    "  rewind         back to a snapshot and on again: nothing is copied\n"
    "and in wall time, on the device and on the disk that holds the temporary folder\n"
    "(TMPDIR, else /tmp):\n"
    "  copy           the device's copies of large pieces, the ceiling of the next\n"
    "  copy pages     blocks of Kimi-Linear-48B's size, from anywhere to anywhere, as where\n"
    "                 two sequences write into a page they share\n"
    "  disk write     a file of the saved sequence's size, written and synced\n"
    "  save           ebro_seq_save of a sequence of the model, with a full context\n"
    "  disk read      that file, read from the disk: where the system can be told so, none\n"
    "                 of it is in its cache\n"
    "  load           ebro_seq_load of it, in the same way\n"
    "  cached read    that file, read from the system's cache: a copy of memory\n"
    "  cached load    ebro_seq_load of it, in the same way\n"
    "\n"
    "With --json an object: schema (\"ebro-bench-mem-1\"), version, date, processor,\n"
    "cores, load, device, description, backend, rung, model, saved_bytes, and rows, an\n"
    "array of objects: name, operations, bytes (0 where none count), seconds (median,\n"
    "min, max), and, where it has a ceiling, of_ceiling: the share of it reached.\n";

enum row {
    MATCH_DEEP,
    MATCH_WIDE,
    BLOCKS,
    STEP,
    REWIND,
    COPY,
    COPY_PAGES,
    DISK_WRITE,
    SAVE,
    DISK_READ,
    LOAD,
    CACHED_READ,
    CACHED_LOAD,
    N_ROWS
};
static const struct {
    const char *name;
    int ceiling; /* the row that it is held against; -1: none */
} rows[N_ROWS] = {{"match deep", -1},
                  {"match wide", -1},
                  {"blocks", -1},
                  {"step", -1},
                  {"rewind", -1},
                  {"copy", -1},
                  {"copy pages", COPY},
                  {"disk write", -1},
                  {"save", DISK_WRITE},
                  {"disk read", -1},
                  {"load", DISK_READ},
                  {"cached read", -1},
                  {"cached load", CACHED_READ}};

struct mem_bench {
    const struct eb_bench_options *b;
    struct eb_options o;
    struct eb_bench_host host;
    struct eb_rig rig;
    struct eb_session s;
    char path[512]; /* of the saved sequence; empty: none */
    uint64_t saved_bytes;
    uint64_t operations[N_ROWS], bytes[N_ROWS];
    struct eb_samples seconds[N_ROWS];
    uint64_t random;
};

static uint64_t draw(struct mem_bench *t) {
    t->random = t->random * 6364136223846793005u + 1442695040888963407u;
    return t->random >> 33;
}

static int no_memory(void) {
    eb_complain("bench mem: out of memory");
    return EB_EXIT_MEMORY;
}

/* ---- the tree --------------------------------------------------------------------------- */

static uint32_t prompt_tokens(const struct mem_bench *t) {
    return t->b->quick ? 1000 : 100000;
}

static uint32_t n_branches(const struct mem_bench *t) {
    return t->b->quick ? 50 : 5000;
}

/* A prompt that others leave every 20 tokens; or as many others beside it. */
static int32_t fill_tree(struct mem_bench *t, struct eb_prefix *tree, int32_t *ids, bool deep) {
    uint32_t n = prompt_tokens(t), m = n_branches(t);
    ebro_error *err = &t->rig.err;
    for (uint32_t i = 0; i < n; i++) ids[i] = (int32_t)(draw(t) % 163840);
    int32_t st = eb_prefix_note(tree, ids, n, err);
    for (uint32_t i = 1; st == EBRO_OK && i < (deep ? m : 2 * m); i++) {
        uint32_t at = deep ? i * (n / m) : 0;
        int32_t kept = ids[at];
        ids[at] = (int32_t)(200000 + i);
        st = eb_prefix_note(tree, ids, at + 1, err);
        ids[at] = kept;
    }
    return st;
}

static int match(struct mem_bench *t, enum row row) {
    const struct eb_alloc alloc = {0};
    struct eb_blocks blocks = {0};
    struct eb_slots slots = {.blocks = &blocks};
    struct eb_prefix tree;
    uint32_t n = prompt_tokens(t);
    int32_t *ids = calloc(n, sizeof *ids);
    if (!ids) return no_memory();
    eb_prefix_open(&tree, &alloc, &blocks, &slots, 64, UINT64_MAX);
    int32_t st = fill_tree(t, &tree, ids, row == MATCH_DEEP);
    for (uint64_t r = 0; st == EBRO_OK && r < t->b->n_runs; r++) {
        enum { TIMES = 100 };
        double begin = eb_bench_cpu_seconds();
        for (int i = 0; i < TIMES; i++) {
            struct eb_match m = eb_prefix_match(&tree, ids, n, n);
            if (m.matched != n)
                st = eb_fail(&t->rig.err, EBRO_INTERNAL, "%u of %u tokens matched", m.matched, n);
        }
        eb_samples_add(&t->seconds[row], (eb_bench_cpu_seconds() - begin) / TIMES);
    }
    t->operations[row] = 1;
    eb_prefix_close(&tree);
    free(ids);
    return st == EBRO_OK ? EB_EXIT_OK : eb_complain_error(&t->rig.err);
}

/* ---- blocks and steps ------------------------------------------------------------------- */

static int blocks(struct mem_bench *t) {
    enum { N = 4096 };
    const struct eb_alloc alloc = {0};
    uint32_t rounds = t->b->quick ? 2 : 500, held[N];
    struct eb_blocks b;
    eb_blocks_open(&b, &alloc, 1u << 20, N, N, NULL, NULL);
    int32_t st = eb_blocks_reserve(&b, N, &t->rig.err);
    for (uint64_t r = 0; st == EBRO_OK && r < t->b->n_runs; r++) {
        double begin = eb_bench_cpu_seconds();
        for (uint32_t k = 0; k < rounds && st == EBRO_OK; k++) {
            for (uint32_t i = 0; i < N && st == EBRO_OK; i++) {
                st = eb_blocks_reserve(&b, 1, &t->rig.err);
                if (st == EBRO_OK) held[i] = eb_block_take(&b, EB_LIVE);
            }
            /* an odd stride reaches all of a power of two */
            for (uint32_t i = 0; st == EBRO_OK && i < N; i++)
                eb_block_drop(&b, held[(i * 1237u + k) % N], EB_LIVE);
        }
        eb_samples_add(&t->seconds[BLOCKS], eb_bench_cpu_seconds() - begin);
    }
    t->operations[BLOCKS] = 2 * (uint64_t)N * rounds;
    eb_blocks_close(&b);
    return st == EBRO_OK ? EB_EXIT_OK : eb_complain_error(&t->rig.err);
}

static int32_t plan_48b(struct eb_layout *out, ebro_error *err) {
    const struct eb_shape shape = {.n_mla_layers = 7,
                                   .n_kda_layers = 20,
                                   .row_elements = 576,
                                   .row_dtype = EBRO_F32,
                                   .kda_heads = 32,
                                   .kda_head_dim = 128,
                                   .state_dtype = EBRO_F32};
    return eb_layout_plan(&shape, out, err);
}

static int32_t evaluate(struct eb_seq *s, uint32_t chunk, ebro_error *err) {
    int32_t st = EBRO_OK;
    while (st == EBRO_OK && s->n_done < s->n_tokens) {
        struct eb_seq_step step;
        uint32_t n = s->n_tokens - s->n_done;
        st = eb_seq_begin(s, eb_seq_fit(s, n < chunk ? n : chunk), true, &step, err);
        if (st == EBRO_OK) eb_seq_commit(s, &step);
    }
    return st;
}

static int32_t steps(struct mem_bench *t, struct eb_seq *s, uint32_t n) {
    int32_t st = EBRO_OK;
    double begin = eb_bench_cpu_seconds();
    for (uint32_t i = 0; st == EBRO_OK && i < n; i++) {
        const int32_t id = (int32_t)(i % 1000);
        st = eb_seq_push(s, &id, 1, 1, &t->rig.err);
        if (st == EBRO_OK) st = evaluate(s, 1, &t->rig.err);
    }
    eb_samples_add(&t->seconds[STEP], eb_bench_cpu_seconds() - begin);
    t->operations[STEP] = n;
    return st;
}

/* Back to where a snapshot lies, and one token further, so that the next time there is a way back.
 */
static int32_t rewinds(struct mem_bench *t, struct eb_seq *s, uint32_t position, uint32_t n) {
    int32_t st = eb_seq_wish(s, position, &t->rig.err);
    double begin = eb_bench_cpu_seconds();
    for (uint32_t i = 0; st == EBRO_OK && i < n; i++) {
        const int32_t id = 7;
        st = eb_seq_push(s, &id, 1, 1, &t->rig.err);
        if (st == EBRO_OK) st = evaluate(s, 1, &t->rig.err);
        if (st == EBRO_OK) st = eb_seq_cut(s, position, &t->rig.err);
        if (st == EBRO_OK && s->n_done != position)
            st = eb_fail(&t->rig.err, EBRO_INTERNAL, "rewound to %u, not %u", s->n_done, position);
    }
    eb_samples_add(&t->seconds[REWIND], eb_bench_cpu_seconds() - begin);
    t->operations[REWIND] = n;
    return st;
}

static int sequences(struct mem_bench *t) {
    const struct eb_alloc alloc = {0};
    uint32_t n = t->b->quick ? 100 : 20000;
    struct eb_manager_options options = {
        .budget_bytes = (uint64_t)8 << 30, .keep = EB_KEEP_INTERVAL, .interval = 4096};
    struct eb_layout layout;
    struct eb_manager m = {0};
    int32_t st = plan_48b(&layout, &t->rig.err);
    if (st == EBRO_OK) st = eb_manager_open(&m, &layout, &alloc, &options, &t->rig.err);
    for (uint64_t r = 0; st == EBRO_OK && r < t->b->n_runs; r++) {
        struct eb_seq *s = NULL;
        st = eb_seq_open(&m, &s, &t->rig.err);
        if (st == EBRO_OK) st = steps(t, s, n);
        if (st == EBRO_OK) st = rewinds(t, s, n, n / 10);
        eb_seq_close(&s);
        eb_manager_clear(&m);
    }
    eb_manager_close(&m);
    return st == EBRO_OK ? EB_EXIT_OK : eb_complain_error(&t->rig.err);
}

/* ---- copies on the device --------------------------------------------------------------- */

static int32_t copy_blocks(struct mem_bench *t, ebro_span to, ebro_span from, uint64_t block,
                           uint64_t n) {
    int32_t st = EBRO_OK;
    for (uint64_t i = 0; st == EBRO_OK && i < n; i++) {
        /* odd strides, so that neighbours lie apart */
        ebro_span a = {to.mem, to.offset + i * 5 % n * block};
        ebro_span b = {from.mem, from.offset + i * 3 % n * block};
        st = eb_copy(&t->rig.stream, a, b, block, &t->rig.err);
    }
    return st == EBRO_OK ? eb_stream_sync(&t->rig.stream, &t->rig.err) : st;
}

static int copies(struct mem_bench *t) {
    struct eb_layout layout;
    struct eb_rig *r = &t->rig;
    eb_rig_note(r, plan_48b(&layout, &r->err));
    /* a power of two: odd strides reach each block once */
    uint64_t n = t->b->quick ? 2 : 128, block = layout.block_bytes;
    ebro_span from = eb_rig_bytes(r, n * block), to = eb_rig_bytes(r, n * block);
    for (uint64_t k = 0; !eb_rig_failed(r) && k <= t->b->n_runs; k++) {
        for (int row = COPY; row <= COPY_PAGES; row++) {
            double begin = eb_seconds();
            eb_rig_note(r, row == COPY ? copy_blocks(t, to, from, n * block, 1)
                                       : copy_blocks(t, to, from, block, n));
            if (k > 0) eb_samples_add(&t->seconds[row], eb_seconds() - begin); /* one warms up */
            t->operations[row] = row == COPY ? 1 : n;
            t->bytes[row] = n * block;
        }
    }
    return eb_rig_failed(r) ? eb_complain_device(&r->err) : EB_EXIT_OK;
}

/* ---- saving and loading ----------------------------------------------------------------- */

static int complain_file(const struct mem_bench *t, const char *what) {
    eb_complain("bench mem: cannot %s %s: %s", what, t->path, strerror(errno));
    return EB_EXIT_USAGE;
}

static int choose_path(struct mem_bench *t) {
    const char *folder = getenv("TMPDIR");
    int w = snprintf(t->path, sizeof t->path, "%s/ebro-bench-XXXXXX",
                     folder && *folder ? folder : "/tmp");
    int fd = w > 0 && (size_t)w < sizeof t->path ? mkstemp(t->path) : -1;
    if (fd >= 0) {
        close(fd);
        return EB_EXIT_OK;
    }
    int code = complain_file(t, "make");
    t->path[0] = '\0';
    return code;
}

/* Numbers of no meaning into all blocks of a sequence. */
static int32_t fill_blocks(struct mem_bench *t, const struct eb_seq *m, ebro_error *err) {
    struct ebro_engine *e = t->s.engine;
    const struct eb_layout *l = &e->layout;
    uint16_t *block = malloc((size_t)l->block_bytes);
    if (!block) return eb_fail(err, EBRO_NOMEM_HOST, "out of memory");
    /* Below 2 as any float. */
    for (uint64_t i = 0; i < l->block_bytes / 2; i++) block[i] = (uint16_t)(draw(t) & 0x3fffu);
    int32_t st = EBRO_OK;
    for (uint32_t i = 0; i < m->n_pages && st == EBRO_OK; i++)
        st = eb_upload(&e->stream, eb_block_span(e, m->pages[i]), block, l->block_bytes, err);
    for (uint32_t i = 0; i < l->slot_blocks && st == EBRO_OK; i++)
        st = eb_upload(&e->stream, eb_block_span(e, m->state->blocks[i]), block, l->block_bytes,
                       err);
    int32_t synced = eb_stream_sync(&e->stream, st == EBRO_OK ? err : NULL);
    free(block);
    return st == EBRO_OK ? synced : st;
}

/* As if it had been evaluated, which large models would take an hour for. */
static int32_t make_evaluated(struct mem_bench *t, const int32_t *ids, uint32_t n,
                              ebro_error *err) {
    struct ebro_engine *e = t->s.engine;
    struct eb_seq *m = NULL;
    ebro_seq_destroy(&t->s.seq);
    int32_t st = eb_seq_prepare(e, &t->s.seq, err);
    if (st == EBRO_OK) st = eb_seq_restore(&e->mem, ids, n, n, &m, err);
    if (st == EBRO_OK && (st = fill_blocks(t, m, err)) != EBRO_OK) eb_seq_close(&m);
    if (st != EBRO_OK) return st;
    eb_seq_adopt(t->s.seq, m);
    eb_seq_restored(m);
    return EBRO_OK;
}

static int make_sequence(struct mem_bench *t) {
    ebro_error err = {0};
    int code = eb_session_open_model(&t->s, &t->o);
    if (code == EB_EXIT_OK) code = eb_session_open_engine(&t->s, &t->o);
    if (code != EB_EXIT_OK) return code;
    uint32_t n = t->b->quick ? 16 : t->s.n_ctx, vocab = t->s.model_info.vocab;
    int32_t *ids = calloc(n, sizeof *ids);
    if (!ids) return no_memory();
    for (uint32_t i = 0; i < n; i++) ids[i] = (int32_t)(draw(t) % vocab);
    int32_t st = make_evaluated(t, ids, n, &err);
    free(ids);
    return st == EBRO_OK ? EB_EXIT_OK : eb_complain_device(&err);
}

static int write_plainly(struct mem_bench *t, void *data) {
    const char *p = data;
    size_t bytes = (size_t)t->saved_bytes;
    int fd = open(t->path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    if (fd < 0) return complain_file(t, "write");
    while (bytes > 0) {
        ssize_t w = write(fd, p, bytes < (4u << 20) ? bytes : 4u << 20);
        if (w <= 0) break;
        p += w;
        bytes -= (size_t)w;
    }
    bool ok = bytes == 0 && fsync(fd) == 0;
    if (close(fd) != 0 || !ok) return complain_file(t, "write");
    return EB_EXIT_OK;
}

static int read_plainly(struct mem_bench *t, void *data) {
    char *p = data;
    size_t bytes = (size_t)t->saved_bytes;
    int fd = open(t->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return complain_file(t, "read");
    ssize_t r = 1;
    for (; bytes > 0 && r > 0; bytes -= (size_t)r, p += r) {
        r = read(fd, p, bytes < (4u << 20) ? bytes : 4u << 20);
        if (r < 0) break;
    }
    close(fd);
    return r >= 0 && bytes == 0 ? EB_EXIT_OK : complain_file(t, "read");
}

/* Out of the system's cache, where it can be told so. What is read then comes from the disk. */
static void uncache(const struct mem_bench *t) {
#if defined(POSIX_FADV_DONTNEED)
    int fd = open(t->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
#else
    (void)t;
#endif
}

static int save(struct mem_bench *t, void *data) {
    (void)data;
    ebro_error err = {0};
    int32_t st = ebro_seq_save(t->s.seq, t->path, NULL, NULL, &err);
    return st == EBRO_OK ? EB_EXIT_OK : eb_complain_error(&err);
}

static int load(struct mem_bench *t, void *data) {
    (void)data;
    ebro_error err = {0};
    int32_t st = ebro_seq_load(t->s.engine, t->path, &t->s.seq, NULL, &err);
    return st == EBRO_OK ? EB_EXIT_OK : eb_complain_error(&err);
}

/* The same bytes plainly and as a sequence, in turn. What is loaded takes the place of what was
 * saved: the engine is one for a single sequence. */
static int save_and_load(struct mem_bench *t, void *data) {
    static int (*const run[])(struct mem_bench *, void *) = {
        write_plainly, save, read_plainly, load, read_plainly, load};
    for (int row = DISK_WRITE; row <= CACHED_LOAD; row++) {
        if (row == LOAD || row == CACHED_LOAD) ebro_seq_destroy(&t->s.seq);
        if (row == DISK_READ || row == LOAD) uncache(t);
        double begin = eb_seconds();
        int code = run[row - DISK_WRITE](t, data);
        if (code != EB_EXIT_OK) return code;
        eb_samples_add(&t->seconds[row], eb_seconds() - begin);
        t->operations[row] = 1;
        t->bytes[row] = t->saved_bytes;
    }
    return EB_EXIT_OK;
}

static int files(struct mem_bench *t) {
    ebro_error err = {0};
    ebro_transfer x = {.size = sizeof x};
    int code = choose_path(t);
    if (code == EB_EXIT_OK) code = make_sequence(t);
    if (code != EB_EXIT_OK) return code;
    if (ebro_seq_save(t->s.seq, t->path, NULL, &x, &err) != EBRO_OK) return eb_complain_error(&err);
    t->saved_bytes = x.total_bytes;
    void *data = NULL;
    /* Whole pages: others would be copied slowly. */
    if (posix_memalign(&data, 4096, (size_t)t->saved_bytes) != 0) return no_memory();
    memset(data, 0x5a, (size_t)t->saved_bytes);
    for (uint64_t r = 0; r < t->b->n_runs && code == EB_EXIT_OK; r++) code = save_and_load(t, data);
    free(data);
    return code;
}

/* ---- results ---------------------------------------------------------------------------- */

static double of_ceiling(const struct mem_bench *t, int i) {
    double mine = eb_samples_median(&t->seconds[i]);
    return mine > 0.0 ? eb_samples_median(&t->seconds[rows[i].ceiling]) / mine : 0.0;
}

static void print_table(const struct mem_bench *t) {
    eb_bench_print_host(&t->host);
    printf("%s: a saved sequence of %.1f MiB\n\n", t->o.model ? t->o.model : "built-in demo",
           (double)t->saved_bytes / 1048576.0);
    printf("%-12s %12s %14s %14s %10s %8s\n", "", "operations", "us each", "per second", "GB/s",
           "of best");
    for (int i = 0; i < N_ROWS; i++) {
        double s = eb_samples_median(&t->seconds[i]), n = (double)t->operations[i];
        printf("%-12s %12llu %14.3f %14.0f", rows[i].name, (unsigned long long)t->operations[i],
               1e6 * s / n, s > 0.0 ? n / s : 0.0);
        if (t->bytes[i] > 0) printf(" %10.2f", s > 0.0 ? 1e-9 * (double)t->bytes[i] / s : 0.0);
        if (rows[i].ceiling >= 0) printf(" %7.0f%%", 100.0 * of_ceiling(t, i));
        putchar('\n');
    }
}

static int print_json(const struct mem_bench *t) {
    json_t *all = json_array();
    json_t *o = json_pack("{s:s, s:s, s:I, s:O?}", "schema", "ebro-bench-mem-1", "model",
                          t->o.model ? t->o.model : "built-in demo", "saved_bytes",
                          (json_int_t)t->saved_bytes, "rows", all);
    bool ok = o && all && eb_bench_json_host(&t->host, o);
    for (int i = 0; i < N_ROWS && ok; i++) {
        json_t *row = json_pack("{s:s, s:I, s:I, s:o}", "name", rows[i].name, "operations",
                                (json_int_t)t->operations[i], "bytes", (json_int_t)t->bytes[i],
                                "seconds", eb_samples_json(&t->seconds[i], 0.0));
        ok = row && json_array_append_new(all, row) == 0;
        if (ok && rows[i].ceiling >= 0)
            ok = json_object_set_new(row, "of_ceiling", json_real(of_ceiling(t, i))) == 0;
    }
    json_decref(all);
    if (ok) return eb_bench_print_json(o);
    json_decref(o);
    return eb_bench_print_json(NULL);
}

static int measure(struct mem_bench *t) {
    t->random = 1;
    t->o = t->b->o;
    t->o.keep = EBRO_KEEP_NONE;
    int code = eb_bench_describe(&t->o, &t->host);
    if (code == EB_EXIT_OK) code = eb_rig_open(&t->rig, &t->o, t->b);
    if (code == EB_EXIT_OK) code = match(t, MATCH_DEEP);
    if (code == EB_EXIT_OK) code = match(t, MATCH_WIDE);
    if (code == EB_EXIT_OK) code = blocks(t);
    if (code == EB_EXIT_OK) code = sequences(t);
    if (code == EB_EXIT_OK) code = copies(t);
    if (code == EB_EXIT_OK) code = files(t);
    if (code != EB_EXIT_OK) return code;
    if (t->o.json) return print_json(t);
    print_table(t);
    return eb_flush_stdout() ? EB_EXIT_OK : EB_EXIT_USAGE;
}

int eb_bench_mem(int argc, char **argv) {
    const struct eb_arg_group groups[] = {eb_bench_args, eb_bench_output_args, eb_bench_mla_args(),
                                          eb_trust_args, eb_log_args};
    struct eb_bench_options b;
    int code = eb_bench_options_read("bench mem", usage, groups, sizeof groups / sizeof *groups,
                                     argc, argv, &b);
    if (code >= 0) return code;
    struct mem_bench *t = calloc(1, sizeof *t);
    if (!t) return no_memory();
    t->b = &b;
    code = measure(t);
    if (t->path[0]) unlink(t->path);
    eb_session_close(&t->s);
    eb_rig_close(&t->rig);
    free(t);
    return code;
}
