/* common.glsl: what every kernel stands on: arguments, addresses, elements of any type, sums and
 * maxima over a workgroup. A kernel includes its args_<family>.h, then this file with EB_ARGS set to
 * the name of its argument struct, and then reads `A.field`.
 *
 * The build defines EB_GLSL, EB_PUSH or EB_FAR (kernels.def says which: arguments in the push
 * constants, or in memory at an address that is there), and the defines of the variant; with
 * EB_SUBGROUP the reductions use subgroup operations. A kernel is right for any workgroup size that
 * is a power of two and for any subgroup size. Accumulation is fp32. */
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_control_flow_attributes : require
#ifdef EB_SUBGROUP
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#endif

layout(local_size_x_id = 0) in;
/* Of the device; 0 where the variant does not use it. */
layout(constant_id = 1) const uint SUBGROUP = 1;
/* A kernel's own constants start at id 2. */

#define F32 0u
#define F16 1u
#define BF16 2u
#define MXFP4 3u

/* ---- arguments -------------------------------------------------------------------------- */

#ifdef EB_PUSH
layout(push_constant, std430) uniform Push {
    uint n_groups, first_group;
    EB_ARGS args;
} push;
#define A push.args
#else
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer FarArgs {
    EB_ARGS args;
};
layout(push_constant, std430) uniform Push {
    uint n_groups, first_group;
    FarArgs far;
} push;
#define A push.far.args
#endif

#define THREADS gl_WorkGroupSize.x
#define THREAD gl_LocalInvocationID.x

/* The number of this workgroup. A launch may run in several pieces: this one has those from
 * first_group on, up to n_groups. More groups than the device takes in one dimension are folded into
 * two, so that a few too many may run: a kernel starts with `if (GROUP >= push.n_groups) return;`,
 * which holds for a whole workgroup. */
#define GROUP (push.first_group + gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x)

/* ---- memory ----------------------------------------------------------------------------- */

