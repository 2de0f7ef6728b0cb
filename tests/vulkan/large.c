/* large.c: models that are larger in one measure than a small device takes at once: a matrix than
 * an allocation, experts than a byte counts, a file than 32 bits count. The logits are the CPU's.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/engine.h"
#include "model/load.h"
#include "tests/harness/micro.h"
#include "tests/vulkan/rig.h"

enum { MIB = 1 << 20, N_TOKENS = 24, CHUNK = 9 };

/* The limits that many devices have, kept apart; Vulkan's least number of workgroups, and of bytes
 * that they share. */
static const struct shim_limits small = {.binding_bytes = 128u * MIB,
                                         .allocation_bytes = 256u * MIB,
                                         .groups = 65535,
                                         .shared_bytes = 16384};

/* The last token's logits on a device, of `vocab` rows; free with free(). */
static float *logits_on(const char *device, ebro_model *model, const int32_t *ids, uint32_t vocab,
                        uint32_t *n_parts) {
    const ebro_engine_options o = {.size = sizeof o,
                                   .n_ctx = 64,
                                   .n_chunk = CHUNK,
                                   .keep = EBRO_KEEP_NONE,
                                   .cache_dtype = EBRO_F32};
    ebro_device *d = NULL;
    ebro_engine *engine = NULL;
    ebro_seq *seq = NULL;
    ebro_error err = {0};
    const float *logits = NULL;
    uint32_t rows = 0;
    float *out = malloc(vocab * sizeof *out);
    assert_non_null(out);
    test_ok(ebro_device_open(rt, device, &d, &err), &err);
    test_ok(ebro_engine_open(model, d, &o, &engine, &err), &err);
    *n_parts = 0;
    for (uint32_t first = 0; first < model->lm_head.rows; ++*n_parts)
        (void)eb_weight_part(engine->weights, &model->lm_head, first, &first);
    test_ok(ebro_seq_create(engine, &seq, &err), &err);
    /* The last one alone: a recorded step, with kernels for one row. */
    test_ok(ebro_seq_append(seq, ids, N_TOKENS - 1, 0, &err), &err);
    while (ebro_seq_pending(seq) > 0) test_ok(ebro_engine_step(engine, &err), &err);
    test_ok(ebro_seq_append(seq, &ids[N_TOKENS - 1], 1, 1, &err), &err);
    while (ebro_seq_pending(seq) > 0) test_ok(ebro_engine_step(engine, &err), &err);
    test_ok(ebro_seq_logits(seq, &logits, &rows, &err), &err);
    assert_int_equal(rows, 1);
    memcpy(out, logits, vocab * sizeof *out);
    ebro_engine_close(&engine);
    ebro_device_close(&d);
    return out;
}

/* Float32 on both sides, summed in another order: near 1e-6. Returns the parts of the head on the
 * Vulkan device. */
static uint32_t check_against_cpu(ebro_model *model, const int32_t *ids, uint32_t vocab) {
    uint32_t cpu_parts = 0, parts = 0;
    float *want = logits_on("CPU", model, ids, vocab, &cpu_parts);
    float *got = logits_on("Vulkan0", model, ids, vocab, &parts);
    double *ref = malloc(vocab * sizeof *ref);
    assert_non_null(ref);
    assert_int_equal(cpu_parts, 1);
    for (uint32_t i = 0; i < vocab; i++) ref[i] = (double)want[i];
    test_le(test_rel_fro(got, ref, vocab), 2e-5, "logits");
    free(ref);
    free(want);
    free(got);
    return parts;
}

static ebro_model *open_model(const struct micro_files *files) {
    const ebro_model_options o = {.size = sizeof o, .files = files->files, .n_files = files->n};
    ebro_model *model = NULL;
    ebro_error err = {0};
    test_ok(ebro_model_open(rt, &o, &model, &err), &err);
    return model;
}

static void need_device(void) {
    struct ebro_device *d = rig_device();
    assert_true(d->caps.max_alloc_bytes <= 256u * MIB && d->caps.shared_bytes == 16384);
    ebro_device_close(&d);
}

/* An embedding, which is the head too, of 300 MiB. Tokens of every part of it are read; the rows
 * beyond the first few are zeros, but the last one. */
