/* loader.c: which modules a runtime takes, from where, and what it says of the others; how devices
 * are named. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/dynlib.h"
#include "base/file.h"
#include "device/device.h"
#include "device/registry.h"
#include "tests/harness/test.h"

enum { MAX_DEVICES = 32 };

/* ---- helpers ---------------------------------------------------------------------------- */

static ebro_runtime *open_runtime(const char *module_dir) {
    const ebro_runtime_options o = {.size = sizeof o, .module_dir = module_dir};
    ebro_runtime *rt = NULL;
    ebro_error err = {0};
    test_ok(ebro_runtime_open(&o, &rt, &err), &err);
    assert_non_null(rt);
    return rt;
}

static uint32_t list(ebro_runtime *rt, ebro_device_info *out) {
    uint32_t n = 0;
    ebro_error err = {0};
    test_ok(ebro_device_list(rt, out, MAX_DEVICES, &n, &err), &err);
    assert_in_range(n, 0, MAX_DEVICES);
    return n;
}

static unsigned char *read_module(const char *name, size_t *bytes) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", test_module_dir(), name);
    return test_read_file(path, bytes);
}

/* A folder with the null module under the given file name. */
static char *folder_with_null(const char *as) {
    char *dir = test_tmp_dir();
    size_t bytes;
    unsigned char *data = read_module("ebro_null.so", &bytes);
    test_write_file(dir, as, data, bytes);
    free(data);
    return dir;
}

/* Opening `name` must fail with NO_DEVICE and all of the given parts in its text. */
static void no_device(ebro_runtime *rt, const char *name, const char *part, const char *part2) {
    ebro_device *d = (ebro_device *)(uintptr_t)1;
    ebro_error err = {0};
    test_fails(ebro_device_open(rt, name, &d, &err), EBRO_NO_DEVICE, &err, part);
    assert_null(d);
    test_fails(err.status, EBRO_NO_DEVICE, &err, part2);
}

/* ---- the ABI ---------------------------------------------------------------------------- */

static ebro_backend fake_table;
static int32_t fake_status;
static uint32_t fake_abi_seen;

static int32_t fake_entry(uint32_t abi, const ebro_host *host, const ebro_backend **out) {
    (void)host;
    fake_abi_seen = abi;
    if (fake_status == EBRO_OK) *out = &fake_table;
    return fake_status;
}

static int32_t tableless_entry(uint32_t abi, const ebro_host *host, const ebro_backend **out) {
    (void)abi;
    (void)host;
    (void)out;
    return EBRO_OK;
}

static int32_t fake_graph_begin(ebro_stream *s, ebro_error *err) {
    (void)s;
    return eb_fail(err, EBRO_INTERNAL, "was called");
}

/* The null backend's own table, to be spoilt. */
static ebro_runtime *borrow_table(void) {
    ebro_runtime *rt = open_runtime(test_module_dir());
    for (uint32_t i = 0; i < rt->n_modules; i++) {
        if (strcmp(rt->modules[i].file, "ebro_null.so") == 0) {
            assert_non_null(rt->modules[i].backend);
            fake_table = *rt->modules[i].backend;
            fake_status = EBRO_OK;
            return rt;
        }
    }
    fail_msg("there is no ebro_null.so in %s", test_module_dir());
    return NULL;
}

static void refuse(ebro_runtime *rt, int32_t want, const char *part) {
    const ebro_backend *out = &fake_table;
    ebro_error err = {0};
    test_fails(eb_registry_admit(fake_entry, &rt->host, "null", &out, &err), want, &err, part);
    assert_null(out);
}

