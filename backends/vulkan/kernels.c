/* kernels.c: see kernels.h. */
#include "backends/vulkan/kernels.h"

#include "backends/ladder.h"
#include "backends/vulkan/cache.h"
#include "backends/vulkan/spirv.h"
#include "backends/vulkan/statistics.h"

#include <stdio.h>
#include <string.h>

#define KERNEL(name, args, place)
#define VARIANT(kernel, variant, source, needs, defines) \
    extern const uint32_t eb_spv_##kernel##_##variant[], eb_spv_##kernel##_##variant##_end[];
#include "shaders/vulkan/kernels.def"
#undef VARIANT

static const struct vk_variant rows[] = {
#define VARIANT(kernel, variant, source, needs, defines)          \
    {VK_##kernel, #variant, (needs), eb_spv_##kernel##_##variant, \
     eb_spv_##kernel##_##variant##_end},
#include "shaders/vulkan/kernels.def"
#undef KERNEL
#undef VARIANT
};

/* ---- argument structs ------------------------------------------------------------------- */

#include "backends/kernel_args.h"

#define PUSH false
#define FAR true
#define VARIANT(kernel, variant, source, needs, defines)
#define KERNEL(name, args, place)                                          \
    _Static_assert((place) || sizeof(struct args) <= VK_PUSH_BYTES,        \
                   #args " is too large for the push constants: use FAR"); \
    _Static_assert(sizeof(struct args) % 8 == 0, #args " needs an even number of 32-bit fields");
#include "shaders/vulkan/kernels.def"
#undef KERNEL

static const struct {
    const char *name;
    uint32_t args_bytes;
    bool far_args;
} kernels[] = {
#define KERNEL(name, args, place) {#name, sizeof(struct args), (place)},
#include "shaders/vulkan/kernels.def"
#undef KERNEL
#undef VARIANT
};

uint32_t vk_args_bytes(enum vk_kernel kernel) {
    return kernels[kernel].args_bytes;
}

bool vk_args_far(enum vk_kernel kernel) {
    return kernels[kernel].far_args;
}

const char *vk_kernel_name(enum vk_kernel kernel) {
    return kernels[kernel].name;
}

/* ---- the ladder ------------------------------------------------------------------------- */

static const struct eb_rung rungs[] = {
#define KERNEL(name, args, place)
#define VARIANT(kernel, variant, source, needs, defines) {VK_##kernel, #variant, (needs)},
#include "shaders/vulkan/kernels.def"
#undef KERNEL
#undef VARIANT
};

static const char *const kernel_names[] = {
#define KERNEL(name, args, place) #name,
#define VARIANT(kernel, variant, source, needs, defines)
#include "shaders/vulkan/kernels.def"
#undef KERNEL
#undef VARIANT
};

static const struct eb_ladder ladder = {.backend = "vulkan",
                                        .kernels = kernel_names,
                                        .n_kernels = VK_N_KERNELS,
                                        .rungs = rungs,
                                        .n_rungs = sizeof rungs / sizeof rungs[0]};

int32_t vk_choose_variants(ebro_dev *dev, const char *avoid, ebro_error *err) {
    int chosen[VK_N_KERNELS];
    int32_t st = eb_choose_rungs(&ladder, dev->host, dev->caps.bits, avoid, chosen, err);
    for (int k = 0; k < VK_N_KERNELS && st == EBRO_OK; k++) dev->variants[k] = &rows[chosen[k]];
    return st;
}

void vk_op_variant(ebro_dev *dev, ebro_op op, char *text, size_t bytes) {
    int chosen[VK_N_KERNELS];
    for (int k = 0; k < VK_N_KERNELS; k++) chosen[k] = (int)(dev->variants[k] - rows);
    eb_name_variants(&ladder, chosen, op, text, bytes);
}

/* ---- pipelines -------------------------------------------------------------------------- */

struct vk_pipeline {
    struct vk_pipeline *next; /* of the same hash */
    enum vk_kernel kernel;
    uint32_t threads;
    uint32_t n_specs;
    uint32_t specs[VK_MAX_SPECS];
    VkPipeline pipeline;
};

int32_t vk_kernels_open(ebro_dev *dev, ebro_error *err) {
    const VkPushConstantRange push = {.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT,
                                      .size = VK_PUSH_BYTES + 8};
    const VkPipelineLayoutCreateInfo info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                             .pushConstantRangeCount = 1,
                                             .pPushConstantRanges = &push};
    VkResult r = dev->api.CreatePipelineLayout(dev->device, &info, NULL, &dev->layout);
    if (r != VK_SUCCESS) return vk_fail(dev, r, "creating the pipeline layout", err);
    return vk_cache_open(dev, err);
}

void vk_kernels_close(ebro_dev *dev) {
    for (size_t i = 0; i < sizeof dev->pipelines / sizeof dev->pipelines[0]; i++) {
        while (dev->pipelines[i] != NULL) {
            struct vk_pipeline *p = dev->pipelines[i];
            dev->pipelines[i] = p->next;
            dev->api.DestroyPipeline(dev->device, p->pipeline, NULL);
            vk_free(dev->host, p);
        }
    }
    vk_cache_close(dev);
    if (dev->layout != VK_NULL_HANDLE)
        dev->api.DestroyPipelineLayout(dev->device, dev->layout, NULL);
}

static uint32_t hash_of(const struct vk_launch *l) {
    uint32_t h = (uint32_t)l->kernel * 0x9e3779b1u + l->threads;
    for (uint32_t i = 0; i < l->n_specs; i++) h = (h ^ l->specs[i]) * 0x01000193u + i;
    return (h ^ h >> 15) % 256;
}

static bool is_for(const struct vk_pipeline *p, const struct vk_launch *l) {
    return p->kernel == l->kernel && p->threads == l->threads && p->n_specs == l->n_specs &&
           memcmp(p->specs, l->specs, l->n_specs * sizeof l->specs[0]) == 0;
}

static VkResult create_module(ebro_dev *dev, const struct vk_variant *v, VkShaderModule *out) {
    const VkShaderModuleCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
        .codeSize = (size_t)(v->code_end - v->code) * sizeof(uint32_t),
        .pCode = v->code};
    return dev->api.CreateShaderModule(dev->device, &info, NULL, out);
}

/* All constants of a pipeline, by their ids. Returns how many. */
static uint32_t constants_of(const ebro_dev *dev, const struct vk_launch *l,
                             uint32_t values[2 + VK_MAX_SPECS]) {
    values[0] = l->threads;
    values[1] = dev->subgroup;
    memcpy(&values[2], l->specs, l->n_specs * sizeof values[0]);
    return 2 + l->n_specs;
}

/* Of the kernels that are made for so many threads; 0: for any power of two. */
static uint32_t threads_of(enum vk_kernel kernel) {
    switch (kernel) {
        case VK_linear_tile:
        case VK_linear_tile_one:
        case VK_moe_tile:
            return EB_TILE_THREADS;
        case VK_mla_decode:
        case VK_mla_merge:
        case VK_mla_expand:
        case VK_mla_expand_matrix:
        case VK_mla_attend:
            return EB_MLA_THREADS;
        case VK_mla_decode_matrix:
        case VK_mla_attend_matrix:
            return EB_MLA_MATRIX_THREADS;
        default:
            return 0;
    }
}

/* A workgroup that the kernel is made for and the device takes, whole subgroups where the kernel
 * counts on them. */
static int32_t check_threads(const ebro_dev *dev, const struct vk_launch *l, ebro_error *err) {
    const VkPhysicalDeviceLimits *limits = &dev->limits;
    uint32_t n = l->threads, most = limits->maxComputeWorkGroupInvocations;
    bool sized = (dev->variants[l->kernel]->needs & EBRO_CAP_SUBGROUP) != 0;
    if (most > limits->maxComputeWorkGroupSize[0]) most = limits->maxComputeWorkGroupSize[0];
    bool fits = n > 0 && n <= most && (n & (n - 1)) == 0;
    if (sized && dev->max_subgroups > 0) fits = fits && n / dev->subgroup <= dev->max_subgroups;
    if (sized) fits = fits && n % dev->subgroup == 0;
    if (threads_of(l->kernel) != 0 && n != threads_of(l->kernel)) {
        return dev->host->fail(err, EBRO_INTERNAL,
                               "vulkan: kernel %s in workgroups of %u threads, it is made for %u",
                               kernels[l->kernel].name, n, threads_of(l->kernel));
    }
    if (fits) return EBRO_OK;
    return dev->host->fail(err, EBRO_UNSUPPORTED,
                           "vulkan: kernel %s in workgroups of %u threads and subgroups of %u; the "
                           "device takes %u threads and %u subgroups (0: any number) at most",
                           kernels[l->kernel].name, n, dev->subgroup, most, dev->max_subgroups);
}

/* Drivers neither catch a constant that is not set nor, all of them, too much shared memory: a
 * kernel would run with other sizes than the host launched it for. */
static int32_t check_code(ebro_dev *dev, const struct vk_launch *l, ebro_error *err) {
    const struct vk_variant *v = dev->variants[l->kernel];
    const uint32_t bound = v->code[3], most = dev->limits.maxComputeSharedMemorySize;
    uint32_t values[2 + VK_MAX_SPECS], n = constants_of(dev, l, values);
    struct vk_spirv code;
    struct vk_spirv_id *ids = vk_calloc(dev->host, bound, sizeof *ids, err);
    if (ids == NULL) return EBRO_NOMEM_HOST;
    bool read =
        vk_spirv_read(v->code, (size_t)(v->code_end - v->code), values, n, ids, bound, &code);
    vk_free(dev->host, ids);
    if (!read) {
        dev->host->log(dev->host->user, EBRO_LOG_WARN,
                       "vulkan: kernel %s, variant %s, is not checked: its code is not understood",
                       kernels[l->kernel].name, v->name);
        return EBRO_OK;
    }
    if (code.n_constants > n) {
        return dev->host->fail(err, EBRO_INTERNAL,
                               "vulkan: kernel %s, variant %s, takes %u constants, %u are set",
                               kernels[l->kernel].name, v->name, code.n_constants, n);
    }
    if (code.shared_bytes > most) {
        return dev->host->fail(err, EBRO_UNSUPPORTED,
                               "vulkan: kernel %s, variant %s, shares %llu bytes in a workgroup, "
                               "the device takes %u at most",
                               kernels[l->kernel].name, v->name,
                               (unsigned long long)code.shared_bytes, most);
    }
    return EBRO_OK;
}

static VkResult create_pipeline(ebro_dev *dev, const struct vk_launch *l, VkShaderModule module,
                                VkPipeline *out) {
    VkSpecializationMapEntry entries[2 + VK_MAX_SPECS];
    uint32_t values[2 + VK_MAX_SPECS], n = constants_of(dev, l, values);
    for (uint32_t i = 0; i < n; i++) {
        entries[i] = (VkSpecializationMapEntry){
            .constantID = i, .offset = i * sizeof values[0], .size = sizeof values[0]};
    }
    const VkSpecializationInfo specs = {.mapEntryCount = n,
                                        .pMapEntries = entries,
                                        .dataSize = n * sizeof values[0],
                                        .pData = values};
    /* Sizes are asked for, never assumed: drivers choose their own where nothing is said. */
    const VkPipelineShaderStageRequiredSubgroupSizeCreateInfo subgroup = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO,
        .requiredSubgroupSize = dev->subgroup};
    bool sized = (dev->variants[l->kernel]->needs & EBRO_CAP_SUBGROUP) != 0;
    const VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .flags = vk_statistics_flags(dev),
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .pNext = sized && dev->demands_size ? &subgroup : NULL,
                  .flags = sized ? VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT : 0u,
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .module = module,
                  .pName = "main",
                  .pSpecializationInfo = &specs},
        .layout = dev->layout};
    return dev->api.CreateComputePipelines(dev->device, dev->cache, 1, &info, NULL, out);
}

