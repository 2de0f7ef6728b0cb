/* moe.glsl: what moe_row and moe_tile share: where a pair's rows lie, and the activation. Included
 * after math.glsl with eb_moe_args. */
#define NO_ACT 0u /* one weight, w2; else w1 and w3 and EBRO_ACT_SILU or EBRO_ACT_SITU + 1 */
#define SITU_ACT 2u

uint pair_of(uint slot) {
    return uint(PI32(A.pairs).v[slot]);
}

/* Weight `part` of an expert. */
uvec2 weight_of(uint expert, uint part) {
    return PUvec2(A.tables).v[part * A.n_experts + expert];
}

uvec2 scales_of(uint expert, uint part) {
    return PUvec2(A.scale_tables).v[part * A.n_experts + expert];
}

uvec2 w_row_of(uvec2 w, uint r, uint dtype) {
    if (dtype == MXFP4) return plus_mul(w, r, A.n_in / 2u);
    return row_of(eb_mat_arg(w, A.n_in, dtype), r);
}

uvec2 x_row_of(uint pair) {
    return row_of(eb_mat_arg(A.x_at, A.x_stride, F32), pair / A.row_pairs);
}

void put(uint pair, uint output_index, float v) {
    PF32(row_of(eb_mat_arg(A.dst, A.n_outs, F32), pair)).v[output_index] = v;
}

float act(uint kind, float gate, float up) {
    float s = sigmoid(gate);
    if (kind == SITU_ACT) {
        return A.beta * exact_tanh(gate / A.beta) * s * (A.beta2 * exact_tanh(up / A.beta2));
    }
    return gate * s * up;
}