static void another_abi_is_refused(void **state) {
    (void)state;
    ebro_runtime *rt = borrow_table();
    const ebro_backend *out = NULL;
    ebro_error err = {0};
    test_ok(eb_registry_admit(fake_entry, &rt->host, "null", &out, &err), &err);
    assert_ptr_equal(out, &fake_table);
    assert_int_equal(fake_abi_seen, EBRO_BACKEND_ABI);
    fake_status = EBRO_UNSUPPORTED;
    refuse(rt, EBRO_UNSUPPORTED, "another module ABI");
    fake_status = EBRO_INTERNAL;
    refuse(rt, EBRO_INTERNAL, "INTERNAL");
    fake_status = EBRO_OK;
    /* A module that lies about the number: it comes before the size, which is wrong as well. */
    fake_table.abi = EBRO_BACKEND_ABI + 1;
    fake_table.size = 16;
    refuse(rt, EBRO_UNSUPPORTED, "ABI");
    fake_table.abi = EBRO_BACKEND_ABI;
    refuse(rt, EBRO_FORMAT, "16 bytes");
    test_fails(eb_registry_admit(tableless_entry, &rt->host, "null", &out, &err), EBRO_FORMAT, &err,
               "no table");
    ebro_runtime_close(&rt);
}

static void incomplete_tables_are_refused(void **state) {
    (void)state;
    ebro_runtime *rt = borrow_table();
    const ebro_backend whole = fake_table;
    fake_table.wait = NULL;
    refuse(rt, EBRO_FORMAT, "function wait");
    fake_table = whole;
    fake_table.rows_copy = NULL;
    refuse(rt, EBRO_FORMAT, "rows_copy");
    fake_table = whole;
    fake_table.probe = NULL;
    refuse(rt, EBRO_FORMAT, "probe");
    fake_table = whole;
    fake_table.name = "cpu";
    refuse(rt, EBRO_FORMAT, "calls itself \"cpu\"");
    fake_table.name = NULL;
    refuse(rt, EBRO_FORMAT, "calls itself");
    /* All four graph functions or none. */
    fake_table = whole;
    fake_table.graph_begin = fake_graph_begin;
    refuse(rt, EBRO_FORMAT, "graph_end");
    /* What is optional may be absent. */
    fake_table = whole;
    fake_table.mem_import = NULL;
    fake_table.weights_prepare = NULL;
    fake_table.kda_step = NULL;
    const ebro_backend *out = NULL;
    ebro_error err = {0};
    test_ok(eb_registry_admit(fake_entry, &rt->host, "null", &out, &err), &err);
    ebro_runtime_close(&rt);
}

/* Every module that was built compares the number before it touches anything: here it is given no
 * host at all. */
static void modules_compare_the_abi_first(void **state) {
    (void)state;
    ebro_runtime *rt = open_runtime(test_module_dir());
    uint32_t tried = 0;
    for (uint32_t i = 0; i < rt->n_modules; i++) {
        if (rt->modules[i].lib == NULL) continue;
        void *symbol = eb_dynlib_symbol(rt->modules[i].lib, EBRO_BACKEND_ENTRY);
        ebro_backend_entry_fn entry;
        memcpy(&entry, &symbol, sizeof entry);
        const ebro_backend *out = &fake_table;
        assert_int_equal(entry(EBRO_BACKEND_ABI + 1, NULL, &out), EBRO_UNSUPPORTED);
        assert_int_equal(entry(0, NULL, &out), EBRO_UNSUPPORTED);
        assert_ptr_equal(out, &fake_table);
        tried++;
    }
    assert_true(tried > 0);
    ebro_runtime_close(&rt);
}

/* ---- where modules come from ------------------------------------------------------------ */

static void a_relative_folder_is_refused(void **state) {
    (void)state;
    static const char *const dirs[] = {".", "", "modules", "./modules", "../modules"};
    for (size_t i = 0; i < sizeof dirs / sizeof dirs[0]; i++) {
        const ebro_runtime_options o = {.size = sizeof o, .module_dir = dirs[i]};
        ebro_runtime *rt = (ebro_runtime *)(uintptr_t)1;
        ebro_error err = {0};
        test_fails(ebro_runtime_open(&o, &rt, &err), EBRO_INVALID, &err, "absolute");
        assert_null(rt);
    }
}

