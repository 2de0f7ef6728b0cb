/* kernels.c: the images that the build made of shaders/cuda_hip, the ladder of variants, launches.
 */
#include <inttypes.h>
#include <stdio.h>

#include "backends/cuda_hip/cuda_hip.h"
#include "backends/kernel_args.h"
#include "shaders/cuda_hip/args_product.h"

/* ---- what kernels.def lists ------------------------------------------------------------- */

#define KERNEL(name, image, args)
#define VARIANT(kernel, variant, needs)
#define IMAGE(name) extern const unsigned char eb_image_##name[];
#include "shaders/cuda_hip/kernels.def"
#undef IMAGE

static const struct {
    const char *name;
    const unsigned char *image;
} images[] = {
#define IMAGE(name) {#name, eb_image_##name},
#include "shaders/cuda_hip/kernels.def"
#undef IMAGE
#undef KERNEL
};

static const struct {
    const char *name;
    enum gpu_image image;
    uint32_t args_bytes;
} kernels[] = {
#define IMAGE(name)
#define KERNEL(name, image, args) {#name, GPU_IMAGE_##image, sizeof(struct args)},
#include "shaders/cuda_hip/kernels.def"
#undef KERNEL
#undef VARIANT
};

static const struct variant {
    enum gpu_kernel kernel;
    const char *name;
    uint64_t needs;       /* EBRO_CAP_* */
    const char *function; /* in the image */
} variants[] = {
#define KERNEL(name, image, args)
#define VARIANT(kernel, variant, needs) \
    {GPU_##kernel, #variant, (needs), "eb_" #kernel "_" #variant},
#include "shaders/cuda_hip/kernels.def"
#undef IMAGE
#undef KERNEL
#undef VARIANT
};
enum { N_VARIANTS = sizeof variants / sizeof variants[0] };

/* ---- images ----------------------------------------------------------------------------- */

static int32_t load_image(ebro_dev *dev, int i, ebro_error *err) {
    int r = dev->api.ModuleLoadData(&dev->modules[i], images[i].image);
    if (r == GPU_OK) return EBRO_OK;
    dev->modules[i] = NULL;
    if (r == GPU_NO_BINARY || r == GPU_INVALID_CODE || r == GPU_UNSUPPORTED_CODE) {
        return dev->host->fail(err, EBRO_UNSUPPORTED,
                               GPU_BACKEND
                               ": %s is of generation %d.%d, for which this build has "
                               "no kernels",
                               dev->name, dev->major, dev->minor);
    }
    return gpu_fail(dev, r, "loading kernels", err);
}

void gpu_kernels_close(ebro_dev *dev) {
    for (int i = 0; i < GPU_N_IMAGES; i++)
        if (dev->modules[i] != NULL) (void)dev->api.ModuleUnload(dev->modules[i]);
}

/* ---- the ladder ------------------------------------------------------------------------- */

static int32_t choose(ebro_dev *dev, enum gpu_kernel k, uint32_t *n_fast, ebro_error *err) {
    const struct variant *chosen = NULL;
    struct gpu_choice *c = &dev->kernels[k];
    for (int i = 0; i < N_VARIANTS; i++)
        if (variants[i].kernel == k && (dev->caps.bits & variants[i].needs) == variants[i].needs)
            chosen = &variants[i];
    if (chosen == NULL) {
        return dev->host->fail(err, EBRO_UNSUPPORTED,
                               GPU_BACKEND
                               ": kernel %s has no variant that this device, less the "
                               "capabilities taken away, can run",
                               kernels[k].name);
    }
    int r =
        dev->api.ModuleGetFunction(&c->function, dev->modules[kernels[k].image], chosen->function);
    if (r != GPU_OK) {
        return dev->host->fail(err, EBRO_INTERNAL,
                               GPU_BACKEND
                               ": the image %s has no function %s (the driver answered "
                               "%d)",
                               images[kernels[k].image].name, chosen->function, r);
    }
    c->variant = chosen->name;
    c->needs = chosen->needs;
    c->shared_bytes = (uint32_t)dev->caps.shared_bytes;
    *n_fast += chosen->needs != 0;
    dev->host->log(dev->host->user, EBRO_LOG_DEBUG, GPU_BACKEND ": kernel %s: variant %s",
                   kernels[k].name, c->variant);
    return EBRO_OK;
}

int32_t gpu_kernels_open(ebro_dev *dev, ebro_error *err) {
    uint32_t n_fast = 0;
    int32_t st = EBRO_OK;
    for (int i = 0; i < GPU_N_IMAGES && st == EBRO_OK; i++) st = load_image(dev, i, err);
    for (int k = 0; k < GPU_N_KERNELS && st == EBRO_OK; k++)
        st = choose(dev, (enum gpu_kernel)k, &n_fast, err);
    if (st != EBRO_OK) return st;
    dev->host->log(dev->host->user, EBRO_LOG_INFO,
                   GPU_BACKEND ": %u of %d kernels in a faster variant than plain", n_fast,
                   (int)GPU_N_KERNELS);
    return EBRO_OK;
}

/* Whose kernels are whose, by the beginnings of their names. */
static const struct {
    ebro_op op;
    const char *prefix;
} op_kernels[] = {{EBRO_OP_EMBED, "embed"},
                  {EBRO_OP_SAMPLE, "sample_"},
                  {EBRO_OP_RMS_NORM, "norm"},
                  {EBRO_OP_LINEAR, "linear_"},
                  {EBRO_OP_ACT_MUL, "act"},
                  {EBRO_OP_KDA_CONV, "kda_conv"},
                  {EBRO_OP_KDA_CONV, "kda_windows"},
                  {EBRO_OP_KDA_PREP, "kda_plan"},
                  {EBRO_OP_KDA_PREP, "kda_prep"},
                  {EBRO_OP_KDA_RECUR, "kda_recur"},
                  {EBRO_OP_KDA_STEP, "kda_step"},
                  {EBRO_OP_MLA_APPEND, "mla_append"},
                  {EBRO_OP_MLA_APPEND, "mla_rotate"},
                  {EBRO_OP_MLA_PREFILL, "mla_expand"},
                  {EBRO_OP_MLA_PREFILL, "mla_attend"},
                  {EBRO_OP_MLA_DECODE, "mla_decode"},
                  {EBRO_OP_MLA_DECODE, "mla_merge"},
                  {EBRO_OP_MOE_ROUTE, "route_"},
                  {EBRO_OP_MOE_ROUTE, "linear_"},
                  {EBRO_OP_MOE_EXPERTS, "moe_"},
                  {EBRO_OP_ATTN_RES_MIX, "res_mix"},
                  {EBRO_OP_STATE_COPY, "copy"},
                  {EBRO_OP_ROWS_COPY, "copy"}};

static bool is_kernel_of(ebro_op op, int kernel) {
    for (size_t i = 0; i < sizeof op_kernels / sizeof op_kernels[0]; i++) {
        size_t n = strlen(op_kernels[i].prefix);
        if (op_kernels[i].op == op && strncmp(kernels[kernel].name, op_kernels[i].prefix, n) == 0)
            return true;
    }
    return false;
}

static bool has_choice(int kernel) {
    int n = 0;
    for (int i = 0; i < N_VARIANTS; i++) n += (int)variants[i].kernel == kernel;
    return n > 1;
}

void gpu_op_variant(ebro_dev *dev, ebro_op op, char *text, size_t bytes) {
    size_t n = 0;
    snprintf(text, bytes, "plain");
    for (int k = 0; k < GPU_N_KERNELS && n < bytes; k++) {
        if (!is_kernel_of(op, k) || !has_choice(k)) continue;
        n += (size_t)snprintf(text + n, bytes - n, "%s%s:%s", n > 0 ? " " : "", kernels[k].name,
                              dev->kernels[k].variant);
    }
}

/* ---- launches --------------------------------------------------------------------------- */

/* More shared memory than a block has by itself is asked for once. */
static int32_t raise_shared(ebro_dev *dev, const struct gpu_launch *l, ebro_error *err) {
    struct gpu_choice *c = &dev->kernels[l->kernel];
    if (l->shared_bytes <= c->shared_bytes) return EBRO_OK;
    int r = dev->api.FuncSetAttribute(c->function, GPU_FUNC_SHARED_BYTES, (int)l->shared_bytes);
    if (r != GPU_OK) return gpu_fail(dev, r, "asking for shared memory", err);
    c->shared_bytes = l->shared_bytes;
    return EBRO_OK;
}

int32_t gpu_launch(ebro_stream *s, const struct gpu_launch *l, ebro_error *err) {
    ebro_dev *dev = gpu_stream_device(s);
    if (l->groups == 0) return EBRO_OK;
    if (l->groups > INT32_MAX) {
        return dev->host->fail(err, EBRO_UNSUPPORTED,
                               GPU_BACKEND ": %" PRIu64
                                           " blocks of kernel %s: one launch has at "
                                           "most %d",
                               l->groups, kernels[l->kernel].name, INT32_MAX);
    }
    int32_t st = gpu_enter(dev, err);
    if (st == EBRO_OK) st = raise_shared(dev, l, err);
    if (st != EBRO_OK) return st;
    /* The driver copies the struct, whose bytes it knows, before it returns; it writes nothing. */
    union {
        const void *from;
        void *to;
    } args = {.from = l->args};
    void *parameters[1] = {args.to};
    int r = dev->api.LaunchKernel(dev->kernels[l->kernel].function, (unsigned)l->groups, 1, 1,
                                  l->threads, 1, 1, l->shared_bytes, gpu_stream_handle(s),
                                  parameters, NULL);
    if (r == GPU_OK) return EBRO_OK;
    char what[64];
    snprintf(what, sizeof what, "launching kernel %s", kernels[l->kernel].name);
    return gpu_fail(dev, r, what, err);
}
