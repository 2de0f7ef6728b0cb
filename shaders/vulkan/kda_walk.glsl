/* kda_walk.glsl: what the two forms of kda_recur share: the chunks of a sequence in their order,
 * and where its state comes from and goes to. Expects EB_ARGS eb_kda_recur_args. */

#define C uint(EB_KDA_CHUNK)

/* Copies of arguments: for all a compiler knows, what a kernel stores could change them. */
eb_kda_work_arg work;
eb_mat_arg v_rows, dst_rows;

/* The sequence and head of this workgroup, and the chunk that it is at: rows [row, end). */
uint seq, head, seq_rows_begin, seq_rows_end;
uint tile, last_tile; /* of the sequence: the tile to come, the end of this launch */
uint first_chunk;     /* of the sequence */
bool emits;
uint row, end, tile_end, mask, chunk;
int emitted; /* the chunk ends with this emitted row; -1 */

/* The next chunk; false: there is none in this launch. */
bool walk_next() {
    row = end;
    bool more = row < tile_end || tile < last_tile;
    if (row == tile_end && more) {
        row = seq_rows_begin + tile * C;
        tile_end = min(row + C, seq_rows_end);
        if (emits) mask = PU32(work.masks).v[first_chunk + tile];
        tile++;
    }
    end = tile_end;
    emitted = -1;
    chunk = first_chunk + tile - 1u;
    if (mask != 0u) {
        end = seq_rows_begin + (tile - 1u) * C + uint(findLSB(mask)) + 1u;
        mask &= mask - 1u;
        emitted = int(PU32(work.marks).v[end - 1u]);
        chunk = work.n_tiles + uint(emitted);
    }
    return more;
}

/* Places the walk before the first chunk; false: nothing to do in this launch. */
bool walk_start(uint seq_head) {
    work = A.work;
    v_rows = A.v;
    dst_rows = A.dst;
    emits = A.state.n_emit > 0u;
    mask = 0u;
    seq = seq_head / work.n_heads;
    first_chunk = PU32(work.tiles).v[seq];
    head = seq_head % work.n_heads;
    seq_rows_begin = seq_begin(A.rows, seq);
    seq_rows_end = seq_begin(A.rows, seq + 1u);
    uint n_tiles = (seq_rows_end - seq_rows_begin + C - 1u) / C;
    tile = A.first_tile;
    last_tile = min(A.end_tile, n_tiles);
    row = end = tile_end = 0u;
    return A.first_tile == 0u || A.first_tile < n_tiles;
}

uvec2 walk_chunk() {
    return plus_mul(work.chunks, chunk * work.n_heads + head, work.chunk_floats * 4u);
}

/* Where the state waits between two launches. */
uvec2 walk_carry() {
    uint dim = work.dim, i = seq_rows_begin / A.carry_rows * work.n_heads + head;
    return plus_mul(work.carry, i, dim * dim * 4u);
}

/* The state that this launch starts from, 0: zeros; `dtype` its type. */
uvec2 walk_from(out uint dtype) {
    dtype = A.first_tile > 0u ? F32 : A.state.region.dtype;
    uvec2 from = walk_carry();
    if (A.first_tile == 0u) from = unit_in(A.state, seq, head);
    return from;
}

/* Where it goes to, 0: nowhere. */
uvec2 walk_to(out uint dtype) {
    bool more = A.end_tile < (seq_rows_end - seq_rows_begin + C - 1u) / C;
    dtype = more ? F32 : A.state.region.dtype;
    uvec2 to = walk_carry();
    if (!more) to = unit_out(A.state, seq, head);
    return to;
}

/* Where the state after an emitted row goes to. */
uvec2 walk_slot(int emit) {
    return slot_unit(A.state.region, PI32(A.state.emit_slots).v[emit], head);
}