static void an_absent_folder_is_named(void **state) {
    (void)state;
    char *dir = test_tmp_dir();
    char path[512];
    snprintf(path, sizeof path, "%s/none", dir);
    const ebro_runtime_options o = {.size = sizeof o, .module_dir = path};
    ebro_runtime *rt = NULL;
    ebro_error err = {0};
    test_fails(ebro_runtime_open(&o, &rt, &err), EBRO_IO, &err, path);
    test_write_file(dir, "none", "a file", 6);
    test_fails(ebro_runtime_open(&o, &rt, &err), EBRO_IO, &err, path);
    assert_null(rt);
    test_tmp_remove(&dir);
}

static void an_empty_folder_gives_no_device(void **state) {
    (void)state;
    char *dir = test_tmp_dir();
    ebro_runtime *rt = open_runtime(dir);
    ebro_device_info info[MAX_DEVICES];
    assert_int_equal(list(rt, info), 0);
    no_device(rt, NULL, "no ebro_*.so lies in ", dir);
    no_device(rt, "CPU", "ebro_cpu.so is missing from", "devices: none");
    ebro_runtime_close(&rt);
    test_tmp_remove(&dir);
}

/* The working directory offers a module; only the program's own folder may be looked into. */
static void the_working_directory_is_never_searched(void **state) {
    (void)state;
    char *dir = folder_with_null("ebro_null.so");
    char old[4096];
    assert_non_null(getcwd(old, sizeof old));
    assert_int_equal(chdir(dir), 0);
    ebro_runtime *rt = NULL;
    ebro_error err = {0};
    int32_t st = ebro_runtime_open(NULL, &rt, &err);
    assert_int_equal(chdir(old), 0);
    test_ok(st, &err);
    char program[4096], beside[4200];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    assert_true(n > 0);
    program[n] = '\0';
    *strrchr(program, '/') = '\0';
    assert_string_equal(rt->module_dir, program);
    snprintf(beside, sizeof beside, "%s/ebro_null.so", program);
    bool has_null = false;
    for (uint32_t i = 0; i < rt->n_modules; i++) {
        if (strcmp(rt->modules[i].file, "ebro_null.so") == 0) has_null = true;
    }
    assert_int_equal(has_null, eb_path_exists(beside));
    ebro_runtime_close(&rt);
    test_tmp_remove(&dir);
}

static void stray_files_are_not_loaded(void **state) {
    (void)state;
    char *dir = folder_with_null("ebro_stray.so");
    test_write_file(dir, "ebro_.so", "x", 1);
    test_write_file(dir, "libebro_cpu.so", "x", 1);
    ebro_runtime *rt = open_runtime(dir);
    assert_int_equal(rt->n_modules, 0);
    ebro_runtime_close(&rt);
    test_tmp_remove(&dir);
}

/* ---- what is said of unusable modules --------------------------------------------------- */

struct heard {
    char text[8192];
    size_t n;
};

static void hear(void *user, int32_t level, const char *text) {
    struct heard *h = user;
    int n = snprintf(h->text + h->n, sizeof h->text - h->n, "%d %s\n", (int)level, text);
    if (n > 0 && h->n + (size_t)n < sizeof h->text) h->n += (size_t)n;
}

/* Copies the null module with its entry's name spoilt. */
static void write_entryless(const char *dir, const char *as) {
    size_t bytes, renamed = 0;
    unsigned char *data = read_module("ebro_null.so", &bytes);
    static const char symbol[] = EBRO_BACKEND_ENTRY;
    for (size_t i = 0; i + sizeof symbol <= bytes; i++) {
        if (memcmp(data + i, symbol, sizeof symbol) != 0) continue;
        data[i] = 'x';
        renamed++;
    }
    assert_true(renamed > 0);
    test_write_file(dir, as, data, bytes);
    free(data);
}

