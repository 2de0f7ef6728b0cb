/* simt.h: how kernels of shaders/cuda_hip see the SIMT emulation: what wave.cuh gives them on a
 * GPU, on a processor. A C++ compiler reads the kernels with EB_SIMT defined, EB_WAVE being the
 * width of a wave.
 *
 * Every thread of a block is a fiber with a stack of its own (fiber.h). One runs until it comes to
 * an operation that needs others, a wave's or the block's; then the next one runs. So threads run
 * in an order that no GPU has, which EBRO_SIMT_ORDER chooses (simt.cc), and what a barrier should
 * have kept apart is not. Shared memory is filled with NaN when a block begins.
 *
 * Errors of kernels end the launch with a text and "launch failed" for the driver's caller: a wave
 * operation or a sync_block() that some threads of the wave or block do not come to. */
#ifndef EB_TESTS_SIMT_H
#define EB_TESTS_SIMT_H

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#ifndef EB_WAVE
#error "EB_WAVE: the number of threads of a wave"
#endif

namespace simt {

/* Of the thread that runs. */
struct position {
    unsigned thread, n_threads, block, n_blocks;
};
extern position here;

/* Room for what a thread shows to its wave. */
enum { SLOT_BYTES = 64 };

/* Comes back when all threads of the block called it. */
void block_sync();
/* Shows `bytes` to the wave and comes back when all of it did the same, with an array of slots, one
 * for each lane, valid until the thread's next wave operation. `kind` tells operations apart. */
typedef unsigned char slot[SLOT_BYTES];
const slot *wave_show(const char *kind, const void *value, size_t bytes);
/* Shared memory that the kernel declares: made NaN by the first thread of a block that comes here.
 */
void shared_begin(void *memory, size_t bytes);
void *dynamic_shared();

struct kernel {
    const char *name;
    size_t args_bytes;
    void (*run)(const void *args);
    kernel *next;
    kernel(const char *name, size_t args_bytes, void (*run)(const void *args));
};
/* NULL: there is none of that name. */
const kernel *find_kernel(const char *name);

/* Runs all blocks; false, with `text` filled: the kernel broke a rule. */
bool launch(const kernel *k, const void *args, unsigned n_blocks, unsigned n_threads,
            size_t shared_bytes, char *text, size_t text_bytes);

}  // namespace simt

#define EB_DEVICE inline
#define EB_UNROLL
#define EB_KERNEL(name, args, threads)                                                   \
    static void simt_body_##name(const struct args &A);                                  \
    static void simt_run_##name(const void *a) {                                         \
        simt_body_##name(*(const struct args *)a);                                       \
    }                                                                                    \
    static simt::kernel simt_kernel_##name(#name, sizeof(struct args), simt_run_##name); \
    static void simt_body_##name([[maybe_unused]] const struct args &A)
#define EB_KERNEL_BLOCKS(name, args, threads, blocks) EB_KERNEL(name, args, threads)
#define EB_SHARED(type, name, dimensions)     \
    typedef type name##_simt_type dimensions; \
    alignas(16) static name##_simt_type name; \
    simt::shared_begin(&name, sizeof name)
#define EB_DYNAMIC_SHARED(type, name) type *name = (type *)simt::dynamic_shared()

EB_DEVICE unsigned thread_id() {
    return simt::here.thread;
}
EB_DEVICE unsigned n_threads() {
    return simt::here.n_threads;
}
EB_DEVICE unsigned block_id() {
    return simt::here.block;
}
EB_DEVICE unsigned n_blocks() {
    return simt::here.n_blocks;
}
EB_DEVICE void sync_block() {
    simt::block_sync();
}
EB_DEVICE void sync_wave() {
    simt::wave_show("sync_wave", nullptr, 0);
}

template <class T>
EB_DEVICE T simt_from_lane(const char *kind, T v, unsigned lane) {
    T out;
    const simt::slot *all = simt::wave_show(kind, &v, sizeof v);
    memcpy(&out, all[lane % EB_WAVE], sizeof out);
    return out;
}
template <class T>
EB_DEVICE T shuffle_xor(T v, unsigned mask) {
    return simt_from_lane("shuffle_xor", v, (simt::here.thread ^ mask));
}
template <class T>
EB_DEVICE T shuffle(T v, unsigned lane) {
    return simt_from_lane("shuffle", v, lane);
}
template <class T>
EB_DEVICE T shuffle_up(T v, unsigned n) {
    unsigned lane = simt::here.thread % EB_WAVE;
    return simt_from_lane("shuffle_up", v, lane >= n ? lane - n : lane);
}
EB_DEVICE unsigned long long wave_ballot(bool p) {
    unsigned long long bits = 0;
    const simt::slot *all = simt::wave_show("ballot", &p, sizeof p);
    for (unsigned i = 0; i < EB_WAVE; i++) bits |= (unsigned long long)(all[i][0] != 0) << i;
    return bits;
}

/* One thread runs at a time. */
template <class T>
EB_DEVICE T atomic_add(T *at, T n) {
    T was = *at;
    *at = was + n;
    return was;
}
EB_DEVICE unsigned bits_of(float f) {
    unsigned u;
    memcpy(&u, &f, sizeof u);
    return u;
}
EB_DEVICE float float_of(unsigned u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

#endif
