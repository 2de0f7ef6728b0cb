/* embedding.c: two engines in one process, in two threads, write what each writes alone, bit for
 * bit, whatever of runtime, device and model they share, and whatever the other one does meanwhile:
 * load, evaluate, close. */
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "tests/harness/devices.h"
#include "tests/harness/micro.h"
#include "tests/harness/process.h"
#include "tests/harness/test.h"

enum { MAX_PROMPT = 150, N_NEW = 20, CHUNK = 40, REPEATS = 3 };

/* What is open. What a writer does not share it opens for itself. */
struct place {
    ebro_runtime *rt;
    ebro_device *device;
    ebro_model *model;
};

struct text {
    int32_t ids[N_NEW];
    float logits[N_NEW]; /* the chosen token's */
};

struct writer {
    struct place shared;
    ebro_model_options model;
    const char *device;
    int32_t prompt[MAX_PROMPT];
    uint32_t n_prompt;
    uint64_t seed;
    struct text alone, beside[REPEATS];
    int32_t status;
    ebro_error err;
};

static int32_t open_place(const struct writer *w, struct place *p, ebro_error *err) {
    const ebro_runtime_options o = {.size = sizeof o, .module_dir = test_module_dir()};
    int32_t st = EBRO_OK;
    if (p->rt == NULL) st = ebro_runtime_open(&o, &p->rt, err);
    if (st == EBRO_OK && p->device == NULL)
        st = ebro_device_open(p->rt, w->device, &p->device, err);
    if (st == EBRO_OK && p->model == NULL) st = ebro_model_open(p->rt, &w->model, &p->model, err);
    return st;
}

static void close_place(struct place *p, const struct place *shared) {
    if (shared->model == NULL) ebro_model_close(&p->model);
    if (shared->device == NULL) ebro_device_close(&p->device);
    if (shared->rt == NULL) ebro_runtime_close(&p->rt);
}

static int32_t next_token(ebro_engine *engine, ebro_seq *seq, uint64_t seed, int32_t *id,
                          float *logit, ebro_error *err) {
    const ebro_sampling sampling = {.size = sizeof sampling, .temperature = 1.0f, .seed = seed};
    const float *logits = NULL;
    uint32_t rows = 0;
    int32_t st = EBRO_OK;
    while (st == EBRO_OK && ebro_seq_pending(seq) > 0) st = ebro_engine_step(engine, err);
    if (st == EBRO_OK) st = ebro_seq_sample(seq, &sampling, id, err);
    if (st == EBRO_OK) st = ebro_seq_logits(seq, &logits, &rows, err);
    if (st == EBRO_OK) *logit = logits[*id];
    return st == EBRO_OK ? ebro_seq_append(seq, id, 1, 0, err) : st;
}

static int32_t write_in(const struct writer *w, struct place *p, struct text *out,
                        ebro_error *err) {
    const ebro_engine_options o = {
        .size = sizeof o, .n_ctx = MAX_PROMPT + N_NEW, .n_chunk = CHUNK, .cache_dtype = -1};
    ebro_engine *engine = NULL;
    ebro_seq *seq = NULL;
    int32_t st = open_place(w, p, err);
    if (st == EBRO_OK) st = ebro_engine_open(p->model, p->device, &o, &engine, err);
    if (st == EBRO_OK) st = ebro_seq_create(engine, &seq, err);
    if (st == EBRO_OK) st = ebro_seq_append(seq, w->prompt, w->n_prompt, 0, err);
    for (int i = 0; i < N_NEW && st == EBRO_OK; i++)
        st = next_token(engine, seq, w->seed, &out->ids[i], &out->logits[i], err);
    ebro_engine_close(&engine);
    return st;
}

static int32_t write_once(const struct writer *w, struct text *out, ebro_error *err) {
    struct place p = w->shared;
    memset(out, 0x5a, sizeof *out);
    int32_t st = write_in(w, &p, out, err);
    close_place(&p, &w->shared);
    return st;
}

