/* mla_softmax.glsl: one tile's step of an online softmax over a workgroup of 128 threads. Included
 * after mla.glsl and after
 *   QUERIES   rows of scores, a power of two from 4 to 64
 *   TILE      tokens of a tile
 *   pool      shared vec4, in which scores lie as [TILE][P_ROW], four queries each. */
const uint P_ROW = QUERIES / 4u + 1u; /* one more, against bank conflicts */
const uint TEAM = EB_MLA_THREADS / QUERIES; /* threads of one query */

shared float tops[128], totals[128];
shared vec4 factors[16]; /* one for each query */

/* Scores become exp(score - new maximum), and 0 where UNSEEN; `factors` is what brings older sums
 * to the new maximum. Every thread of a team keeps its query's maximum and sum. Scores must be
 * visible before; all is visible after. */
void softmax_tile(inout float top, inout float total) {
    uint q = THREAD % QUERIES, part = THREAD / QUERIES;
    float here = UNSEEN;
    for (uint t = part; t < TILE; t += TEAM) here = max(here, pool[t * P_ROW + q / 4u][q % 4u]);
    tops[THREAD] = here;
    barrier();
    float old = top;
    for (uint p = 0u; p < TEAM; p++) top = max(top, tops[p * QUERIES + q]);
    float sum = 0.0;
    for (uint t = part; t < TILE; t += TEAM) {
        uint at = t * P_ROW + q / 4u;
        float s = pool[at][q % 4u];
        float e = s > UNSEEN ? exp(s - top) : 0.0;
        pool[at][q % 4u] = e;
        sum += e;
    }
    totals[THREAD] = sum;
    float factor = total > 0.0 ? exp(old - top) : 0.0;
    if (part == 0u) factors[q / 4u][q % 4u] = factor;
    barrier();
    total *= factor;
    for (uint p = 0u; p < TEAM; p++) total += totals[p * QUERIES + q];
}
