/* order.glsl: total orders over floats, for choices whose ties fall the same way everywhere. */

/* Rises with x; 0 and -0 are alike, NaN is below all numbers and the only 0. */
uint order_key(float x) {
    uint u = floatBitsToUint(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return 0u;
    if ((u & 0x7fffffffu) == 0u) u = 0u;
    return (u & 0x80000000u) != 0u ? ~u : u | 0x80000000u;
}

/* The number whose key it is. */
float order_value(uint key) {
    return uintBitsToFloat((key & 0x80000000u) != 0u ? key & 0x7fffffffu : ~key);
}

/* A candidate: its key, then the complement of its index, so that ties go to the lower one. */
bool ranks_above(uvec2 a, uvec2 b) {
    return a.x > b.x || (a.x == b.x && a.y > b.y);
}

#ifdef EB_ORDER_REDUCE
shared uvec2 order_parts[256];

/* The best candidate of the workgroup. Called by all threads; all get it. */
#ifdef EB_SUBGROUP
uvec2 subgroup_best(uvec2 x) {
    uint key = subgroupMax(x.x);
    return uvec2(key, subgroupMax(x.x == key ? x.y : 0u));
}

uvec2 group_best(uvec2 x) {
    barrier();
    x = subgroup_best(x);
    if (subgroupElect()) order_parts[gl_SubgroupID] = x;
    barrier();
    x = uvec2(0u);
    for (uint i = gl_SubgroupInvocationID; i < THREADS / SUBGROUP; i += SUBGROUP) {
        if (ranks_above(order_parts[i], x)) x = order_parts[i];
    }
    return subgroup_best(x);
}
#else
uvec2 group_best(uvec2 x) {
    barrier();
    order_parts[THREAD] = x;
    barrier();
    for (uint n = THREADS / 2u; n > 0u; n /= 2u) {
        if (THREAD < n && ranks_above(order_parts[THREAD + n], order_parts[THREAD])) {
            order_parts[THREAD] = order_parts[THREAD + n];
        }
        barrier();
    }
    return order_parts[0];
}
#endif
#endif
