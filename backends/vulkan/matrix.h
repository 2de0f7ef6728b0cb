/* matrix.h: whether a device has matrix units that the matrix rung can use, of which type and
 * shape, and what turns them on: VK_KHR_cooperative_matrix and VK_KHR_shader_bfloat16, which older
 * headers do not know.
 */
#ifndef EB_VULKAN_MATRIX_H
#define EB_VULKAN_MATRIX_H

#include "backends/vulkan/vulkan.h"

/* As the registry of Vulkan numbers and lays them out. */
#ifndef VK_KHR_cooperative_matrix
#define VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME "VK_KHR_cooperative_matrix"
#define VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR \
    ((VkStructureType)1000506000)
#define VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR ((VkStructureType)1000506001)
#define VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_PROPERTIES_KHR \
    ((VkStructureType)1000506002)
#define VK_COMPONENT_TYPE_FLOAT16_KHR 0
#define VK_COMPONENT_TYPE_FLOAT32_KHR 1
#define VK_SCOPE_SUBGROUP_KHR 3
typedef int32_t VkComponentTypeKHR;
typedef int32_t VkScopeKHR;
typedef struct VkCooperativeMatrixPropertiesKHR {
    VkStructureType sType;
    void *pNext;
    uint32_t MSize, NSize, KSize;
    VkComponentTypeKHR AType, BType, CType, ResultType;
    VkBool32 saturatingAccumulation;
    VkScopeKHR scope;
} VkCooperativeMatrixPropertiesKHR;
typedef struct VkPhysicalDeviceCooperativeMatrixFeaturesKHR {
    VkStructureType sType;
    void *pNext;
    VkBool32 cooperativeMatrix, cooperativeMatrixRobustBufferAccess;
} VkPhysicalDeviceCooperativeMatrixFeaturesKHR;
typedef struct VkPhysicalDeviceCooperativeMatrixPropertiesKHR {
    VkStructureType sType;
    void *pNext;
    VkShaderStageFlags cooperativeMatrixSupportedStages;
} VkPhysicalDeviceCooperativeMatrixPropertiesKHR;
typedef VkResult(VKAPI_PTR *PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR)(
    VkPhysicalDevice device, uint32_t *count, VkCooperativeMatrixPropertiesKHR *properties);
#endif
#ifndef VK_KHR_shader_bfloat16
#define VK_KHR_SHADER_BFLOAT16_EXTENSION_NAME "VK_KHR_shader_bfloat16"
#define VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_BFLOAT16_FEATURES_KHR ((VkStructureType)1000141000)
#define VK_COMPONENT_TYPE_BFLOAT16_KHR 1000141000
typedef struct VkPhysicalDeviceShaderBfloat16FeaturesKHR {
    VkStructureType sType;
    void *pNext;
    VkBool32 shaderBFloat16Type, shaderBFloat16DotProduct, shaderBFloat16CooperativeMatrix;
} VkPhysicalDeviceShaderBfloat16FeaturesKHR;
#endif

/* Of shaders/vulkan/product_matrix.glsl. */
enum {
    VK_MATRIX_FEW_OUTS = 2,   /* for EB_MATRIX_OUTS on a processor, which compiles for longer */
    VK_MATRIX_FIRST_SPEC = 4, /* place of the f16 kernels' shape among their own constants */
    VK_MATRIX_SPECS = 8,      /* constants of a kernel that has them */
    VK_BF16_SUBGROUP = 32,    /* threads of a subgroup of the bf16 kernels */
    VK_BF16_SHARED_BYTES = 20480,
    VK_F16_SHARED_BYTES = VK_BF16_SHARED_BYTES + 4 * 16 * (EB_MATRIX_ROWS + EB_MATRIX_OUTS)
};

/* Features to turn on, a chain: bf16, matrix. Without bf16 it starts at matrix. */
struct vk_matrix_features {
    VkPhysicalDeviceShaderBfloat16FeaturesKHR bf16;
    VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrix;
};

/* Zeroed but for what Vulkan wants there, `next` behind it. */
void vk_matrix_chain(struct vk_matrix_features *f, void *next);

/* EBRO_CAP_MATRIX with EBRO_CAP_BF16, EBRO_CAP_F16 or both, where extensions, features, a shape
 * that the driver lists and limits are all there for kernels of that type; else 0. Drivers do not
 * catch misuse, some give wrong results without a word: so all of it is asked. dev->limits and
 * dev->subgroup are set; sets dev->f16_shape. */
uint64_t vk_matrix_caps(ebro_dev *dev);

/* Whether all of `bits` (EBRO_CAP_*) are used on this device. */
static inline bool vk_has_caps(const ebro_dev *dev, uint64_t bits) {
    return (dev->caps.bits & bits) == bits;
}

/* Whether a kernel's variant is one for matrix units, and its workgroup fits the device. */
static inline bool vk_matrix_fits(const ebro_dev *dev, enum vk_kernel kernel, uint32_t threads,
                                  uint32_t shared_bytes) {
    return (dev->variants[kernel]->needs & EBRO_CAP_MATRIX) != 0 &&
           dev->limits.maxComputeWorkGroupInvocations >= threads &&
           dev->limits.maxComputeSharedMemorySize >= shared_bytes;
}

#endif
