/* kda_gate.glsl: KDA's gates. After math.glsl. */

/* exp(A_log) of a head. */
float gate_scale(eb_kda_gate_arg gate, uint h) {
    return exact_exp(load(gate.a_log.at, h, gate.a_log.dtype));
}

/* The log decay of a channel, <= 0. */
float gate_log(eb_kda_gate_arg gate, float scale, float bias, float raw) {
    if (gate.form == 0u) return -scale * softplus(raw + bias);
    return gate.lower_bound * sigmoid(scale * (raw + bias));
}

/* What is left of a state after the row. Near 1 the built-in exp may be off by units in the last
 * place, always to the same side: over thousands of tokens that adds up. */
float gate_decay(eb_kda_gate_arg gate, float scale, float bias, float raw) {
    return exp_neg(-gate_log(gate, scale, bias, raw));
}

float gate_beta(eb_kda_gate_arg gate, uint row, uint h) {
    return sigmoid(PF32(row_of(gate.beta_raw, row)).v[h]);
}
