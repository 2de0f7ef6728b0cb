/* test.c: finding data, reading reference tensors, comparing numbers, temporary folders. Shares no
 * arithmetic with the library: widening and norms are written out here once more. */
#include "tests/harness/test.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MAX_GOLDENS = 64, PATH_BYTES = 4096 };

/* ---- failing ---------------------------------------------------------------------------- */

static _Noreturn void fail_here(const char *what, const char *name, const char *why) {
    print_error("%s %s: %s\n", what, name, why);
    fail();
    abort(); /* not reached, which fail's declaration does not say */
}

static void *must_alloc(size_t n, size_t size) {
    void *p = calloc(n > 0 ? n : 1, size > 0 ? size : 1);
    if (p == NULL) fail_here("test", "memory", "out of memory");
    return p;
}

void test_le_at(const char *file, int line, double value, double bound, const char *fmt, ...) {
    /* Written so that a NaN fails. */
    if (value <= bound) return;
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    print_error("%s: %.6g is not <= %.6g\n", text, value, bound);
    _fail(file, line);
}

void test_status_at(const char *file, int line, int32_t st, int32_t want, const ebro_error *err,
                    const char *part) {
    const char *text = err != NULL ? err->text : "(no error text)";
    if (st != want) {
        if (st == EBRO_OK) {
            print_error("status OK, wanted %s\n", ebro_status_name(want));
        } else {
            print_error("status %s, wanted %s: %s\n", ebro_status_name(st), ebro_status_name(want),
                        text);
        }
        _fail(file, line);
    } else if (st != EBRO_OK && err != NULL && err->status != st) {
        print_error("returned %s but the error says %s: %s\n", ebro_status_name(st),
                    ebro_status_name(err->status), text);
        _fail(file, line);
    } else if (st != EBRO_OK && err != NULL && text[0] == '\0') {
        print_error("status %s without a text\n", ebro_status_name(st));
        _fail(file, line);
    } else if (part != NULL && strstr(text, part) == NULL) {
        print_error("the error should hold \"%s\" but reads: %s\n", part, text);
        _fail(file, line);
    }
}

/* ---- folders ---------------------------------------------------------------------------- */

static const char *folder(const char *variable, const char *built_in) {
    const char *value = getenv(variable);
    return value != NULL && value[0] != '\0' ? value : built_in;
}

const char *test_golden_dir(void) {
    return folder("EBRO_TEST_GOLDEN", TEST_GOLDEN_DIR);
}

const char *test_module_dir(void) {
    return folder("EBRO_TEST_MODULES", TEST_MODULE_DIR);
}

const char *test_models_dir(void) {
    return folder("EBRO_TEST_MODELS", NULL);
}

const char *test_demo_dir(void) {
    return TEST_DEMO_DIR;
}

/* ---- reference tensors ------------------------------------------------------------------ */

/* Kept so that one file is read once, and so that a leak checker still sees it. */
static struct {
    char *name;
    struct test_golden *golden;
} goldens[MAX_GOLDENS];
static size_t n_goldens;

struct test_golden *test_golden_open(const char *name) {
    for (size_t i = 0; i < n_goldens; i++) {
        if (strcmp(goldens[i].name, name) == 0) return goldens[i].golden;
    }
    if (n_goldens == MAX_GOLDENS) fail_here("golden", name, "too many files are open");
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", test_golden_dir(), name);
    struct test_golden *g = must_alloc(1, sizeof *g);
    ebro_error err = {0};
    int32_t st = eb_file_map(path, &g->bytes, &err);
    if (st == EBRO_OK) st = eb_safetensors_read(NULL, path, &g->bytes, 0, &g->st, &err);
    if (st != EBRO_OK) {
        eb_bytes_close(&g->bytes);
        free(g);
        fail_here("golden", path, err.text);
    }
    char *copy = must_alloc(strlen(name) + 1, 1);
    memcpy(copy, name, strlen(name));
    goldens[n_goldens].name = copy;
    goldens[n_goldens].golden = g;
    n_goldens++;
    return g;
}

