/* stream.h: a stream: batches of recorded work in a ring, one timeline semaphore that counts them.
 *
 * Work is recorded into the current batch. A batch is submitted by ebro's submit, and earlier when
 * more would make it run for longer than a quarter of a second (pace.h). When its ticket has passed
 * it is retired: its downloads are handed over, its time is learned from, and it can be recorded
 * anew. */
#ifndef EB_VULKAN_STREAM_H
#define EB_VULKAN_STREAM_H

#include "backends/vulkan/hazard.h"
#include "backends/vulkan/pace.h"

enum {
    VK_N_BATCHES = 4,
    VK_MAX_DOWNLOADS = 64,
    VK_ARGS_BYTES = 256 << 10, /* of arguments in memory, a batch */
    VK_UPLOAD_BYTES = 8 << 20, /* of staging, a batch */
    VK_READBACK_BYTES = 8 << 20
};

/* A piece of host-visible memory that is handed out from its start; made on first use. */
struct vk_arena {
    ebro_mem *mem;
    uint64_t used;
};

/* Takes from it; *offset is aligned to 64. EBRO_TIMEOUT: it is full (no error text). */
int32_t vk_arena_take(ebro_dev *dev, struct vk_arena *arena, uint64_t capacity, uint32_t kind,
                      uint64_t bytes, uint64_t *offset, ebro_error *err);

/* A command buffer in the making: a batch's, or a graph's. */
struct vk_recorder {
    VkCommandBuffer commands;
    struct vk_hazards hazards;
    VkPipeline bound;
    struct vk_arena args;
    struct vk_mix mix; /* what it holds */
    double ns;         /* about how long that takes */
    bool is_trial;     /* it holds work of a new kind (pace.h), and nothing else */
};

/* Bytes that arrived in a batch's readback memory, to be handed over when it retires. */
struct vk_download {
    void *to;
    uint64_t offset, bytes;
};

struct vk_batch {
    struct vk_recorder recorder;
    VkCommandPool pool;
    uint64_t ticket; /* 0: not submitted, or retired */
    struct vk_arena upload, readback;
    struct vk_download downloads[VK_MAX_DOWNLOADS];
    uint32_t n_downloads;
};

struct ebro_stream {
    ebro_dev *dev;
    VkSemaphore timeline;
    VkQueryPool times; /* begin and end of each batch; null where the queue has no clock */
    struct vk_batch batches[VK_N_BATCHES];
    uint32_t current;
    bool recording;     /* the current batch */
    ebro_graph *graph;  /* what launches go into instead, between graph_begin and graph_end */
    uint64_t submitted; /* the last ticket given out */
};

int32_t vk_stream_open(ebro_dev *dev, ebro_stream **out, ebro_error *err);
void vk_stream_close(ebro_stream *s);
int32_t vk_submit(ebro_stream *s, uint64_t *ticket, ebro_error *err);
int32_t vk_wait(ebro_stream *s, uint64_t ticket, uint64_t timeout_ns, ebro_error *err);

/* The batch that is recorded, begun now if need be. */
int32_t vk_stream_batch(ebro_stream *s, struct vk_batch **out, ebro_error *err);
/* Where the next launch or copy on the device is recorded: the current batch, or the graph. */
int32_t vk_stream_recorder(ebro_stream *s, struct vk_recorder **out, ebro_error *err);
/* Submits what is recorded, if anything. */
int32_t vk_stream_flush(ebro_stream *s, ebro_error *err);
/* How many of n equal units of work (of one kind, together a launch or a copy) are to be recorded
 * now, one at least: those that the current batch, or the graph's part, has time for. A batch that
 * has none is submitted first. To be asked before anything of the batch's memory is taken. */
int32_t vk_stream_room(ebro_stream *s, uint32_t kind, uint64_t n, double unit_work, uint64_t *now,
                       ebro_error *err);
/* That a launch or a copy with so much work was recorded. */
void vk_stream_worked(ebro_stream *s, struct vk_recorder *r, uint32_t kind, double work);
/* Nothing recorded, nothing pending: the host may touch mapped memory itself. */
bool vk_stream_idle(ebro_stream *s);

/* Records a barrier where what is pending asks for one, then notes the accesses. */
void vk_order(const ebro_dev *dev, struct vk_recorder *r, const struct vk_access *accesses,
              uint32_t n, bool reads_any, bool writes_any);

/* Everything before is seen by everything after. */
void vk_full_barrier(const ebro_dev *dev, VkCommandBuffer commands);
/* Memory of an arena goes back. */
void vk_arena_free(ebro_dev *dev, struct vk_arena *arena);

/* graph.c */
struct vk_recorder *vk_graph_recorder(ebro_graph *g);
/* What follows goes into another part of the graph: parts may be submitted one by one. */
int32_t vk_graph_part(ebro_stream *s, ebro_error *err);
/* Room for the arguments of a launch; they stay as long as the graph. */
int32_t vk_graph_args(ebro_stream *s, uint64_t bytes, const ebro_mem **mem, uint64_t *offset,
                      ebro_error *err);
int32_t vk_graph_begin(ebro_stream *s, ebro_error *err);
int32_t vk_graph_end(ebro_stream *s, ebro_graph **out, ebro_error *err);
int32_t vk_graph_launch(ebro_stream *s, ebro_graph *g, ebro_error *err);
void vk_graph_free(ebro_dev *dev, ebro_graph *g);

/* copy.c */
int32_t vk_copy(ebro_stream *s, const ebro_copy_args *a, ebro_error *err);
/* op_copy.c: at any alignment. */
int32_t vk_fill(ebro_stream *s, ebro_span dst, uint8_t value, uint64_t bytes, ebro_error *err);

#endif
