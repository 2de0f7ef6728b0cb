/* rows.glsl: elementwise work over the rows of a matrix, four columns at a time.
 *
 * A row is cut into n_chunks of 4 * lanes columns; `lanes` neighbouring threads work on one, and a
 * workgroup on THREADS / lanes (eb_split_rows). */

/* What this thread works on: columns [col, col + 4) of a row. False: nothing. */
bool row_place(uint lanes, uint n_chunks, uint n_rows, uint n_cols, out uint row, out uint col) {
    uint item = GROUP * (THREADS / lanes) + THREAD / lanes;
    row = item / n_chunks;
    col = (item % n_chunks * lanes + (THREAD & (lanes - 1u))) * 4u;
    return row < n_rows && col < n_cols;
}

/* Elements i .. i + 3 of a row of n, zeros behind its end. i is a multiple of 4; wide: the row
 * starts at a multiple of four elements. */
vec4 load4(uvec2 at, uint i, uint n, uint dtype, bool wide) {
    if (wide && i + 4u <= n) {
        if (dtype == F32) return PVec4(at).v[i / 4u];
        uvec2 w = PUvec2(at).v[i / 4u];
        if (dtype == F16) return vec4(unpackHalf2x16(w.x), unpackHalf2x16(w.y));
        return uintBitsToFloat(uvec4(w.x << 16u, w.x & 0xffff0000u, w.y << 16u, w.y & 0xffff0000u));
    }
    vec4 v = vec4(0.0);
    [[unroll]] for (uint j = 0u; j < 4u; j++) {
        if (i + j < n) v[j] = load(at, i + j, dtype);
    }
    return v;
}

/* The same to an f32 row. */
void store4(uvec2 at, uint i, uint n, vec4 v, bool wide) {
    if (wide && i + 4u <= n) {
        PVec4(at).v[i / 4u] = v;
        return;
    }
    [[unroll]] for (uint j = 0u; j < 4u; j++) {
        if (i + j < n) PF32(at).v[i + j] = v[j];
    }
}
