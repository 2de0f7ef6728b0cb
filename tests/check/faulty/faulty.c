/* faulty.c: the CPU backend with invented variants of rms_norm, some of which are wrong: for the
 * tests of the self-test, on any machine. It lies in a folder of its own where nothing else finds
 * it, and is a module like any other: the runtime cannot tell it from the real one.
 *
 * rms_norm has two kernels, a and b, each as "fast" or, where that is to be avoided, as
 * "plain". EBRO_FAULTY lists those that are wrong, EBRO_FAULTY_HOW says how: "wrong" (also when it
 * is not set), "lost" (the device is lost in it) or "unsteady" (other bytes in every other call,
 * each of them near enough). */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ebro/backend.h"
#include "runtime/base/names.h"

enum { N_KERNELS = 2 };
static const char *const kernels[N_KERNELS] = {"a", "b"};

/* One device at a time. */
static struct {
    const ebro_backend *cpu;
    ebro_backend table;
    const ebro_host *host;
    bool plain[N_KERNELS];
    uint32_t n_calls;
} own;

static size_t name_variant(int kernel, bool plain, char name[32]) {
    return (size_t)snprintf(name, 32, "%s:%s", kernels[kernel], plain ? "plain" : "fast");
}

static bool lists(const char *list, int kernel, bool plain) {
    char name[32];
    size_t n = name_variant(kernel, plain, name);
    return eb_has_name(list, name, n);
}

static int32_t check_avoided(const ebro_host *host, const char *avoid, ebro_error *err) {
    size_t bytes;
    for (const char *name; (name = eb_next_name(&avoid, &bytes)) != NULL;) {
        if (eb_has_name("a:fast a:plain b:fast b:plain", name, bytes)) continue;
        return host->fail(err, EBRO_INVALID, "faulty: there is no variant \"%.*s\" to avoid",
                          (int)bytes, name);
    }
    return EBRO_OK;
}

static int32_t device_open(const ebro_host *host, uint32_t index,
                           const ebro_device_options *options, ebro_dev **out, ebro_error *err) {
    ebro_device_options o = *options;
    int32_t st = check_avoided(host, o.avoid, err);
    if (st != EBRO_OK) return st;
    for (int k = 0; k < N_KERNELS; k++) {
        own.plain[k] = lists(o.avoid, k, false);
        if (own.plain[k] && lists(o.avoid, k, true))
            return host->fail(err, EBRO_UNSUPPORTED, "faulty: nothing is left of %s", kernels[k]);
    }
    o.avoid = NULL;
    return own.cpu->device_open(host, index, &o, out, err);
}

static void op_variant(ebro_dev *dev, ebro_op op, char *text, size_t bytes) {
    char a[32], b[32];
    (void)dev;
    (void)name_variant(0, own.plain[0], a);
    (void)name_variant(1, own.plain[1], b);
    if (op == EBRO_OP_RMS_NORM)
        snprintf(text, bytes, "%s %s", a, b);
    else
        snprintf(text, bytes, "plain");
}

/* Its last bit, in every other call. */
static void waver(float *x) {
    uint32_t bits;
    memcpy(&bits, x, sizeof bits);
    bits ^= own.n_calls++ & 1;
    memcpy(x, &bits, sizeof bits);
}

static int32_t rms_norm(ebro_stream *s, const ebro_rms_norm_args *a, ebro_error *err) {
    const char *wrong = getenv("EBRO_FAULTY"), *how = getenv("EBRO_FAULTY_HOW");
    int32_t st = own.cpu->rms_norm(s, a, err);
    float *out = (float *)(void *)((char *)a->out.mem->host + a->out.offset);
    for (int k = 0; k < N_KERNELS && st == EBRO_OK; k++) {
        if (!lists(wrong, k, own.plain[k])) continue;
        if (how != NULL && strcmp(how, "lost") == 0)
            st = own.host->fail(err, EBRO_DEVICE_LOST, "faulty: the device is lost");
        else if (how != NULL && strcmp(how, "unsteady") == 0)
            waver(out);
        else
            out[0] += 100.0f;
    }
    return st;
}

EBRO_API int32_t ebro_backend_entry(uint32_t abi, const ebro_host *host, const ebro_backend **out);

int32_t ebro_backend_entry(uint32_t abi, const ebro_host *host, const ebro_backend **out) {
    void *module = dlopen(FAULTY_CPU_MODULE, RTLD_NOW | RTLD_LOCAL);
    void *symbol = module != NULL ? dlsym(module, EBRO_BACKEND_ENTRY) : NULL;
    ebro_backend_entry_fn entry;
    if (symbol == NULL) return EBRO_INTERNAL;
    memcpy(&entry, &symbol, sizeof entry);
    int32_t st = entry(abi, host, &own.cpu);
    if (st != EBRO_OK) return st;
    own.host = host;
    own.table = *own.cpu;
    own.table.device_open = device_open;
    own.table.op_variant = op_variant;
    own.table.rms_norm = rms_norm;
    *out = &own.table;
    return EBRO_OK;
}