/* cmocka's checks belong to the thread that runs the test: what failed is told after the join. */
static void *write_often(void *user) {
    struct writer *w = user;
    w->status = EBRO_OK;
    for (int i = 0; i < REPEATS && w->status == EBRO_OK; i++)
        w->status = write_once(w, &w->beside[i], &w->err);
    return NULL;
}

static void check_pair(struct writer *w, const char *what) {
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        test_ok(write_once(&w[i], &w[i].alone, &w[i].err), &w[i].err);
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, write_often, &w[i]), 0);
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < 2; i++) {
        test_ok(w[i].status, &w[i].err);
        for (int k = 0; k < REPEATS; k++)
            if (memcmp(&w[i].alone, &w[i].beside[k], sizeof w[i].alone) != 0)
                fail_msg("%s: writer %d of 2 wrote something else beside the other, in turn %d",
                         what, i, k);
    }
}

static void random_writer(struct writer *w, const ebro_model_options *model, int32_t n_ids,
                          struct test_rng *rng) {
    *w = (struct writer){.model = *model, .device = test_device(), .seed = test_u64(rng)};
    w->n_prompt = 1 + (uint32_t)(test_u64(rng) % MAX_PROMPT);
    for (uint32_t i = 0; i < w->n_prompt; i++)
        w->prompt[i] = (int32_t)(test_u64(rng) % (uint64_t)n_ids);
}

/* ---- what is shared --------------------------------------------------------------------- */

enum { RUNTIME = 1, DEVICE = 2, MODEL = 4 };

static const struct {
    int parts;
    const char *what;
} shares[] = {
    {0, "nothing shared"},
    {RUNTIME, "one runtime"},
    {RUNTIME | DEVICE, "one device"},
    {RUNTIME | MODEL, "one model"},
    {RUNTIME | DEVICE | MODEL, "one device and model"},
};
enum { N_SHARES = sizeof shares / sizeof shares[0] };

/* Shares between both what `parts` says, of what the first one opens. */
static void check_share(struct writer *w, int parts, const char *what) {
    struct place all = {0}, shared = {0};
    const struct place none = {0};
    ebro_error err;
    test_ok(open_place(&w[0], &all, &err), &err);
    if (parts & RUNTIME) shared.rt = all.rt;
    if (parts & DEVICE) shared.device = all.device;
    if (parts & MODEL) shared.model = all.model;
    w[0].shared = w[1].shared = shared;
    check_pair(w, what);
    close_place(&all, &none);
}

/* Two models where they are not shared: the second of any kind. */
static void small_models(void **state) {
    (void)state;
    struct test_rng rng = {test_seed()};
    struct writer w[2];
    struct micro_files files[2];
    for (size_t s = 0; s < N_SHARES; s++) {
        for (int i = 0; i < 2; i++) {
            const struct micro_case *c = &micro_cases[test_u64(&rng) % n_micro_cases];
            files[i] = micro_make(&c->spec);
            const ebro_model_options o = {
                .size = sizeof o, .files = files[i].files, .n_files = files[i].n};
            random_writer(&w[i], &o, MICRO_RANKS, &rng);
            print_message("%s: %s, %u tokens\n", shares[s].what, c->name, w[i].n_prompt);
        }
        check_share(w, shares[s].parts, shares[s].what);
        for (int i = 0; i < 2; i++) micro_files_free(&files[i]);
    }
}

/* Loops long enough for all threads of the device to have work. */
static void demo_model(void **state) {
    (void)state;
    if (test_is_sanitized()) {
        print_message("skipped: the demo model takes minutes under a sanitizer\n");
        skip();
    }
    struct test_rng rng = {test_seed()};
    struct writer w[2];
    const ebro_model_options o = {.size = sizeof o, .path = test_demo_dir()};
    for (size_t s = 0; s < N_SHARES; s++) {
        for (int i = 0; i < 2; i++) random_writer(&w[i], &o, 4096, &rng);
        check_share(w, shares[s].parts, shares[s].what);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_models),
        cmocka_unit_test(demo_model),
    };
    return test_on_fast_devices("engine/embedding", tests, NULL, NULL);
}
