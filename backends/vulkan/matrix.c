/* matrix.c: see matrix.h. */
#include "backends/vulkan/matrix.h"

#include "backends/vulkan/probe.h"

enum { MAX_SHAPES = 128 };

void vk_matrix_chain(struct vk_matrix_features *f, void *next) {
    f->bf16 = (VkPhysicalDeviceShaderBfloat16FeaturesKHR){
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_BFLOAT16_FEATURES_KHR,
        .pNext = &f->matrix};
    f->matrix = (VkPhysicalDeviceCooperativeMatrixFeaturesKHR){
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR, .pNext = next};
}

struct found {
    VkPhysicalDeviceVulkan12Features v12;
    struct vk_matrix_features matrix;
};

/* What is not there is left zero. */
static void read_features(const ebro_dev *dev, bool with_bf16, struct found *f) {
    f->v12 = (VkPhysicalDeviceVulkan12Features){
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
    vk_matrix_chain(&f->matrix, &f->v12);
    VkPhysicalDeviceFeatures2 all = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
        .pNext = with_bf16 ? (void *)&f->matrix.bf16 : (void *)&f->matrix.matrix};
    dev->api.GetPhysicalDeviceFeatures2(dev->physical, &all);
}

static bool in_compute(const ebro_dev *dev) {
    VkPhysicalDeviceCooperativeMatrixPropertiesKHR matrix = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_PROPERTIES_KHR};
    VkPhysicalDeviceProperties2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                       .pNext = &matrix};
    dev->api.GetPhysicalDeviceProperties2(dev->physical, &all);
    return matrix.cooperativeMatrixSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT;
}

/* Returns how many there are in the driver's list, the first MAX_SHAPES at most. */
static uint32_t read_shapes(const ebro_dev *dev,
                            VkCooperativeMatrixPropertiesKHR shapes[MAX_SHAPES]) {
    PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR list =
        (PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR)dev->api.GetInstanceProcAddr(
            dev->api.instance, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR");
    uint32_t n = MAX_SHAPES;
    if (list == NULL) return 0;
    for (uint32_t i = 0; i < MAX_SHAPES; i++) {
        shapes[i] = (VkCooperativeMatrixPropertiesKHR){
            .sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR};
    }
    VkResult r = list(dev->physical, &n, shapes);
    return r == VK_SUCCESS || r == VK_INCOMPLETE ? n : 0;
}

/* Whether it multiplies matrices of this type in a subgroup, with sums in f32. */
static bool multiplies(const VkCooperativeMatrixPropertiesKHR *s, VkComponentTypeKHR type) {
    return s->AType == type && s->BType == type && s->CType == VK_COMPONENT_TYPE_FLOAT32_KHR &&
           s->ResultType == VK_COMPONENT_TYPE_FLOAT32_KHR && s->scope == VK_SCOPE_SUBGROUP_KHR;
}

static bool has_bf16_shape(const VkCooperativeMatrixPropertiesKHR *shapes, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if (multiplies(&shapes[i], VK_COMPONENT_TYPE_BFLOAT16_KHR) &&
            shapes[i].MSize == EB_BF16_EDGE && shapes[i].NSize == EB_BF16_EDGE &&
            shapes[i].KSize == EB_BF16_EDGE)
            return true;
    }
    return false;
}

/* Of the f16 shapes that fit the tiles of product_matrix.glsl the largest; false: there is none. */
static bool find_f16_shape(const ebro_dev *dev, const VkCooperativeMatrixPropertiesKHR *shapes,
                           uint32_t n, struct vk_matrix_shape *best) {
    VkPhysicalDeviceProperties p;
    dev->api.GetPhysicalDeviceProperties(dev->physical, &p);
    bool slow = p.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
    uint32_t size = 0, outs = slow ? VK_MATRIX_FEW_OUTS : EB_MATRIX_OUTS;
    for (uint32_t i = 0; i < n; i++) {
        const VkCooperativeMatrixPropertiesKHR *s = &shapes[i];
        if (!multiplies(s, VK_COMPONENT_TYPE_FLOAT16_KHR)) continue;
        if (s->MSize != 8 && s->MSize != 16) continue;
        if (s->NSize != 8 && s->NSize != 16) continue;
        if (s->KSize != 8 && s->KSize != 16 && s->KSize != 32) continue;
        /* Every thread has rows to load. */
        if (dev->subgroup < 8 || dev->subgroup > 4 * s->MSize) continue;
        if (s->MSize * s->NSize * s->KSize <= size) continue;
        size = s->MSize * s->NSize * s->KSize;
        *best = (struct vk_matrix_shape){s->MSize, s->NSize, s->KSize, outs};
    }
    return size > 0;
}

static bool takes_group(const ebro_dev *dev, uint32_t shared_bytes) {
    uint32_t threads = EB_MATRIX_SUBGROUPS * dev->subgroup;
    return dev->limits.maxComputeSharedMemorySize >= shared_bytes &&
           dev->limits.maxComputeWorkGroupInvocations >= threads &&
           dev->limits.maxComputeWorkGroupSize[0] >= threads &&
           (dev->max_subgroups == 0 || dev->max_subgroups >= EB_MATRIX_SUBGROUPS);
}

uint64_t vk_matrix_caps(ebro_dev *dev) {
    VkCooperativeMatrixPropertiesKHR shapes[MAX_SHAPES];
    struct found f;
    uint64_t bits = 0;
    if (!vk_has_extension(&dev->api, dev->physical, VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME))
        return 0;
    bool with_bf16 =
        vk_has_extension(&dev->api, dev->physical, VK_KHR_SHADER_BFLOAT16_EXTENSION_NAME);
    read_features(dev, with_bf16, &f);
    if (!f.v12.vulkanMemoryModel || !f.matrix.matrix.cooperativeMatrix || !in_compute(dev))
        return 0;
    uint32_t n = read_shapes(dev, shapes);
    if (f.matrix.bf16.shaderBFloat16Type && f.matrix.bf16.shaderBFloat16CooperativeMatrix &&
        dev->subgroup == VK_BF16_SUBGROUP && takes_group(dev, VK_BF16_SHARED_BYTES) &&
        has_bf16_shape(shapes, n))
        bits |= EBRO_CAP_MATRIX | EBRO_CAP_BF16;
    if (f.v12.shaderFloat16 && takes_group(dev, VK_F16_SHARED_BYTES) &&
        find_f16_shape(dev, shapes, n, &dev->f16_shape))
        bits |= EBRO_CAP_MATRIX | EBRO_CAP_F16;
    return bits;
}