static void format_name(char *out, size_t capacity, const char *fmt, va_list args) {
    int n = vsnprintf(out, capacity, fmt, args);
    if (n < 0 || (size_t)n >= capacity) fail_here("tensor", fmt, "the name is too long");
}

const struct eb_tensor *test_tensor_opt(const struct test_golden *g, const char *fmt, ...) {
    char name[256];
    va_list args;
    va_start(args, fmt);
    format_name(name, sizeof name, fmt, args);
    va_end(args);
    return eb_safetensors_find(&g->st, name);
}

const struct eb_tensor *test_tensor(const struct test_golden *g, const char *fmt, ...) {
    char name[256];
    va_list args;
    va_start(args, fmt);
    format_name(name, sizeof name, fmt, args);
    va_end(args);
    const struct eb_tensor *t = eb_safetensors_find(&g->st, name);
    if (t == NULL) fail_here("tensor", name, "is not in the file");
    return t;
}

uint64_t test_count(const struct eb_tensor *t) {
    uint64_t n = 1;
    for (uint32_t i = 0; i < t->n_dims; i++) n *= t->shape[i];
    return n;
}

static double widen_f16(uint16_t bits) {
    double sign = (bits & 0x8000u) != 0 ? -1.0 : 1.0;
    int exponent = (bits >> 10) & 0x1f;
    int fraction = bits & 0x3ff;
    if (exponent == 0x1f) return fraction != 0 ? (double)NAN : sign * (double)INFINITY;
    if (exponent == 0) return sign * ldexp(fraction, -24);
    return sign * ldexp(1024 + fraction, exponent - 25);
}

static double widen_bf16(uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float f;
    memcpy(&f, &wide, sizeof f);
    return (double)f;
}

/* Element i as float64, which holds every one of these types exactly. */
static double element(const struct eb_tensor *t, uint64_t i) {
    double d;
    float f;
    uint16_t h;
    switch (t->dtype) {
        case EBRO_F64:
            memcpy(&d, t->data + i * sizeof d, sizeof d);
            return d;
        case EBRO_F32:
            memcpy(&f, t->data + i * sizeof f, sizeof f);
            return (double)f;
        case EBRO_F16:
            memcpy(&h, t->data + i * sizeof h, sizeof h);
            return widen_f16(h);
        case EBRO_BF16:
            memcpy(&h, t->data + i * sizeof h, sizeof h);
            return widen_bf16(h);
        default:
            fail_here("tensor", t->name, "is not of a floating-point type");
            return 0.0;
    }
}

float *test_f32(const struct eb_tensor *t) {
    uint64_t n = test_count(t);
    float *out = must_alloc((size_t)n, sizeof *out);
    for (uint64_t i = 0; i < n; i++) out[i] = (float)element(t, i);
    return out;
}

double *test_f64(const struct eb_tensor *t) {
    uint64_t n = test_count(t);
    double *out = must_alloc((size_t)n, sizeof *out);
    for (uint64_t i = 0; i < n; i++) out[i] = element(t, i);
    return out;
}

int32_t *test_i32(const struct eb_tensor *t) {
    if (t->dtype != EBRO_I32) fail_here("tensor", t->name, "is not I32");
    uint64_t n = test_count(t);
    int32_t *out = must_alloc((size_t)n, sizeof *out);
    if (n > 0) memcpy(out, t->data, (size_t)n * sizeof *out);
    return out;
}

/* ---- comparing -------------------------------------------------------------------------- */

/* 0 / 0 is agreement: both are all zeros. */
static double ratio(double difference, double size) {
    if (difference == 0.0) return 0.0;
    return size > 0.0 ? difference / size : (double)INFINITY;
}

double test_rel_fro(const float *a, const double *ref, uint64_t n) {
    double difference = 0.0, size = 0.0;
    for (uint64_t i = 0; i < n; i++) {
        if (!isfinite(a[i])) return (double)INFINITY;
        double d = (double)a[i] - ref[i];
        difference += d * d;
        size += ref[i] * ref[i];
    }
    return sqrt(ratio(difference, size));
}

