/* order.cuh: total orders over floats, for choices whose ties fall the same way everywhere. */
#ifndef EB_ORDER_CUH
#define EB_ORDER_CUH

#include "wave.cuh"

typedef unsigned long long eb_u64;

/* Rises with x; 0 and -0 are alike, NaN is below all numbers and the only 0. */
EB_DEVICE unsigned order_key(float x) {
    unsigned u = bits_of(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return 0;
    if ((u & 0x7fffffffu) == 0) u = 0;
    return (u & 0x80000000u) != 0 ? ~u : u | 0x80000000u;
}

/* The number whose key it is. */
EB_DEVICE float order_value(unsigned key) {
    return float_of((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}

/* A candidate as one number: its key above the complement of its index, so that ties go to the
 * lower index. 0: none. */
EB_DEVICE eb_u64 candidate_of(unsigned key, unsigned index) {
    return (eb_u64)key << 32 | ~index;
}
EB_DEVICE unsigned key_of(eb_u64 candidate) {
    return (unsigned)(candidate >> 32);
}
EB_DEVICE unsigned index_of(eb_u64 candidate) {
    return ~(unsigned)candidate;
}

EB_DEVICE eb_u64 larger(eb_u64 a, eb_u64 b) {
    return a > b ? a : b;
}

/* The largest number of a block of at most 32 waves, for all its threads; `parts` as in block_sum.
 */
EB_DEVICE eb_u64 block_largest(eb_u64 x, eb_u64 *parts) {
    for (unsigned m = EB_WAVE / 2; m > 0; m /= 2) x = larger(x, shuffle_xor(x, m));
    sync_block();
    if (lane_id() == 0) parts[wave_id()] = x;
    sync_block();
    x = parts[0];
    for (unsigned w = 1; w < n_waves(); w++) x = larger(x, parts[w]);
    return x;
}

#endif
