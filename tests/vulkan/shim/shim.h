/* shim.h: a loader of Vulkan for tests. Its soname is libvulkan.so.1 and test programs link it, so
 * that the backend finds it in the place of the real loader, to which it hands everything on. On
 * the way it takes limits down, moves memory into heaps of other sizes, lets calls fail, gives the
 * device another clock, and counts what is made and what is given back. All zero, it changes
 * nothing.
 *
 * Settings are read whenever a call comes by; set limits before a device is opened. One thread at a
 * time sets them; calls may come from any. Programs that do not know the shim find it by
 * LD_LIBRARY_PATH: EBRO_TEST_SMALL_DEVICE gives devices at most 5 workgroups in the first dimension
 * and 16 KiB of shared memory. */
#ifndef EB_TEST_VULKAN_SHIM_H
#define EB_TEST_VULKAN_SHIM_H

#include <stdbool.h>
#include <stdint.h>

/* Limits, of every device; 0: as the driver says. */
struct shim_limits {
    uint64_t allocation_bytes; /* maxMemoryAllocationSize */
    uint64_t buffer_bytes;     /* maxBufferSize */
    uint32_t binding_bytes;    /* maxStorageBufferRange */
    uint32_t groups;           /* maxComputeWorkGroupCount[0] */
    uint32_t shared_bytes;     /* maxComputeSharedMemorySize */
    bool integrated;           /* not a limit: what shares the host's memory, whatever it is */
};

/* Other memory, where local_bytes is not 0: that of a card, which sees the host's; and of its own
 * memory the host sees a window, which is a heap by itself (0: none). What is over a heap fails. */
struct shim_heaps {
    uint64_t local_bytes, host_bytes, window_bytes;
};

/* The n-th such call from now on, 1 for the next, fails; 0: none. A device that is lost stays so.
 */
struct shim_faults {
    uint32_t allocation; /* with VK_ERROR_OUT_OF_DEVICE_MEMORY */
    uint32_t submit;     /* the device is lost */
    uint32_t wait;       /* the same */
    bool imports;        /* not a number: every import of host memory */
};

/* A device's time, where any of these is not 0: what a command buffer takes follows from what it
 * holds, the timestamps say so, and nothing else takes time. */
struct shim_clock {
    uint64_t launch_ns, group_ns, copy_kib_ns; /* of a launch, of a workgroup, of 1,024 bytes */
    bool uneven;       /* not a time: workgroups of some kernels take up to 16 times as long */
    uint64_t limit_ns; /* a submission that takes longer loses the device */
    bool dry;          /* not a time: nothing is computed, memory is made of zeros */
};

struct shim_seen {
    uint64_t allocations, submits, dispatches; /* calls */
    uint64_t live_allocations, live_buffers, live_pipelines, live_devices, live_instances;
    uint64_t live_bytes;     /* allocated and not freed */
    uint64_t imported_bytes; /* of them the host\'s, used where they lie */
    uint64_t heap_bytes[3];  /* of shim_heaps: local, host, window */
    uint64_t largest_allocation, largest_buffer;
    uint64_t calls_after_loss;    /* that gave the lost device work */
    uint32_t largest_group_count; /* in one dimension */
    uint64_t largest_grid;        /* workgroups of one dispatch */
    uint64_t longest_ns, all_ns;  /* of shim_clock: one submission, all of them */
};

struct shim {
    struct shim_limits limits;
    struct shim_heaps heaps;
    struct shim_faults faults;
    struct shim_clock clock;
    struct shim_seen seen;
};

/* The one there is. */
struct shim *shim_get(void);

#endif
