/* spirv.h: what a kernel's code says of itself, so that host and kernel cannot disagree unnoticed:
 * the constants that it takes, and the memory that a workgroup shares with them set. */
#ifndef EB_VULKAN_SPIRV_H
#define EB_VULKAN_SPIRV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vk_spirv {
    uint32_t n_constants;  /* the highest id of a specialization constant, plus 1 */
    uint64_t shared_bytes; /* of Workgroup variables */
};

/* Reads a module of n words. values[i] is that of constant i, for i < n_values; others have their
 * defaults. `ids` is room for n_ids results of the module, at least its bound (code[3]). False: not
 * a module, or one with an array whose length is computed in a way that this does not know. */
struct vk_spirv_id {
    uint64_t value; /* of a constant; bytes of a type */
    uint32_t what;  /* private */
    uint32_t spec;  /* id of a specialization constant, plus 1 */
};
bool vk_spirv_read(const uint32_t *code, size_t n, const uint32_t *values, uint32_t n_values,
                   struct vk_spirv_id *ids, uint32_t n_ids, struct vk_spirv *out);

#endif
