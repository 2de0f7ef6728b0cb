/* sample.glsl: what the kernels of sample share: rows, their largest logit, probabilities.
 *
 * Probabilities are relative to the largest one, and sums of them are integers: a probability is
 * cut to 40 bits (32 for a vocabulary of millions) once, and then every order of adding and every
 * division into parts gives the same sum, to the last bit. 64 bits are two words, low first. */

/* ---- 64 bits ---------------------------------------------------------------------------- */

bool less64(uvec2 a, uvec2 b) {
    return a.y < b.y || (a.y == b.y && a.x < b.x);
}

uvec2 minus64(uvec2 a, uvec2 b) {
    uint borrow, low = usubBorrow(a.x, b.x, borrow);
    return uvec2(low, a.y - b.y - borrow);
}

uvec2 times64(uvec2 a, uvec2 b) {
    uint high, low;
    umulExtended(a.x, b.x, high, low);
    return uvec2(low, high + a.x * b.y + a.y * b.x);
}

/* ---- rows ------------------------------------------------------------------------------- */

/* Of an ebro_sample_params: temperature, top_p, min_p, top_k, seed, position. */
#define PARAM_WORDS 8u

struct Row {
    uint row;
    uvec2 at; /* its logits, adjusted */
    bool wide;
    uvec2 params;
};

bool is_adjusted(uint row) {
    return !absent(A.adjusts) && PI32(A.adjust_offsets).v[row] < PI32(A.adjust_offsets).v[row + 1u];
}

uvec2 changed_row(uint row) {
    return row_of(eb_mat_arg(A.changed, A.changed_stride, F32), row);
}

Row row_at(uint row) {
    bool adjusted = is_adjusted(row);
    return Row(row, adjusted ? changed_row(row) : row_of(A.logits, row), adjusted || A.wide != 0u,
               plus_mul(A.params, row, PARAM_WORDS * 4u));
}

float temperature(Row r) {
    return PF32(r.params).v[0];
}

float top_p(Row r) {
    return PF32(r.params).v[1];
}

bool has_nucleus(Row r) {
    return top_p(r) > 0.0 && top_p(r) < 1.0;
}

/* 0: off. */
uint top_k(Row r) {
    uint k = PU32(r.params).v[3];
    return k < A.vocab ? k : 0u;
}

/* The smallest probability that min_p keeps. */
float least(Row r) {
    float p = PF32(r.params).v[2];
    return p > 1.0 ? 1.0 : p > 0.0 ? p : 0.0;
}

vec4 logits4(Row r, uint first) {
    return load4(r.at, first, A.vocab, F32, r.wide);
}

/* ---- of a whole row --------------------------------------------------------------------- */

struct Range {
    uvec2 best; /* as in order.glsl */
    float largest;
    uint low_key;   /* 0: a logit is not finite */
    float per_unit; /* bins to a distance of 1 */
};

/* From what sample_parts wrote. Called by all threads. */
Range range_of(Row r) {
    uvec2 best = uvec2(0u), lowest = uvec2(0u);
    for (uint p = THREAD; p < A.n_parts; p += THREADS) {
        uvec4 part = PUvec4(plus_mul(A.parts, r.row * A.n_parts + p, 16u)).v[0];
        if (ranks_above(part.xy, best)) best = part.xy;
        lowest = uvec2(max(lowest.x, ~part.z), 0u);
    }
    best = group_best(best);
    Range g = Range(best, order_value(best.x), ~group_best(lowest).x, 0.0);
    /* Bins end with the row, or where nothing has a probability left. */
    precise float reach = min(28.0 * temperature(r), g.largest - order_value(g.low_key));
    g.per_unit = float(EB_SAMPLE_BINS) / clamp(reach, 1e-30, 3e38);
    return g;
}

/* Of a logit: 1 exactly for the largest. */
float probability(Row r, Range g, float logit) {
    if (logit == g.largest) return 1.0;
    return exp_neg((g.largest - logit) / temperature(r));
}

uvec2 fixed_point(float p) {
    precise float high = p * A.one_high;
    precise float rest = (high - floor(high)) * 4294967296.0;
    return uvec2(uint(rest), uint(high));
}

/* The bin of a logit, from 0 for the largest on: it rises as logits fall. */
uint bin_of(Range g, float logit) {
    precise float bin = (g.largest - logit) * g.per_unit;
    return uint(min(bin, float(EB_SAMPLE_BINS - 1)));
}

/* ---- bins ------------------------------------------------------------------------------- */

shared uint bins[3][EB_SAMPLE_BINS]; /* how many; low and high words of the sum */

void clear_bins() {
    for (uint b = THREAD; b < EB_SAMPLE_BINS; b += THREADS) {
        bins[0][b] = bins[1][b] = bins[2][b] = 0u;
    }
    barrier();
}

void add_to_bin(uint b, uint n, uvec2 mass) {
    atomicAdd(bins[0][b], n);
    uint old = atomicAdd(bins[1][b], mass.x);
    uint high = mass.y + (old + mass.x < old ? 1u : 0u);
    if (high != 0u) atomicAdd(bins[2][b], high);
}

/* ---- sums over the workgroup, in shared memory ------------------------------------------ */

/* The sum over a subgroup, in all of it: the low words are added by halves, for a carry is lost. In
 * the plain variant everyone is a subgroup. */
uvec2 subgroup_sum64(uvec2 x) {
#ifdef EB_SUBGROUP
    uint low = subgroupAdd(x.x & 0xffffu), middle = subgroupAdd(x.x >> 16u);
    return plus(uvec2(low, subgroupAdd(x.y)), uvec2(middle << 16u, middle >> 16u));
#else
    return x;
#endif
}

/* Who adds it to a sum in shared memory. */
bool speaks() {
#ifdef EB_SUBGROUP
    return subgroupElect();
#else
    return true;
#endif
}

shared uint group_total[2];

/* Called by all threads; all get the sum. Without subgroups, for it is seldom called: with them, one
 * driver (NVIDIA 580) gives wrong sums in sample_pick where a cut is looked for. */
uvec2 group_sum64(uvec2 x) {
    barrier();
    if (THREAD == 0u) group_total[0] = group_total[1] = 0u;
    barrier();
    if ((x.x | x.y) != 0u) {
        uint old = atomicAdd(group_total[0], x.x);
        atomicAdd(group_total[1], x.y + (old + x.x < old ? 1u : 0u));
    }
    barrier();
    return uvec2(group_total[0], group_total[1]);
}
