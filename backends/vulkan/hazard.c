/* hazard.c: see hazard.h. Reads may pass reads; nothing else passes anything. */
#include "backends/vulkan/hazard.h"

static bool overlap(const struct vk_access *a, const struct vk_access *b) {
    return a->begin < b->end && b->begin < a->end;
}

static bool conflicts(const struct vk_hazards *h, const struct vk_access *a) {
    if (h->any_write || (h->any_read && a->writes)) return true;
    for (uint32_t i = 0; i < h->n; i++) {
        const struct vk_access *p = &h->pending[i];
        if ((p->writes || a->writes) && overlap(p, a)) return true;
    }
    return false;
}

static bool any_pending_write(const struct vk_hazards *h) {
    for (uint32_t i = 0; i < h->n; i++)
        if (h->pending[i].writes) return true;
    return h->any_write;
}

bool vk_hazard_waits(const struct vk_hazards *h, const struct vk_access *accesses, uint32_t n,
                     bool reads_any, bool writes_any) {
    if (!h->any) return false;
    if (writes_any || (reads_any && any_pending_write(h))) return true;
    /* A full list forgets nothing: it makes the next one wait. */
    if (h->n + n > VK_MAX_PENDING) return true;
    for (uint32_t i = 0; i < n; i++)
        if (conflicts(h, &accesses[i])) return true;
    return false;
}

void vk_hazard_note(struct vk_hazards *h, const struct vk_access *accesses, uint32_t n,
                    bool reads_any, bool writes_any) {
    h->any = true;
    h->any_read |= reads_any;
    h->any_write |= writes_any;
    for (uint32_t i = 0; i < n; i++) h->pending[h->n++] = accesses[i];
}

void vk_hazard_clear(struct vk_hazards *h) {
    h->n = 0;
    h->any = h->any_read = h->any_write = false;
}
