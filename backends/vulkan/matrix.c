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

static bool has_features(const ebro_dev *dev) {
    struct vk_matrix_features f;
    vk_matrix_chain(&f, NULL);
    VkPhysicalDeviceVulkan12Features v12 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, .pNext = &f.bf16};
    VkPhysicalDeviceFeatures2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                     .pNext = &v12};
    dev->api.GetPhysicalDeviceFeatures2(dev->physical, &all);
    return v12.vulkanMemoryModel && f.matrix.cooperativeMatrix && f.bf16.shaderBFloat16Type &&
           f.bf16.shaderBFloat16CooperativeMatrix;
}

static bool in_compute(const ebro_dev *dev) {
    VkPhysicalDeviceCooperativeMatrixPropertiesKHR matrix = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_PROPERTIES_KHR};
    VkPhysicalDeviceProperties2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                       .pNext = &matrix};
    dev->api.GetPhysicalDeviceProperties2(dev->physical, &all);
    return matrix.cooperativeMatrixSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT;
}

static bool has_shape(const ebro_dev *dev) {
    PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR list =
        (PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR)dev->api.GetInstanceProcAddr(
            dev->api.instance, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR");
    VkCooperativeMatrixPropertiesKHR shapes[MAX_SHAPES];
    uint32_t n = MAX_SHAPES;
    if (list == NULL) return false;
    for (uint32_t i = 0; i < MAX_SHAPES; i++) {
        shapes[i] = (VkCooperativeMatrixPropertiesKHR){
            .sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR};
    }
    VkResult r = list(dev->physical, &n, shapes);
    if (r != VK_SUCCESS && r != VK_INCOMPLETE) return false;
    for (uint32_t i = 0; i < n; i++) {
        const VkCooperativeMatrixPropertiesKHR *s = &shapes[i];
        if (s->MSize == VK_MATRIX_EDGE && s->NSize == VK_MATRIX_EDGE &&
            s->KSize == VK_MATRIX_EDGE && s->AType == VK_COMPONENT_TYPE_BFLOAT16_KHR &&
            s->BType == VK_COMPONENT_TYPE_BFLOAT16_KHR &&
            s->CType == VK_COMPONENT_TYPE_FLOAT32_KHR &&
            s->ResultType == VK_COMPONENT_TYPE_FLOAT32_KHR && s->scope == VK_SCOPE_SUBGROUP_KHR)
            return true;
    }
    return false;
}

bool vk_matrix_usable(const ebro_dev *dev) {
    if (dev->subgroup != VK_MATRIX_SUBGROUP ||
        dev->limits.maxComputeSharedMemorySize < VK_MATRIX_SHARED_BYTES)
        return false;
    return vk_has_extension(&dev->api, dev->physical, VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME) &&
           vk_has_extension(&dev->api, dev->physical, VK_KHR_SHADER_BFLOAT16_EXTENSION_NAME) &&
           has_features(dev) && in_compute(dev) && has_shape(dev);
}