static void a_matrix_is_larger_than_an_allocation(void **state) {
    (void)state;
    const uint32_t vocab = 300u * MIB / (MICRO_HIDDEN * 4);
    shim_get()->limits = small;
    need_device();
    const struct micro_spec spec = {.seed = test_seed(), .tied = true, .vocab = vocab};
    struct micro_files files = micro_make(&spec);
    ebro_model *model = open_model(&files);
    float *last = (float *)(void *)(uintptr_t)model->embed.w->data;
    struct test_rng rng = {spec.seed + 1};
    int32_t ids[N_TOKENS];
    assert_int_equal(model->embed.w->bytes, 300u * MIB);
    for (size_t c = 0; c < MICRO_HIDDEN; c++)
        last[(size_t)(vocab - 1) * MICRO_HIDDEN + c] = 0.125f * test_normal(&rng);
    for (int i = 0; i < N_TOKENS; i++)
        ids[i] = i % 3 == 0 ? (int32_t)vocab - 1 : (int32_t)(test_u64(&rng) % MICRO_VOCAB);
    assert_int_equal(check_against_cpu(model, ids, vocab), 2);
    assert_true(shim_get()->seen.largest_allocation <= 256u * MIB + 4096);
    assert_true(shim_get()->seen.largest_group_count <= 65535);
    ebro_model_close(&model);
    micro_files_free(&files);
}

static void there_are_896_experts(void **state) {
    (void)state;
    shim_get()->limits = small;
    need_device();
    const struct micro_spec spec = {.seed = test_seed(), .ffn = MICRO_MOE, .experts = 896};
    struct micro_files files = micro_make(&spec);
    ebro_model *model = open_model(&files);
    struct test_rng rng = {spec.seed + 1};
    int32_t ids[N_TOKENS];
    assert_int_equal(model->config.n_experts, 896);
    for (int i = 0; i < N_TOKENS; i++) ids[i] = (int32_t)(test_u64(&rng) % MICRO_VOCAB);
    check_against_cpu(model, ids, MICRO_VOCAB);
    ebro_model_close(&model);
    micro_files_free(&files);
}

/* The weights of `f` with `room` bytes of a tensor that no text model uses before them: a hole in
 * the file, which takes no space on disk. */
static void write_shifted(const char *dir, const ebro_file *f, uint64_t room) {
    uint64_t length = 0;
    char path[512], *header = calloc(1, 1 << 20);
    const char *in = (const char *)f->data + 8;
    assert_non_null(header);
    memcpy(&length, f->data, 8);
    size_t n = (size_t)sprintf(header,
                               "{\"vision_tower.room\":{\"dtype\":\"U8\",\"shape\":[%" PRIu64
                               "],\"data_offsets\":[0,%" PRIu64 "]},",
                               room, room);
    static const char key[] = "\"data_offsets\":[";
    for (const char *p = in + 1, *end = in + length; p < end;) {
        assert_true(n < (1 << 20) - 256);
        header[n++] = *p++;
        if (n < sizeof key || memcmp(&header[n - sizeof key + 1], key, sizeof key - 1) != 0)
            continue;
        char *rest = NULL;
        uint64_t a = strtoull(p, &rest, 10), b = strtoull(rest + 1, &rest, 10);
        n += (size_t)sprintf(&header[n], "%" PRIu64 ",%" PRIu64, a + room, b + room);
        p = rest;
    }
    while (n % 8 != 0) header[n++] = ' ';
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const uint64_t header_bytes = n, bytes = f->bytes - 8 - length;
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, &header_bytes, 8, 0), 8);
    assert_int_equal(pwrite(fd, header, n, 8), n);
    assert_int_equal(pwrite(fd, in + length, bytes, (off_t)(8 + n + room)), bytes);
    assert_int_equal(close(fd), 0);
    free(header);
}

/* Copied, and where they lie: then in windows that the device can have. */
static void tensors_lie_beyond_32_bits(void **state) {
    (void)state;
    const uint64_t room = (UINT64_C(1) << 32) + 4096;
    shim_get()->limits = small;
    need_device();
    const struct micro_spec spec = {.seed = test_seed(), .family = MICRO_K3};
    struct micro_files files = micro_make(&spec);
    char *dir = test_tmp_dir();
    for (uint32_t i = 0; i < files.n; i++) {
        const ebro_file *f = &files.files[i];
        if (strcmp(f->name, "model.safetensors") == 0)
            write_shifted(dir, f, room);
        else
            test_write_file(dir, f->name, f->data, f->bytes);
    }
    const ebro_model_options o = {.size = sizeof o, .path = dir};
    ebro_model *model = NULL;
    ebro_error err = {0};
    test_ok(ebro_model_open(rt, &o, &model, &err), &err);
    assert_true((uint64_t)(model->embed.w->data - model->files[0].bytes.data) > UINT32_MAX);
    struct test_rng rng = {spec.seed + 1};
    int32_t ids[N_TOKENS];
    for (int i = 0; i < N_TOKENS; i++) ids[i] = (int32_t)(test_u64(&rng) % MICRO_VOCAB);
    for (int shared = 0; shared < 2; shared++) {
        shim_get()->limits.integrated = shared != 0;
        check_against_cpu(model, ids, MICRO_VOCAB);
    }
    ebro_model_close(&model);
    micro_files_free(&files);
    test_tmp_remove(&dir);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, rig_open, rig_close)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_matrix_is_larger_than_an_allocation),
        TEST(there_are_896_experts),
        TEST(tensors_lie_beyond_32_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
