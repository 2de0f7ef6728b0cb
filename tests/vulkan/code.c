/* code.c: what the backend reads in a kernel's code before it launches it (spirv.h): the constants
 * that it takes and the memory that a workgroup shares, against modules written by hand and against
 * the kernels that are kept compiled. */
#include "backends/vulkan/spirv.h"

#include <stdio.h>
#include <stdlib.h>

#include "backends/vulkan/matrix.h"
#include "tests/harness/test.h"

#define OP(words, op) ((uint32_t)(words) << 16 | (op))

/* shared float a[N * 4 + 2]; shared uvec4 b[M > 7 ? M : 1]; N is constant 2 (3 where nobody sets
 * it), M constant 5 (9). */
static const uint32_t module[] = {
    0x07230203, 0x00010500, 0,  30,  0,          /* ids below 30 */
    OP(4, 71),  6,          1,  2,               /* OpDecorate %6 SpecId 2 */
    OP(4, 71),  7,          1,  5,               /* OpDecorate %7 SpecId 5 */
    OP(3, 22),  1,          32,                  /* %1 = float */
    OP(4, 21),  2,          32, 0,               /* %2 = uint */
    OP(4, 23),  3,          2,  4,               /* %3 = uvec4 */
    OP(2, 20),  4,                               /* %4 = bool */
    OP(4, 43),  2,          5,  4,               /* %5 = 4u */
    OP(4, 50),  2,          6,  3,               /* %6 = N */
    OP(4, 50),  2,          7,  9,               /* %7 = M */
    OP(4, 43),  2,          8,  2,               /* %8 = 2u */
    OP(6, 52),  2,          9,  132, 6,  5,      /* %9 = N * 4 */
    OP(6, 52),  2,          10, 128, 9,  8,      /* %10 = %9 + 2 */
    OP(4, 28),  11,         1,  10,              /* %11 = float[%10] */
    OP(4, 32),  12,         4,  11,              /* %12 = pointer to it, Workgroup */
    OP(4, 43),  2,          13, 7,               /* %13 = 7u */
    OP(6, 52),  4,          14, 172, 7,  13,     /* %14 = M > 7 */
    OP(4, 43),  2,          15, 1,               /* %15 = 1u */
    OP(7, 52),  2,          16, 169, 14, 7,  15, /* %16 = %14 ? M : 1 */
    OP(4, 28),  17,         3,  16,              /* %17 = uvec4[%16] */
    OP(4, 32),  18,         4,  17,              /* %18 = pointer to it, Workgroup */
    OP(4, 59),  12,         19, 4,               /* a */
    OP(4, 59),  18,         20, 4,               /* b */
};
enum { WORDS = sizeof module / sizeof *module };

static bool read_words(const uint32_t *code, size_t n, const uint32_t *values, uint32_t n_values,
                       struct vk_spirv *out) {
    struct vk_spirv_id ids[64];
    memset(ids, 0xa5, sizeof ids);
    return vk_spirv_read(code, n, values, n_values, ids, 64, out);
}

static void sizes_follow_the_constants(void **state) {
    (void)state;
    const uint32_t values[6] = {0, 0, 10, 0, 0, 4};
    static const struct {
        uint32_t n_values;
        uint64_t bytes;
    } cases[] = {{0, (3 * 4 + 2) * 4 + 9 * 16},
                 {2, (3 * 4 + 2) * 4 + 9 * 16},
                 {3, (10 * 4 + 2) * 4 + 9 * 16},
                 {6, (10 * 4 + 2) * 4 + 1 * 16}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct vk_spirv x;
        assert_true(read_words(module, WORDS, values, cases[i].n_values, &x));
        assert_int_equal(x.n_constants, 6);
        assert_int_equal(x.shared_bytes, cases[i].bytes);
    }
}

/* Cut off anywhere inside an instruction, with ids that are out of range, with an operation that is
 * not known where a length needs it: said, and nothing read that is not there. */
