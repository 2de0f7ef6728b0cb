/* mla.glsl: what the kernels of latent attention share: rows of sequences, quads of four elements
 * at any address, how a context is split. Included after common.glsl. */

/* Less than any score; stands for "not seen", for infinities are not safe everywhere. */
const float UNSEEN = -3.402823466e38;
#define NO_LSE uintBitsToFloat(0xff800000u) /* minus infinity */

/* What probabilities are relative to need not be the largest score, only near it: kernels on matrix
 * units let it lag behind by this, e^8, so that sums seldom have to follow. */
const float LAG = 8.0;

/* ---- rows ------------------------------------------------------------------------------- */

/* The sequence of row r. In a step of one row each, most often r itself. */
uint mla_seq_of(uvec2 row_offsets, uint n_seqs, uint r) {
    PI32 offsets = PI32(row_offsets);
    if (r < n_seqs && uint(offsets.v[r]) == r && uint(offsets.v[r + 1u]) > r) return r;
    return seq_of_row(eb_rows_arg(row_offsets, n_seqs, 0u, 0u, 0u), r);
}

/* The cache token that row r of sequence s is. */
uint mla_position(uvec2 row_offsets, uvec2 context, uint s, uint r) {
    return uint(PI32(context).v[s]) + r - uint(PI32(row_offsets).v[s]);
}

/* ---- quads: elements [i, i + 4) of a vector, i a multiple of four ------------------------- */

/* A quad is loaded as it lies in memory, F32 in all four words and else in two, without a branch,
 * and widened where it is used: a thread waits for a load where it first looks at it. What lies
 * outside is not left out but replaced by something inside, and ignored later. */
uvec4 load_quad(uvec2 at, uint i, uint dtype) {
    uvec4 w = uvec4(0u);
    if (dtype == F32) {
        w = PUvec4(at).v[i / 4u];
    } else {
        w.xy = PUvec2(at).v[i / 4u];
    }
    return w;
}

/* The same at any address, of a vector of n elements, with zeros behind its end. */
uvec4 load_odd_quad(uvec2 at, uint i, uint n, uint dtype) {
    uvec4 w = uvec4(0u);
    [[unroll]] for (uint j = 0u; j < 4u; j++) {
        if (i + j < n) {
            if (dtype == F32) {
                w[j] = PU32(at).v[i + j];
            } else {
                w[j / 2u] |= uint(PU16(at).v[i + j]) << (16u * (j % 2u));
            }
        }
    }
    return w;
}

vec4 widen_quad(uvec4 w, uint dtype) {
    uvec4 high = uvec4(w.x << 16u, w.x & 0xffff0000u, w.y << 16u, w.y & 0xffff0000u);
    vec4 v = uintBitsToFloat(dtype == F32 ? w : high);
    return dtype == F16 ? vec4(unpackHalf2x16(w.x), unpackHalf2x16(w.y)) : v;
}

void store_quad(uvec2 at, uint i, uint n, bool aligned, vec4 x) {
    if (aligned) {
        PVec4(at).v[i / 4u] = x;
    } else {
        [[unroll]] for (uint j = 0u; j < 4u; j++) {
            if (i + j < n) PF32(at).v[i + j] = x[j];
        }
    }
}

/* What must be 0 in an address for load_quad. */
uint quad_mask(uint dtype) {
    return dtype == F32 ? 15u : 7u;
}

bool quads_aligned(uvec2 at, uint dtype) {
    return (at.x & quad_mask(dtype)) == 0u;
}

/* ---- splits ----------------------------------------------------------------------------- */

/* Splits start at multiples of this for a row that sees tokens up to `end`, at most MLA_SPLITS of
 * them, and n_splits where a context is as long as can be. */
const uint MLA_TOKENS = EB_MLA_TOKENS;
const uint MLA_SPLITS = EB_MLA_SPLITS;

uint split_tokens(uint end, uint n_splits) {
    return ((max(end, 1u) - 1u) / (MLA_TOKENS * n_splits) + 1u) * MLA_TOKENS;
}
