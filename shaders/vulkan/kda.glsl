/* kda.glsl: what the KDA kernels share: sequences and their slots, states and windows four elements
 * at a time, gates. */

/* ---- sequences -------------------------------------------------------------------------- */

uint seq_begin(eb_rows_arg rows, uint s) {
    return uint(PI32(rows.row_offsets).v[s]);
}

/* Unit u of a slot; 0 for slot -1. */
uvec2 slot_unit(eb_region_arg region, int slot, uint u) {
    uvec2 at = uvec2(0u);
    if (slot >= 0) at = unit_of(region, uint(slot), u);
    return at;
}

uvec2 unit_in(eb_state_arg io, uint s, uint u) {
    return slot_unit(io.region, PI32(io.state_in).v[s], u);
}

uvec2 unit_out(eb_state_arg io, uint s, uint u) {
    return slot_unit(io.region, PI32(io.state_out).v[s], u);
}

/* ---- four elements ---------------------------------------------------------------------- */

/* Whether four elements of `size` bytes may be read at once at every fourth one. */
bool aligned4(uvec2 at, uint size) {
    return (at.x & (4u * size - 1u)) == 0u;
}

/* A function with one way out: with several, its result and all that is live stay alive around a
 * loop that compilers make of it.
 *
 * f32 elements i .. i + 3, of which n are there (i < n); the others are zeros. `aligned`: the
 * address is, and n is a multiple of 4. */
vec4 load4(uvec2 at, uint i, uint n, bool aligned) {
    vec4 x = vec4(0.0);
    if (aligned) {
        x = PVec4(at).v[i / 4u];
    } else {
        [[unroll]] for (uint j = 0u; j < 4u; j++)
            if (i + j < n) x[j] = PF32(at).v[i + j];
    }
    return x;
}

void store4(uvec2 at, uint i, uint n, bool aligned, vec4 x) {
    if (aligned) {
        PVec4(at).v[i / 4u] = x;
    } else {
        [[unroll]] for (uint j = 0u; j < 4u; j++)
            if (i + j < n) PF32(at).v[i + j] = x[j];
    }
}

/* The same of a state, F32 or BF16, all four there. */
vec4 state_load(uvec2 at, uint i, uint dtype, bool aligned) {
    vec4 x;
    if (dtype == F32) {
        x = load4(at, i, i + 4u, aligned);
    } else if (aligned) {
        uvec2 w = PUvec2(at).v[i / 4u];
        x = uintBitsToFloat(uvec4(w.x << 16, w.x & 0xffff0000u, w.y << 16, w.y & 0xffff0000u));
    } else {
        [[unroll]] for (uint j = 0u; j < 4u; j++) x[j] = bf16_to_f32(uint(PU16(at).v[i + j]));
    }
    return x;
}

uvec4 to_bf16(vec4 x) {
    uvec4 u = floatBitsToUint(x);
    uvec4 rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    uvec4 nan = (u >> 16) | 0x40u;
    return mix(rounded, nan, greaterThan(u & 0x7fffffffu, uvec4(0x7f800000u)));
}

void state_store(uvec2 at, uint i, uint dtype, bool aligned, vec4 x) {
    uvec4 h = to_bf16(x);
    if (dtype == F32) {
        store4(at, i, i + 4u, aligned, x);
    } else if (aligned) {
        PUvec2(at).v[i / 4u] = uvec2(h.x | h.y << 16, h.z | h.w << 16);
    } else {
        [[unroll]] for (uint j = 0u; j < 4u; j++) PU16(at).v[i + j] = uint16_t(h[j]);
    }
}

/* ---- short convolution ------------------------------------------------------------------ */

/* Channels c .. c + 3 of the input `back` rows before `row` of a sequence that starts at `begin`:
 * from x or, before that, from its window (0: zeros). */
vec4 conv_input(eb_mat_arg x, uvec2 window, uint begin, uint row, uint back, uint c, uint n,
                bool aligned) {
    vec4 y = vec4(0.0);
    if (row - begin >= back) {
        y = load4(row_of(x, row - back), c, n, aligned);
    } else if (!absent(window)) {
        uvec2 at = plus_mul(window, 3u + (row - begin) - back, n * 4u);
        y = load4(at, c, n, aligned && aligned4(window, 4u));
    }
    return y;
}

/* Taps of channels c .. c + 3, [0] the oldest. */
mat4 conv_weights(eb_vec_arg w, uint c, uint n) {
    mat4 lines = mat4(0.0); /* a channel each */
    bool whole = aligned4(w.at, size_of(w.dtype)) && w.dtype != F16;
    [[unroll]] for (uint j = 0u; j < 4u; j++) {
        uint at = (c + j) * 4u;
        if (c + j < n && whole) {
            lines[j] = state_load(w.at, at, w.dtype, true);
        } else if (c + j < n) {
            [[unroll]] for (uint t = 0u; t < 4u; t++) lines[j][t] = load(w.at, at + t, w.dtype);
        }
    }
    return transpose(lines);
}

/* x sigmoid(x). The built-in exp will do: it is off by many units in the last place only where what
 * comes out is small. */
float conv_silu(float x) {
    float e = exp(-abs(x));
    return x * ((x >= 0.0 ? 1.0 : e) / (1.0 + e));
}

vec4 conv_line(mat4 taps, vec4 x0, vec4 x1, vec4 x2, vec4 x3) {
    vec4 y = ((taps[0] * x0 + taps[1] * x1) + taps[2] * x2) + taps[3] * x3;
    return vec4(conv_silu(y.x), conv_silu(y.y), conv_silu(y.z), conv_silu(y.w));
}

/* Channels c .. c + 3 of the window as it stands after the rows before `upto`; `old` is what it
 * held. */
void window_write(uvec2 window, mat3x4 old, eb_mat_arg x, uint begin, uint upto, uint c, uint n,
                  bool aligned) {
    bool whole = aligned && aligned4(window, 4u);
    for (uint t = 0u; t < 3u; t++) {
        uint seen = upto - begin + t; /* counted from the old window's first row */
        vec4 v = seen >= 3u ? load4(row_of(x, begin + seen - 3u), c, n, aligned)
                            : (seen == 0u ? old[0] : seen == 1u ? old[1] : old[2]);
        store4(plus_mul(window, t, n * 4u), c, n, whole, v);
    }
}

/* Channels c .. c + 3 of all windows that sequence s, rows [begin, end), leaves: the emitted ones
 * first, since the last may replace the one that was read. */
void windows_write(eb_state_arg io, eb_mat_arg x, uint s, uint begin, uint end, uint unit, uint c,
                   uint n, bool aligned) {
    uvec2 from = unit_in(io, s, unit), to = unit_out(io, s, unit);
    mat3x4 old = mat3x4(0.0);
    if (!absent(from)) {
        bool whole = aligned && aligned4(from, 4u);
        [[unroll]] for (uint t = 0u; t < 3u; t++)
            old[t] = load4(plus_mul(from, t, n * 4u), c, n, whole);
    }
    for (uint e = 0u; e < io.n_emit; e++) {
        uint row = uint(PI32(io.emit_rows).v[e]);
        if (row >= begin && row < end) {
            uvec2 at = slot_unit(io.region, PI32(io.emit_slots).v[e], unit);
            if (!absent(at)) window_write(at, old, x, begin, row + 1u, c, n, aligned);
        }
    }
    if (!absent(to)) window_write(to, old, x, begin, end, c, n, aligned);
}
