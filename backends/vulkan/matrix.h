/* matrix.h: whether a device has the matrix units that the matrix rung is made for, and what turns
 * them on: VK_KHR_cooperative_matrix and VK_KHR_shader_bfloat16, which older headers do not know.
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

enum {
    VK_MATRIX_EDGE = 16,           /* of the shape that shaders/vulkan/product_matrix.glsl uses */
    VK_MATRIX_ROWS = 64,           /* rows of x of one of its groups */
    VK_MATRIX_OUTS = 128,          /* outputs of it */
    VK_MATRIX_SUBGROUP = 32,       /* threads of a subgroup */
    VK_MATRIX_THREADS = 128,       /* of a group */
    VK_MATRIX_SHARED_BYTES = 20480 /* of a group */
};

/* Features to turn on; a link of the chain that starts at `bf16`. */
struct vk_matrix_features {
    VkPhysicalDeviceShaderBfloat16FeaturesKHR bf16;
    VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrix;
};

/* Zeroed but for what Vulkan wants there, `next` behind it. */
void vk_matrix_chain(struct vk_matrix_features *f, void *next);

/* Whether extensions, features, shape and limits are all there. Drivers do not catch misuse, some
 * give wrong results without a word: so all of it is asked. dev->limits and dev->subgroup are set.
 */
bool vk_matrix_usable(const ebro_dev *dev);

#endif