layout(buffer_reference, std430, buffer_reference_align = 4) buffer PF32 { float v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer PVec4 { vec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer PUvec4 { uvec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer PUvec2 { uvec2 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer PU32 { uint v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer PI32 { int v[]; };
layout(buffer_reference, std430, buffer_reference_align = 2) buffer PF16 { float16_t v[]; };
layout(buffer_reference, std430, buffer_reference_align = 2) buffer PU16 { uint16_t v[]; };

bool absent(uvec2 at) {
    return (at.x | at.y) == 0u;
}

/* at + bytes. */
uvec2 plus(uvec2 at, uint bytes) {
    uint carry;
    uint low = uaddCarry(at.x, bytes, carry);
    return uvec2(low, at.y + carry);
}

uvec2 plus(uvec2 at, uvec2 bytes) {
    uint carry;
    uint low = uaddCarry(at.x, bytes.x, carry);
    return uvec2(low, at.y + bytes.y + carry);
}

/* at + n * size, the product in 64 bits. */
uvec2 plus_mul(uvec2 at, uint n, uint size) {
    uint high, low;
    umulExtended(n, size, high, low);
    return plus(at, uvec2(low, high));
}

/* Bytes of an element of a floating-point type. */
uint size_of(uint dtype) {
    return dtype == F32 ? 4u : 2u;
}

/* Where row r of a matrix starts. r * stride fits 32 bits times an element: rows are addressed in 64
 * bits, the elements inside one in 32. */
uvec2 row_of(eb_mat_arg m, uint r) {
    uint high, low;
    umulExtended(r, m.stride, high, low);
    uint shift = m.dtype == F16 || m.dtype == BF16 ? 1u : 2u;
    return plus(m.at, uvec2(low << shift, (high << shift) | (low >> (32u - shift))));
}

float bf16_to_f32(uint bits) {
    return uintBitsToFloat(bits << 16);
}

/* Rounds to nearest, ties to even; a NaN stays one. */
uint f32_to_bf16(float x) {
    uint u = floatBitsToUint(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (u >> 16) | 0x40u;
    return (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
}

/* Element i of a vector of any of the three types. `dtype` should be a constant of the pipeline or
 * uniform. */
float load(uvec2 at, uint i, uint dtype) {
    if (dtype == F32) return PF32(at).v[i];
    if (dtype == F16) return float(PF16(at).v[i]);
    return bf16_to_f32(uint(PU16(at).v[i]));
}

void store(uvec2 at, uint i, uint dtype, float x) {
    if (dtype == F32) {
        PF32(at).v[i] = x;
    } else if (dtype == F16) {
        PF16(at).v[i] = float16_t(x);
    } else {
        PU16(at).v[i] = uint16_t(f32_to_bf16(x));
    }
}

/* Byte i, from the aligned word that holds it. */
uint load_u8(uvec2 at, uint i) {
    uvec2 a = plus(at, i);
    uint word = PU32(uvec2(a.x & ~3u, a.y)).v[0];
    return (word >> ((a.x & 3u) * 8u)) & 0xffu;
}

/* ---- sequences -------------------------------------------------------------------------- */

/* Where unit u of a slot lies (ebro_region). */
uvec2 unit_of(eb_region_arg g, uint slot, uint u) {
    uint unit = g.first_unit + u;
    uint block = g.first_block + unit / g.units_per_block;
    uvec2 at = PUvec2(plus_mul(g.table, slot * g.table_stride + block, 8u)).v[0];
    return plus_mul(plus(at, g.block_offset), unit % g.units_per_block, g.unit_bytes);
}

/* Where cache token t of sequence s lies (ebro_pages). */
uvec2 token_of(eb_pages_arg p, uint s, uint t) {
    uvec2 page = PUvec2(plus_mul(p.table, s * p.table_stride + t / p.page_tokens, 8u)).v[0];
    return plus_mul(plus(page, p.layer_offset), t % p.page_tokens, p.row_stride * size_of(p.dtype));
}

/* The sequence that row r belongs to: the last one that starts at or before it and is not empty. */
uint seq_of_row(eb_rows_arg rows, uint r) {
    uint low = 0u, high = rows.n_seqs;
    while (high - low > 1u) {
        uint middle = (low + high) / 2u;
        if (uint(PI32(rows.row_offsets).v[middle]) <= r) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/* ---- over a workgroup ------------------------------------------------------------------- */

/* All threads of the workgroup must call these; all get the result. Two reductions in a row need no
 * barrier of the caller's. */
#ifdef EB_REDUCE
shared float reduce_parts[1024];

#define EB_REDUCTION(name, op, subgroup_op)                             \
    float name(float x) {                                               \
        EB_SUBGROUP_STAGE(x, subgroup_op)                               \
        barrier();                                                      \
        if (EB_PART_WRITER) reduce_parts[EB_PART] = x;                  \
        barrier();                                                      \
        for (uint half_n = EB_N_PARTS / 2u; half_n > 0u; half_n /= 2u) { \
            if (THREAD < half_n) {                                      \
                float y = reduce_parts[THREAD + half_n];                \
                reduce_parts[THREAD] = op(reduce_parts[THREAD], y);     \
            }                                                           \
            barrier();                                                  \
        }                                                               \
        return reduce_parts[0];                                         \
    }
#ifdef EB_SUBGROUP
#define EB_SUBGROUP_STAGE(x, subgroup_op) x = subgroup_op(x);
#define EB_PART_WRITER subgroupElect()
#define EB_PART gl_SubgroupID
#define EB_N_PARTS (THREADS / SUBGROUP)
#else
#define EB_SUBGROUP_STAGE(x, subgroup_op)
#define EB_PART_WRITER true
#define EB_PART THREAD
#define EB_N_PARTS THREADS
#endif

float add2(float a, float b) {
    return a + b;
}
EB_REDUCTION(group_sum, add2, subgroupAdd)
EB_REDUCTION(group_max, max, subgroupMax)
#endif
