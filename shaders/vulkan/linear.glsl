/* linear.glsl: which part of a linear call a workgroup computes. Included after common.glsl with
 * linear's arguments. */

struct place {
    uint item, block, row_block;
    uvec2 w, x, dst; /* of the batch */
};

/* at + n * bytes. */
uvec2 plus_batches(uvec2 at, uint n, uvec2 bytes) {
    uvec2 end = plus_mul(at, n, bytes.x);
    return uvec2(end.x, end.y + n * bytes.y);
}

/* Of group g of all. */
place place_of(uint g) {
    place p;
    p.row_block = g % A.row_blocks;
    uint rest = g / A.row_blocks;
    p.item = 0u;
#ifndef EB_ONE
    while (rest >= A.items[p.item].end) p.item++;
    if (p.item > 0u) rest -= A.items[p.item - 1u].end;
#endif
    uint batch = rest / A.items[p.item].blocks;
    p.block = rest % A.items[p.item].blocks;
    p.w = plus_batches(A.items[p.item].w.at, batch, A.items[p.item].w_batch);
    p.x = plus_batches(A.x_at, batch, A.x_batch);
    p.dst = plus_batches(A.items[p.item].out_at, batch, A.items[p.item].out_batch);
    return p;
}

/* Row r of weights, of x, of the outputs. */
uvec2 w_row_of(place p, uint r, uint dtype) {
    if (dtype == MXFP4) return plus_mul(p.w, r, A.items[p.item].w.cols / 2u);
    return row_of(eb_mat_arg(p.w, A.items[p.item].w.stride, dtype), r);
}

uvec2 x_row_of(place p, uint r) {
    return row_of(eb_mat_arg(p.x, A.x_stride, F32), r);
}

PF32 out_row_of(place p, uint r) {
    return PF32(row_of(eb_mat_arg(p.dst, A.items[p.item].out_stride, F32), r));
}

/* What a sum is added to; of output n_outs - 1 and the last row for what lies behind them. */
float start_of(place p, uint r, uint o, uint n_outs) {
    if (A.items[p.item].accumulate == 0u) return 0.0;
    return out_row_of(p, min(r, A.n_rows - 1u)).v[min(o, n_outs - 1u)];
}
