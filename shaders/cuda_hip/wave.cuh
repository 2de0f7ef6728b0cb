/* wave.cuh: what kernels are written in: blocks, waves (NVIDIA's warps, AMD's wavefronts), shared
 * memory. The one place that knows which compiler reads the kernel: nvcc, clang for HIP, or a C++
 * compiler for the SIMT emulation of the tests (EB_SIMT, tests/simt).
 *
 * Rules, which the emulation checks: every thread of a wave comes to every wave operation, and
 * every thread of a block to every sync_block(); blocks are whole waves.
 *
 *   EB_KERNEL(name, args, threads) { ... A ... }   A: the argument struct
 *   EB_KERNEL_BLOCKS(name, args, threads, blocks)  so few registers that a processor runs so many
 *   EB_SHARED(type, name, [n]);                    undefined as a block begins; [n] may be absent
 *   EB_DYNAMIC_SHARED(type, name);                 what the launch asked for; aligned to 16
 */
#ifndef EB_WAVE_CUH
#define EB_WAVE_CUH

#ifdef EB_SIMT

#include "tests/simt/simt.h"

#else

#ifdef __HIP_PLATFORM_AMD__
#include <hip/hip_runtime.h>
#endif

#define EB_DEVICE __device__ __forceinline__
#define EB_UNROLL _Pragma("unroll")
#define EB_KERNEL(name, args, threads)                    \
    extern "C" __global__ void __launch_bounds__(threads) \
        name(const __grid_constant__ struct args A)
#define EB_KERNEL_BLOCKS(name, args, threads, blocks)     \
    extern "C" __global__ void EB_BOUNDS(threads, blocks) \
        name(const __grid_constant__ struct args A)
#define EB_SHARED(type, name, dimensions) __shared__ type name dimensions
#define EB_DYNAMIC_SHARED(type, name)                           \
    extern __shared__ __align__(16) unsigned char eb_dynamic[]; \
    type *name = (type *)eb_dynamic

#ifdef __HIP_PLATFORM_AMD__
#undef __grid_constant__
#define __grid_constant__
#define EB_WAVE __AMDGCN_WAVEFRONT_SIZE
/* AMD's second bound counts the waves of one of four units. */
#define EB_BOUNDS(threads, blocks) \
    __launch_bounds__(threads, ((threads) / EB_WAVE * (blocks) + 3) / 4)
#else
#define EB_WAVE 32
#define EB_BOUNDS(threads, blocks) __launch_bounds__(threads, blocks)
#endif

EB_DEVICE unsigned thread_id() {
    return threadIdx.x;
}
EB_DEVICE unsigned n_threads() {
    return blockDim.x;
}
EB_DEVICE unsigned block_id() {
    return blockIdx.x;
}
EB_DEVICE unsigned n_blocks() {
    return gridDim.x;
}

/* Waits for the block; what was written before is seen by all of it after. */
EB_DEVICE void sync_block() {
    __syncthreads();
}

#ifdef __HIP_PLATFORM_AMD__
EB_DEVICE void sync_wave() {
    __builtin_amdgcn_wave_barrier();
    __threadfence_block();
}
template <class T>
EB_DEVICE T shuffle_xor(T v, unsigned mask) {
    return __shfl_xor(v, (int)mask);
}
template <class T>
EB_DEVICE T shuffle(T v, unsigned lane) {
    return __shfl(v, (int)lane);
}
template <class T>
EB_DEVICE T shuffle_up(T v, unsigned n) {
    return __shfl_up(v, n);
}
EB_DEVICE unsigned long long wave_ballot(bool p) {
    return __ballot(p);
}
#else
EB_DEVICE void sync_wave() {
    __syncwarp();
}
template <class T>
EB_DEVICE T shuffle_xor(T v, unsigned mask) {
    return __shfl_xor_sync(0xffffffffu, v, (int)mask);
}
template <class T>
EB_DEVICE T shuffle(T v, unsigned lane) {
    return __shfl_sync(0xffffffffu, v, (int)lane);
}
/* From the lane n below; the lowest n keep their own. */
template <class T>
EB_DEVICE T shuffle_up(T v, unsigned n) {
    return __shfl_up_sync(0xffffffffu, v, n);
}
EB_DEVICE unsigned long long wave_ballot(bool p) {
    return __ballot_sync(0xffffffffu, p);
}
#endif

/* Returns what was there; shared memory or the device's. */
EB_DEVICE unsigned atomic_add(unsigned *at, unsigned n) {
    return atomicAdd(at, n);
}
EB_DEVICE unsigned long long atomic_add(unsigned long long *at, unsigned long long n) {
    return atomicAdd(at, n);
}
EB_DEVICE unsigned bits_of(float f) {
    return __float_as_uint(f);
}
EB_DEVICE float float_of(unsigned bits) {
    return __uint_as_float(bits);
}

#endif

EB_DEVICE unsigned lane_id() {
    return thread_id() % EB_WAVE;
}
EB_DEVICE unsigned wave_id() {
    return thread_id() / EB_WAVE;
}
EB_DEVICE unsigned n_waves() {
    return n_threads() / EB_WAVE;
}

EB_DEVICE float wave_sum(float v) {
    for (unsigned m = EB_WAVE / 2; m > 0; m /= 2) v += shuffle_xor(v, m);
    return v;
}

EB_DEVICE float wave_max(float v) {
    for (unsigned m = EB_WAVE / 2; m > 0; m /= 2) v = fmaxf(v, shuffle_xor(v, m));
    return v;
}

/* Of a block of at most 32 waves, for all its threads. `parts` is 32 floats of shared memory that
 * nothing else uses between two sync_block(). */
EB_DEVICE float block_sum(float v, float *parts) {
    v = wave_sum(v);
    sync_block();
    if (lane_id() == 0) parts[wave_id()] = v;
    sync_block();
    float sum = 0.0f;
    for (unsigned w = 0; w < n_waves(); w++) sum += parts[w];
    return sum;
}

EB_DEVICE float block_max(float v, float *parts) {
    v = wave_max(v);
    sync_block();
    if (lane_id() == 0) parts[wave_id()] = v;
    sync_block();
    float most = parts[0];
    for (unsigned w = 1; w < n_waves(); w++) most = fmaxf(most, parts[w]);
    return most;
}

#endif