double test_rel_max(const float *a, const double *ref, uint64_t n) {
    double difference = 0.0, size = 0.0;
    for (uint64_t i = 0; i < n; i++) {
        if (!isfinite(a[i])) return (double)INFINITY;
        /* Not fmax, which would drop a NaN of the reference. */
        double d = fabs((double)a[i] - ref[i]);
        if (!(d <= difference)) difference = d;
        size = fmax(size, fabs(ref[i]));
    }
    return ratio(difference, size);
}

/* ---- random numbers --------------------------------------------------------------------- */

uint64_t test_seed(void) {
    const char *again = getenv("EBRO_TEST_SEED");
    struct timespec now = {0};
    timespec_get(&now, TIME_UTC);
    /* nanoseconds: short tests run many times in a second */
    uint64_t seed = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    if (again != NULL) seed = strtoull(again, NULL, 10);
    print_message("seed %llu\n", (unsigned long long)seed);
    return seed;
}

uint64_t test_u64(struct test_rng *r) {
    /* splitmix64: every seed is a good one, 0 and 1 included. */
    r->s += 0x9e3779b97f4a7c15u;
    uint64_t z = r->s;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

float test_uniform(struct test_rng *r, float lo, float hi) {
    double u = (double)(test_u64(r) >> 11) * (1.0 / 9007199254740992.0);
    return (float)((double)lo + u * ((double)hi - (double)lo));
}

float test_normal(struct test_rng *r) {
    /* Box-Muller; 1 - u keeps the logarithm's argument above zero. */
    double u = 1.0 - (double)(test_u64(r) >> 11) * (1.0 / 9007199254740992.0);
    double v = (double)(test_u64(r) >> 11) * (1.0 / 9007199254740992.0);
    return (float)(sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v));
}

/* ---- files ------------------------------------------------------------------------------ */

char *test_tmp_dir(void) {
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/ebro-test-XXXXXX", folder("TMPDIR", "/tmp"));
    if (mkdtemp(path) == NULL) fail_here("folder", path, strerror(errno));
    char *dir = must_alloc(strlen(path) + 1, 1);
    memcpy(dir, path, strlen(path));
    return dir;
}

static void remove_tree(const char *path) {
    struct stat info;
    if (lstat(path, &info) != 0) return;
    if (!S_ISDIR(info.st_mode)) {
        unlink(path);
        return;
    }
    /* A test may have taken rights away to provoke an error. */
    chmod(path, S_IRWXU);
    DIR *d = opendir(path);
    if (d != NULL) {
        for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
            if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
            char child[PATH_BYTES];
            int n = snprintf(child, sizeof child, "%s/%s", path, e->d_name);
            if (n > 0 && (size_t)n < sizeof child) remove_tree(child);
        }
        closedir(d);
    }
    rmdir(path);
}

void test_tmp_remove(char **dir) {
    if (dir == NULL || *dir == NULL) return;
    remove_tree(*dir);
    free(*dir);
    *dir = NULL;
}

void test_write_file(const char *dir, const char *name, const void *data, size_t bytes) {
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    if (f == NULL) fail_here("file", path, strerror(errno));
    bool written = bytes == 0 || fwrite(data, 1, bytes, f) == bytes;
    bool closed = fclose(f) == 0;
    if (!written || !closed) fail_here("file", path, "could not be written");
}

void *test_read_file(const char *path, size_t *bytes) {
    FILE *f = fopen(path, "rb");
    if (f == NULL) fail_here("file", path, strerror(errno));
    size_t n = 0, capacity = 1u << 16;
    char *data = must_alloc(capacity, 1);
    for (;;) {
        size_t got = fread(data + n, 1, capacity - n - 1, f);
        n += got;
        if (n + 1 < capacity) break;
        char *larger = realloc(data, capacity * 2);
        if (larger == NULL) fail_here("file", path, "out of memory");
        data = larger;
        capacity *= 2;
    }
    bool broken = ferror(f) != 0;
    fclose(f);
    if (broken) fail_here("file", path, "could not be read");
    /* A NUL after the end, so that text files can be used as strings. */
    data[n] = '\0';
    if (bytes != NULL) *bytes = n;
    return data;
}
