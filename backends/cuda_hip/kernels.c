/* kernels.c: the images that the build made of shaders/cuda_hip, the ladder of variants, launches.
 */
#include <inttypes.h>
#include <stdio.h>

#include "backends/cuda_hip/cuda_hip.h"
#include "backends/kernel_args.h"
#include "backends/ladder.h"
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

/* The functions of the rungs below, in their images. */
static const char *const functions[] = {
#define KERNEL(name, image, args)
#define VARIANT(kernel, variant, needs) "eb_" #kernel "_" #variant,
#include "shaders/cuda_hip/kernels.def"
#undef KERNEL
#undef VARIANT
};

static const struct eb_rung rungs[] = {
#define KERNEL(name, image, args)
#define VARIANT(kernel, variant, needs) {GPU_##kernel, #variant, (needs)},
#include "shaders/cuda_hip/kernels.def"
#undef KERNEL
#undef VARIANT
};

static const char *const kernel_names[] = {
#define KERNEL(name, image, args) #name,
#define VARIANT(kernel, variant, needs)
#include "shaders/cuda_hip/kernels.def"
#undef IMAGE
#undef KERNEL
#undef VARIANT
};

static const struct eb_ladder ladder = {.backend = GPU_BACKEND,
                                        .kernels = kernel_names,
                                        .n_kernels = GPU_N_KERNELS,
                                        .rungs = rungs,
                                        .n_rungs = sizeof rungs / sizeof rungs[0]};

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

static int32_t find_function(ebro_dev *dev, int kernel, ebro_error *err) {
    struct gpu_choice *c = &dev->kernels[kernel];
    const char *name = functions[c->rung];
    int r = dev->api.ModuleGetFunction(&c->function, dev->modules[kernels[kernel].image], name);
    if (r != GPU_OK) {
        return dev->host->fail(err, EBRO_INTERNAL,
                               GPU_BACKEND
                               ": the image %s has no function %s (the driver answered %d)",
                               images[kernels[kernel].image].name, name, r);
    }
    c->needs = rungs[c->rung].needs;
    c->shared_bytes = (uint32_t)dev->caps.shared_bytes;
    return EBRO_OK;
}

int32_t gpu_kernels_open(ebro_dev *dev, const char *avoid, ebro_error *err) {
    int chosen[GPU_N_KERNELS];
    int32_t st = eb_choose_rungs(&ladder, dev->host, dev->caps.bits, avoid, chosen, err);
    for (int i = 0; i < GPU_N_IMAGES && st == EBRO_OK; i++) st = load_image(dev, i, err);
    for (int k = 0; k < GPU_N_KERNELS && st == EBRO_OK; k++) {
        dev->kernels[k].rung = chosen[k];
        st = find_function(dev, k, err);
    }
    return st;
}

void gpu_op_variant(ebro_dev *dev, ebro_op op, char *text, size_t bytes) {
    int chosen[GPU_N_KERNELS];
    for (int k = 0; k < GPU_N_KERNELS; k++) chosen[k] = dev->kernels[k].rung;
    eb_name_variants(&ladder, chosen, op, text, bytes);
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