static void unusable_modules_are_kept_with_their_reason(void **state) {
    (void)state;
    char *dir = folder_with_null("ebro_null.so");
    char path[512];
    static const char text[] = "this is not a library\n";
    test_write_file(dir, "ebro_vulkan.so", text, sizeof text);
    test_write_file(dir, "ebro_cpu.so", "", 0);
    size_t bytes;
    unsigned char *data = read_module("ebro_null.so", &bytes);
    test_write_file(dir, "ebro_hip.so", data, bytes);
    free(data);
    write_entryless(dir, "ebro_opencl.so");
    snprintf(path, sizeof path, "%s/ebro_cuda.so", dir);
    assert_int_equal(mkdir(path, 0700), 0);

    struct heard heard = {.n = 0};
    const ebro_runtime_options o = {.size = sizeof o,
                                    .log = hear,
                                    .log_user = &heard,
                                    .log_level = EBRO_LOG_INFO,
                                    .module_dir = dir};
    ebro_runtime *rt = NULL;
    ebro_error err = {0};
    test_ok(ebro_runtime_open(&o, &rt, &err), &err);
    assert_int_equal(rt->n_modules, 6);
    heard.n = 0;
    ebro_device_info info[MAX_DEVICES];
    assert_int_equal(list(rt, info), 1);
    assert_string_equal(info[0].name, "Null0");
    assert_string_equal(info[0].backend, "null");
    assert_non_null(strstr(heard.text, "3 ebro_vulkan.so is unusable: "));
    assert_non_null(strstr(heard.text, "3 ebro_hip.so is unusable: "));

    no_device(rt, "Vulkan0", "ebro_vulkan.so is unusable: ", "devices: none");
    no_device(rt, "VULKAN", "ebro_vulkan.so is unusable: ", "devices: none");
    no_device(rt, "ROCm0", "ebro_hip.so is unusable: calls itself \"null\"", "devices: none");
    no_device(rt, "opencl1", "ebro_opencl.so is unusable: has no symbol", "devices: none");
    no_device(rt, "cuda0", "ebro_cuda.so is unusable: ", "devices: none");
    no_device(rt, "cpu", "ebro_cpu.so is unusable: ", "devices: none");
    no_device(rt, "Null7", "ebro_null.so has 1 device", "devices: none");
    no_device(rt, "toaster", "\"toaster\"", "devices: none");
    no_device(rt, "", "\"\"", "devices: none");
    /* Never chosen unless named. */
    no_device(rt, NULL, "ebro_hip.so is unusable", "devices: none");
    ebro_runtime_close(&rt);
    test_tmp_remove(&dir);
}

static void missing_modules_are_named(void **state) {
    (void)state;
    char *dir = folder_with_null("ebro_null.so");
    ebro_runtime *rt = open_runtime(dir);
    no_device(rt, "CUDA0", "ebro_cuda.so is missing from", "devices: none");
    no_device(rt, "rocm1", "ebro_hip.so is missing from", dir);
    no_device(rt, "HIP0", "ebro_hip.so is missing from", dir);
    no_device(rt, "vulkan0", "ebro_vulkan.so is missing from", dir);
    no_device(rt, "OpenCL0", "ebro_opencl.so is missing from", dir);
    /* A name of no family is not blamed on a module. */
    ebro_error err = {0};
    ebro_device *d = NULL;
    test_fails(ebro_device_open(rt, "cudas", &d, &err), EBRO_NO_DEVICE, &err, "devices: none");
    assert_null(strstr(err.text, "missing"));
    ebro_runtime_close(&rt);
    test_tmp_remove(&dir);
}

/* ---- names ------------------------------------------------------------------------------ */

static void turn_case(char *s) {
    for (; *s != '\0'; s++) {
        if (*s >= 'a' && *s <= 'z') {
            *s = (char)(*s - 'a' + 'A');
        } else if (*s >= 'A' && *s <= 'Z') {
            *s = (char)(*s - 'A' + 'a');
        }
    }
}

