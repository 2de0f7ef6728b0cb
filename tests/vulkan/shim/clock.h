/* clock.h: the shim's clock: what command buffers would take on the device that shim_clock
 * describes. Private to the shim. Everything here is under the shim's lock. */
#ifndef EB_TEST_VULKAN_CLOCK_H
#define EB_TEST_VULKAN_CLOCK_H

#include "tests/vulkan/shim/shim.h"

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>

/* A module and a pipeline of it were made. Workgroups differ in cost by their code. */
void clock_module(VkShaderModule module, const void *code, size_t bytes);
void clock_pipeline(VkPipeline pipeline, VkShaderModule module);
/* A command buffer begins anew, runs groups in its pipeline, others inside it. */
void clock_begin(VkCommandBuffer commands);
void clock_bind(VkCommandBuffer commands, VkPipeline pipeline);
void clock_dispatch(const struct shim_clock *c, VkCommandBuffer commands, uint64_t groups);
void clock_copy(const struct shim_clock *c, VkCommandBuffer commands, uint64_t bytes);
void clock_execute(VkCommandBuffer commands, uint32_t n, const VkCommandBuffer *others);
/* Nanoseconds of all that it holds. */
uint64_t clock_of(VkCommandBuffer commands);
/* A timestamp, and what it says. */
void clock_stamp(VkCommandBuffer commands, VkQueryPool pool, uint32_t query);
uint64_t clock_stamped(VkQueryPool pool, uint32_t query);

#endif
