/* host.c: the list of host copies and its limit. */
#include "mem/host.h"

static void unlink_copy(struct eb_host *h, struct eb_host_copy *c) {
    if (c->older != NULL)
        c->older->newer = c->newer;
    else
        h->oldest = c->newer;
    if (c->newer != NULL)
        c->newer->older = c->older;
    else
        h->newest = c->older;
}

static void link_newest(struct eb_host *h, struct eb_host_copy *c) {
    c->older = h->newest;
    c->newer = NULL;
    if (h->newest != NULL)
        h->newest->newer = c;
    else
        h->oldest = c;
    h->newest = c;
}

static void free_copy(struct eb_host *h, struct eb_host_copy *c) {
    eb_free(&h->alloc, c->data);
    eb_free(&h->alloc, c);
}

void eb_host_drop(struct eb_host *h, struct eb_node *node) {
    struct eb_host_copy *c = node->host;
    if (c == NULL) return;
    node->host = NULL;
    unlink_copy(h, c);
    h->used -= c->bytes;
    h->n--;
    free_copy(h, c);
    eb_prefix_let_go(h->prefix, node);
}

void eb_host_clear(struct eb_host *h) {
    while (h->oldest != NULL) eb_host_drop(h, h->oldest->node);
}

/* The copy's blocks: pages from position 0, then the slot's. */
static int32_t fill(struct eb_host *h, struct eb_host_copy *c, ebro_error *err) {
    if (h->call.save == NULL) return EBRO_OK;
    c->data = eb_calloc(&h->alloc, 1, c->bytes, err);
    uint32_t *blocks = eb_calloc(&h->alloc, c->n_blocks, sizeof *blocks, err);
    int32_t st = c->data == NULL || blocks == NULL ? EBRO_NOMEM_HOST : EBRO_OK;
    if (st == EBRO_OK) {
        eb_prefix_pages(h->prefix, c->node, blocks);
        const struct eb_slot *slot = c->node->snapshot;
        for (uint32_t i = 0; i < slot->n_blocks; i++) blocks[c->n_pages + i] = slot->blocks[i];
        st = h->call.save(h->call.user, blocks, c->n_blocks, c->data, err);
    }
    eb_free(&h->alloc, blocks);
    return st;
}

bool eb_host_save(struct eb_host *h, struct eb_node *node) {
    if (node->host != NULL) {
        unlink_copy(h, node->host);
        link_newest(h, node->host);
        return true;
    }
    uint32_t n_pages = eb_prefix_page_count(h->prefix, eb_node_end(node));
    uint32_t n_blocks = n_pages + node->snapshot->n_blocks;
    uint64_t bytes = n_blocks * h->prefix->blocks->block_bytes;
    if (bytes > h->limit) return false;
    struct eb_host_copy *c = eb_calloc(&h->alloc, 1, sizeof *c, NULL);
    if (c == NULL) return false;
    *c = (struct eb_host_copy){
        .node = node, .bytes = bytes, .n_pages = n_pages, .n_blocks = n_blocks};
    /* Room first: the limit holds at every moment. */
    while (h->used + bytes > h->limit) {
        struct eb_host_copy *out = h->oldest != h->pinned ? h->oldest : h->pinned->newer;
        if (out == NULL) break;
        eb_host_drop(h, out->node);
    }
    if (h->used + bytes > h->limit) {
        free_copy(h, c);
        return false;
    }
    if (fill(h, c, NULL) != EBRO_OK) {
        free_copy(h, c);
        return false;
    }
    node->host = c;
    link_newest(h, c);
    h->used += bytes;
    h->n++;
    return true;
}

void eb_host_pin(struct eb_host *h, struct eb_node *node, bool on) {
    h->pinned = on ? node->host : NULL;
}

int32_t eb_host_load(struct eb_host *h, struct eb_node *node, const uint32_t *blocks,
                     ebro_error *err) {
    struct eb_host_copy *c = node->host;
    unlink_copy(h, c);
    link_newest(h, c);
    if (h->call.load == NULL) return EBRO_OK;
    return h->call.load(h->call.user, blocks, c->n_blocks, c->data, err);
}