static void opens_as(ebro_runtime *rt, const char *name, const ebro_device_info *want) {
    ebro_device *d = NULL;
    ebro_device_info info;
    ebro_error err = {0};
    test_ok(ebro_device_open(rt, name, &d, &err), &err);
    ebro_device_get_info(d, &info);
    assert_string_equal(info.name, want->name);
    assert_string_equal(info.id, want->id);
    assert_string_equal(info.description, want->description);
    assert_string_equal(info.backend, want->backend);
    ebro_device_close(&d);
    assert_null(d);
}

static void devices_open_by_name_and_id(void **state) {
    (void)state;
    ebro_runtime *rt = open_runtime(test_module_dir());
    ebro_device_info info[MAX_DEVICES];
    uint32_t n = list(rt, info);
    assert_true(n > 0);
    for (uint32_t i = 0; i < n; i++) {
        char name[64] = "";
        assert_true(info[i].name[0] != '\0');
        assert_true(info[i].id[0] != '\0');
        assert_true(info[i].description[0] != '\0');
        opens_as(rt, info[i].name, &info[i]);
        memcpy(name, info[i].name, sizeof info[i].name);
        turn_case(name);
        opens_as(rt, name, &info[i]);
        /* Another backend may reach the same hardware: the first owner of an id is meant. */
        uint32_t owner = 0;
        while (strcmp(info[owner].id, info[i].id) != 0) owner++;
        memcpy(name, info[i].id, sizeof info[i].id);
        opens_as(rt, name, &info[owner]);
        turn_case(name);
        opens_as(rt, name, &info[owner]);
        for (uint32_t k = 0; k < i; k++) assert_string_not_equal(info[k].name, info[i].name);
    }
    ebro_runtime_close(&rt);
}

/* Not counting what a processor imitates, where there is anything else. */
static void the_best_device_is_the_first_that_computes(void **state) {
    (void)state;
    ebro_runtime *rt = open_runtime(test_module_dir());
    ebro_device_info info[MAX_DEVICES];
    uint32_t n = list(rt, info), best = n;
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; best == n && i < n; i++) {
            struct eb_found f;
            ebro_error err = {0};
            test_ok(eb_registry_find(rt, info[i].name, &f, &err), &err);
            bool emulated = (f.probe.flags & EBRO_PROBE_EMULATED) != 0;
            if (strcmp(info[i].backend, "null") != 0 && emulated == (pass == 1)) best = i;
        }
    }
    if (best < n) {
        opens_as(rt, NULL, &info[best]);
    } else {
        no_device(rt, NULL, "no device that computes", "devices: none");
    }
    ebro_runtime_close(&rt);
}

static void lists_keep_to_their_capacity(void **state) {
    (void)state;
    ebro_runtime *rt = open_runtime(test_module_dir());
    ebro_device_info all[MAX_DEVICES], some[MAX_DEVICES];
    uint32_t n = list(rt, all), count = 99;
    ebro_error err = {0};
    test_ok(ebro_device_list(rt, NULL, 0, &count, &err), &err);
    assert_int_equal(count, n);
    memset(some, 0x5a, sizeof some);
    test_ok(ebro_device_list(rt, some, n - 1, &count, &err), &err);
    assert_int_equal(count, n);
    const unsigned char *after = (const unsigned char *)&some[n - 1];
    for (size_t i = 0; i < sizeof some[0]; i++) assert_int_equal(after[i], 0x5a);
    for (uint32_t i = 0; i + 1 < n; i++) assert_string_equal(some[i].name, all[i].name);
    test_fails(ebro_device_list(rt, NULL, 4, &count, &err), EBRO_INVALID, &err, "out");
    test_fails(ebro_device_list(NULL, some, 4, &count, &err), EBRO_INVALID, &err, "runtime");
    test_fails(ebro_device_list(rt, some, 4, NULL, &err), EBRO_INVALID, &err, "count");
    ebro_runtime_close(&rt);
}

/* ---- options ---------------------------------------------------------------------------- */

