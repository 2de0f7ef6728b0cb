/* hazard.h: which launches and copies must wait for which. One list of what was touched since the
 * last barrier; what conflicts with it asks for the next one. */
#ifndef EB_VULKAN_HAZARD_H
#define EB_VULKAN_HAZARD_H

#include "backends/vulkan/vulkan.h"

enum { VK_MAX_PENDING = 128 };

struct vk_hazards {
    struct vk_access pending[VK_MAX_PENDING];
    uint32_t n;
    bool any, any_read, any_write; /* something; something through a table */
};

/* Whether work that touches this must wait for what is pending. */
bool vk_hazard_waits(const struct vk_hazards *h, const struct vk_access *accesses, uint32_t n,
                     bool reads_any, bool writes_any);
/* Notes it as pending, after vk_hazard_clear where it had to wait. */
void vk_hazard_note(struct vk_hazards *h, const struct vk_access *accesses, uint32_t n,
                    bool reads_any, bool writes_any);
/* A barrier was recorded: nothing is pending. */
void vk_hazard_clear(struct vk_hazards *h);

#endif