static int32_t add_pipeline(ebro_dev *dev, const struct vk_launch *l, struct vk_pipeline **out,
                            ebro_error *err) {
    const struct vk_variant *v = dev->variants[l->kernel];
    char what[96];
    snprintf(what, sizeof what, "compiling kernel %s, variant %s", kernels[l->kernel].name,
             v->name);
    int32_t st = check_threads(dev, l, err);
    if (st == EBRO_OK) st = check_code(dev, l, err);
    if (st != EBRO_OK) return st;
    struct vk_pipeline *p = vk_calloc(dev->host, 1, sizeof *p, err);
    if (p == NULL) return EBRO_NOMEM_HOST;
    if (dev->n_compiled++ == 0 && dev->cache_was_empty) {
        dev->host->log(dev->host->user, EBRO_LOG_WARN,
                       "vulkan: compiling kernels, which takes a while the first time");
    }
    VkShaderModule module = VK_NULL_HANDLE;
    VkResult r = create_module(dev, v, &module);
    if (r == VK_SUCCESS) {
        r = create_pipeline(dev, l, module, &p->pipeline);
        dev->api.DestroyShaderModule(dev->device, module, NULL);
    }
    if (r != VK_SUCCESS) {
        vk_free(dev->host, p);
        return vk_fail(dev, r, what, err);
    }
    p->kernel = l->kernel;
    p->threads = l->threads;
    p->n_specs = l->n_specs;
    memcpy(p->specs, l->specs, sizeof p->specs);
    vk_statistics_log(dev, l, p->pipeline);
    uint32_t h = hash_of(l);
    p->next = dev->pipelines[h];
    dev->pipelines[h] = p;
    *out = p;
    return EBRO_OK;
}

int32_t vk_pipeline_for(ebro_dev *dev, const struct vk_launch *l, VkPipeline *out,
                        ebro_error *err) {
    int32_t st = EBRO_OK;
    pthread_mutex_lock(&dev->lock);
    struct vk_pipeline *p = dev->pipelines[hash_of(l)];
    while (p != NULL && !is_for(p, l)) p = p->next;
    if (p == NULL) st = add_pipeline(dev, l, &p, err);
    if (st == EBRO_OK) *out = p->pipeline;
    pthread_mutex_unlock(&dev->lock);
    return st;
}