static void options_of_other_versions(void **state) {
    (void)state;
    struct {
        ebro_runtime_options o;
        uint64_t later;
    } newer = {.o = {.size = sizeof newer, .module_dir = test_module_dir()}};
    ebro_runtime *rt = NULL;
    ebro_error err = {0};
    test_ok(ebro_runtime_open(&newer.o, &rt, &err), &err);
    ebro_runtime_close(&rt);
    newer.later = 1;
    test_fails(ebro_runtime_open(&newer.o, &rt, &err), EBRO_UNSUPPORTED, &err, "does not know");
    /* An older caller has no module_dir; what lies there is not its field. */
    ebro_runtime_options older = {.size = offsetof(ebro_runtime_options, module_dir),
                                  .module_dir = "not/read"};
    test_ok(ebro_runtime_open(&older, &rt, &err), &err);
    ebro_runtime_close(&rt);
    older.size = 0;
    test_fails(ebro_runtime_open(&older, &rt, &err), EBRO_INVALID, &err, "size");
    ebro_runtime_options level = {.size = sizeof level, .log_level = 6};
    test_fails(ebro_runtime_open(&level, &rt, &err), EBRO_INVALID, &err, "log_level");
    test_fails(ebro_runtime_open(NULL, NULL, &err), EBRO_INVALID, &err, "out");
    ebro_runtime_close(&rt);
    ebro_runtime_close(NULL);
}

/* ---- memory ----------------------------------------------------------------------------- */

struct counter {
    long live, calls, fail_at; /* fail_at -1: never */
};

static void *counting_realloc(void *user, void *p, size_t n) {
    struct counter *c = user;
    if (n == 0) {
        c->live--;
        free(p);
        return NULL;
    }
    if (c->calls++ == c->fail_at) return NULL;
    void *q = realloc(p, n);
    if (q != NULL && p == NULL) c->live++;
    return q;
}

/* Opens a runtime, lists, opens the null device, and closes all. */
static int32_t tour(struct counter *c, ebro_error *err) {
    const ebro_runtime_options o = {.size = sizeof o,
                                    .realloc = counting_realloc,
                                    .realloc_user = c,
                                    .module_dir = test_module_dir()};
    ebro_runtime *rt = NULL;
    ebro_device *d = NULL;
    uint32_t n;
    int32_t st = ebro_runtime_open(&o, &rt, err);
    if (st == EBRO_OK) st = ebro_device_list(rt, NULL, 0, &n, err);
    if (st == EBRO_OK) st = ebro_device_open(rt, "Null0", &d, err);
    ebro_device_close(&d);
    ebro_runtime_close(&rt);
    return st;
}

/* Every allocation of the tour fails once; each failure is said and leaks nothing. */
static void any_allocation_may_fail(void **state) {
    (void)state;
    struct counter c = {.fail_at = -1};
    ebro_error err = {0};
    test_ok(tour(&c, &err), &err);
    assert_int_equal(c.live, 0);
    long n = c.calls;
    assert_in_range(n, 5, 1000);
    for (long k = 0; k < n; k++) {
        c = (struct counter){.fail_at = k};
        err = (ebro_error){0};
        test_fails(tour(&c, &err), EBRO_NOMEM_HOST, &err, "memory");
        assert_int_equal(c.live, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_abi_is_refused),
        cmocka_unit_test(incomplete_tables_are_refused),
        cmocka_unit_test(modules_compare_the_abi_first),
        cmocka_unit_test(a_relative_folder_is_refused),
        cmocka_unit_test(an_absent_folder_is_named),
        cmocka_unit_test(an_empty_folder_gives_no_device),
        cmocka_unit_test(the_working_directory_is_never_searched),
        cmocka_unit_test(stray_files_are_not_loaded),
        cmocka_unit_test(unusable_modules_are_kept_with_their_reason),
        cmocka_unit_test(missing_modules_are_named),
        cmocka_unit_test(devices_open_by_name_and_id),
        cmocka_unit_test(the_best_device_is_the_first_that_computes),
        cmocka_unit_test(lists_keep_to_their_capacity),
        cmocka_unit_test(options_of_other_versions),
        cmocka_unit_test(any_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