static void what_is_not_understood_is_said(void **state) {
    (void)state;
    struct vk_spirv x;
    uint32_t code[WORDS];
    for (size_t n = 0; n < 5; n++) assert_false(read_words(module, n, NULL, 0, &x));
    assert_false(read_words(module, WORDS - 1, NULL, 0, &x));
    memcpy(code, module, sizeof module);
    code[0]++;
    assert_false(read_words(code, WORDS, NULL, 0, &x));
    memcpy(code, module, sizeof module);
    code[3] = 65; /* more ids than there is room for */
    assert_false(read_words(code, WORDS, NULL, 0, &x));
    code[3] = 17; /* fewer than are used */
    assert_false(read_words(code, WORDS, NULL, 0, &x));
    for (size_t i = 5; i < WORDS; i++) {
        memcpy(code, module, sizeof module);
        if (code[i] != OP(6, 52) || code[i + 3] != 128) continue;
        code[i + 3] = 129; /* FAdd */
        assert_false(read_words(code, WORDS, NULL, 0, &x));
    }
    struct test_rng rng = {test_seed()};
    for (int i = 0; i < 20000; i++) {
        memcpy(code, module, sizeof module);
        code[test_u64(&rng) % WORDS] = (uint32_t)(test_u64(&rng) >> (32 + test_u64(&rng) % 32));
        (void)read_words(code, WORDS, NULL, 0, &x);
    }
}

/* One that is kept compiled. */
static struct vk_spirv read_kept(const char *name) {
    char path[512];
    size_t bytes = 0;
    struct vk_spirv x;
    snprintf(path, sizeof path, "%s/%s.spv", TEST_SPV_DIR, name);
    uint32_t *code = test_read_file(path, &bytes);
    assert_true(code != NULL && bytes > 20);
    struct vk_spirv_id *ids = calloc(code[3], sizeof *ids);
    assert_non_null(ids);
    if (!vk_spirv_read(code, bytes / 4, NULL, 0, ids, code[3], &x))
        fail_msg("%s is not understood", name);
    free(ids);
    free(code);
    return x;
}

/* All of them, by the manifest that stands beside them. */
static void kept_kernels_are_understood(void **state) {
    (void)state;
    size_t bytes = 0;
    char *at = NULL;
    uint32_t n = 0;
    char *manifest = test_read_file(TEST_SPV_MANIFEST, &bytes);
    assert_non_null(manifest);
    for (char *line = manifest; line < manifest + bytes; line = at + 1) {
        at = memchr(line, '\n', bytes - (size_t)(line - manifest));
        assert_non_null(at);
        char name[64] = {0};
        assert_int_equal(sscanf(line, "%63s", name), 1);
        struct vk_spirv x = read_kept(name);
        print_message("%s: %u constants, %u bytes shared\n", name, x.n_constants,
                      (unsigned)x.shared_bytes);
        assert_true(x.shared_bytes > 0);
        n++;
    }
    assert_true(n >= 7);
    free(manifest);
}

/* Kernels on matrix units are chosen by what their ops say that they share, and set so many
 * constants, with the two of every kernel: the code must not want more. */
static void kernels_share_what_the_host_counts_on(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint32_t n_constants;
        uint64_t most;
    } cases[] = {{"linear_matrix_bf16", 6, VK_BF16_SHARED_BYTES},
                 {"moe_matrix_bf16", 6, VK_BF16_SHARED_BYTES},
                 {"linear_matrix_f16_f16", 10, VK_F16_SHARED_BYTES},
                 {"moe_matrix_f16_f16", 10, VK_F16_SHARED_BYTES},
                 {"mla_expand_matrix_bf16", 2, 16384},
                 {"mla_attend_matrix_bf16", 2, 43520},
                 {"mla_decode_matrix_bf16", 2, 46592}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct vk_spirv x = read_kept(cases[i].name);
        assert_true(x.n_constants <= cases[i].n_constants);
        assert_in_range(x.shared_bytes, 1024, cases[i].most);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_follow_the_constants),
        cmocka_unit_test(what_is_not_understood_is_said),
        cmocka_unit_test(kept_kernels_are_understood),
        cmocka_unit_test(kernels_share_what_the_host_counts_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
