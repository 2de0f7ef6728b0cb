/* product_row.glsl: a few rows of x times a few rows of weights, by a team of threads that share
 * the columns: bound by the bytes of the weights. Included after quant.glsl; the kernel sets w_row,
 * w_scale and x_row, calls row_products, and every thread of a team gets the team's sums.
 *
 * A team is a subgroup, or TEAM threads of the plain rung. Each thread has 2 * OUTS loads of 16
 * bytes under way, in registers: the next unit is asked for before one is used. */
#include "plant.glsl"

layout(constant_id = 4) const uint ROWS = 1; /* of x, a power of two */
layout(constant_id = 5) const uint OUTS = 2; /* rows of weights, a power of two */

#ifdef EB_SUBGROUP
#define TEAM SUBGROUP
#define LANE gl_SubgroupInvocationID
#define TEAM_INDEX gl_SubgroupID
#else
const uint TEAM = EB_ROW_TEAM;
#define LANE (THREAD % TEAM)
#define TEAM_INDEX (THREAD / TEAM)
#endif
#define TEAMS (THREADS / TEAM)

uvec2 w_row[OUTS], w_scale[OUTS]; /* w_scale: of MXFP4 */
uvec2 x_row[ROWS];
float sums[ROWS * OUTS]; /* [row][out] */

uvec4 held[OUTS], next_held[OUTS]; /* a unit of each row of weights, and the one after */
uint held_scale[OUTS], next_scale[OUTS];

void load_next(uint u, bool aligned) {
    [[unroll]] for (uint o = 0u; o < OUTS; o++) {
        next_held[o] = load_unit(w_row[o], u, aligned);
        if (DTYPE == MXFP4) next_scale[o] = load_u8(w_scale[o], u);
    }
}

void advance() {
    [[unroll]] for (uint o = 0u; o < OUTS; o++) {
        held[o] = next_held[o];
        held_scale[o] = next_scale[o];
    }
}

/* Unit u, which is held. */
void add_held(uint u, bool aligned) {
    float part[ROWS * OUTS];
    [[unroll]] for (uint v = 0u; v < ROWS * OUTS; v++) part[v] = 0.0;
    [[unroll]] for (uint i = 0u; i < QUADS; i++) {
        vec4 w[OUTS];
        [[unroll]] for (uint o = 0u; o < OUTS; o++) w[o] = quad_of(held[o], i);
        [[unroll]] for (uint r = 0u; r < ROWS; r++) {
            vec4 x = x_quad(x_row[r], u * QUADS + i, aligned);
            [[unroll]] for (uint o = 0u; o < OUTS; o++) {
                part[r * OUTS + o] = plus_dot(part[r * OUTS + o], x, w[o]);
            }
        }
    }
    [[unroll]] for (uint v = 0u; v < ROWS * OUTS; v++) {
        if (DTYPE == MXFP4) part[v] = mx_scaled(part[v], held_scale[v % OUTS]);
        sums[v] += part[v];
        if (PLANTED(F16_ACCUMULATION)) sums[v] = unpackHalf2x16(packHalf2x16(vec2(sums[v]))).x;
    }
}

/* What lies behind the last whole unit. */
void add_tail(uint begin, uint n_cols) {
    for (uint c = begin + LANE; c < n_cols; c += TEAM) {
        [[unroll]] for (uint r = 0u; r < ROWS; r++) {
            float x = PF32(x_row[r]).v[c];
            [[unroll]] for (uint o = 0u; o < OUTS; o++) {
                sums[r * OUTS + o] += x * load(w_row[o], c, DTYPE);
            }
        }
    }
}

void add_columns(uint n_cols, bool aligned) {
    uint n = n_cols / UNIT, u = LANE;
    if (u < n) load_next(u, aligned);
    for (; u < n; u += TEAM) {
        advance();
        if (u + TEAM < n) load_next(u + TEAM, aligned);
        add_held(u, aligned);
    }
    if (DTYPE != MXFP4) add_tail(n * UNIT, n_cols);
}

#ifdef EB_SUBGROUP
void join_team() {
    bool joins = !PLANTED(WRONG_WAVE_WIDTH) || LANE < TEAM / 2u;
    [[unroll]] for (uint v = 0u; v < ROWS * OUTS; v++) sums[v] = subgroupAdd(joins ? sums[v] : 0.0);
}
#else
const uint N_JOINED = 8u; /* sums at a time */
shared float team_parts[N_JOINED * 257u];
shared float team_sums[N_JOINED * 256u / TEAM];

/* In uniform control flow. */
void join_team() {
    [[unroll]] for (uint v0 = 0u; v0 < ROWS * OUTS; v0 += N_JOINED) {
        barrier();
        [[unroll]] for (uint j = 0u; j < N_JOINED; j++) {
            if (v0 + j < ROWS * OUTS) team_parts[j * 257u + THREAD] = sums[v0 + j];
        }
        barrier();
        if (THREAD < TEAMS * N_JOINED) {
            uint at = (THREAD % N_JOINED) * 257u + THREAD / N_JOINED * TEAM;
            float sum = 0.0;
            for (uint i = 0u; i < TEAM; i++) sum += team_parts[at + i];
            team_sums[THREAD] = sum;
        }
        barrier();
        [[unroll]] for (uint j = 0u; j < N_JOINED; j++) {
            if (v0 + j < ROWS * OUTS) sums[v0 + j] = team_sums[TEAM_INDEX * N_JOINED + j];
        }
    }
}
#endif

/* sums[r][o] = x_row[r] . w_row[o] over n_cols columns. `aligned` as ALIGNED, for these rows. */
void row_products(uint n_cols, bool aligned) {
    [[unroll]] for (uint v = 0u; v < ROWS * OUTS; v++) sums[v] = 0.0;
    if (aligned) {
        add_columns(n_cols, true);
    } else {
        add_columns(n_cols, false);
    }
    join_team();
}
