/* bytes.glsl: bytes at any alignment, in aligned units of 16 that are written whole where they
 * belong to the range whole. Words that belong to it in part are changed by atomics, so that two
 * ranges may share a word. */

/* The part of chunk number `chunk` (of chunk_bytes, a multiple of 16, cut from the aligned unit
 * that holds `at` on) which lies in [at, at + bytes): from .x to .y, relative to the chunk. */
uvec2 chunk_part(uvec2 at, uvec2 bytes, uint chunk, uint chunk_bytes) {
    uint high, low, borrow, first = at.x & 15u;
    umulExtended(chunk, chunk_bytes, high, low);
    uvec2 end = plus(bytes, first);
    uint rest = usubBorrow(end.x, low, borrow);
    uint rest_high = end.y - high - borrow;
    if (int(rest_high) < 0) return uvec2(0u);
    return uvec2(chunk == 0u ? first : 0u, rest_high > 0u ? chunk_bytes : min(rest, chunk_bytes));
}

/* The unit at `at`, of which bytes [first, end) change. */
void store_unit(uvec2 at, uvec4 v, uint first, uint end) {
    if (first == 0u && end == 16u) {
        PUvec4(at).v[0] = v;
        return;
    }
    for (uint w = first / 4u; w * 4u < end; w++) {
        uint a = max(first, w * 4u) - w * 4u, b = min(end, w * 4u + 4u) - w * 4u;
        uint mask = (0xffffffffu >> (32u - (b - a) * 8u)) << (a * 8u);
        if (mask == 0xffffffffu) {
            PU32(at).v[w] = v[w];
        } else {
            atomicAnd(PU32(at).v[w], ~mask);
            atomicOr(PU32(at).v[w], v[w] & mask);
        }
    }
}

/* The 16 bytes at src, of which only [first, end), and the aligned words around, may be read. */
uvec4 load_unit(uvec2 src, uint first, uint end) {
    if ((src.x & 15u) == 0u && first == 0u && end == 16u) return PUvec4(src).v[0];
    uint skip = src.x & 3u, word[5];
    uvec2 base = uvec2(src.x & ~3u, src.y);
    /* Word k holds bytes [4k - skip, 4k - skip + 4) of the unit. */
    [[unroll]] for (uint k = 0u; k < 5u; k++) {
        bool used = 4u * k + 4u > first + skip && 4u * k < end + skip;
        word[k] = used ? PU32(base).v[k] : 0u;
    }
    if (skip == 0u) return uvec4(word[0], word[1], word[2], word[3]);
    uint down = skip * 8u, up = 32u - down;
    return (uvec4(word[0], word[1], word[2], word[3]) >> down) |
           (uvec4(word[1], word[2], word[3], word[4]) << up);
}
