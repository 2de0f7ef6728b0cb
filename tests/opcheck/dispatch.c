/* dispatch.c: how validated calls reach the backend and come back: device loss, missing ops, calls
 * without rows, the composition of kda_step, scratch sizes, names. */

#include "ops/check.h"
#include "tests/opcheck/good_calls.h"

static void (*const makes[EBRO_N_OPS])(union any_args *) = {
#define MAKE(N, name) [EBRO_OP_##N] = good_##name,
    EBRO_OPS(MAKE)};

struct bench {
    ebro_backend be;
    struct ebro_device device;
    struct eb_stream stream;
    union any_args args;
};

static void prepare(struct bench *b, ebro_op op) {
    b->be = fake_table();
    b->stream = fake_open(&b->device, &b->be);
    memset(&b->args, 0, sizeof b->args);
    makes[op](&b->args);
}

/* ---- what comes back -------------------------------------------------------------------- */

static void test_lost_device_refuses_at_once(void **state) {
    (void)state;
    for (int i = 0; i < EBRO_N_OPS; i++) {
        struct bench b;
        prepare(&b, (ebro_op)i);
        atomic_store(&b.device.lost, 1);
        ebro_error err = {0};
        int32_t st = fake_call((ebro_op)i, &b.stream, &b.args, &err);
        test_fails(st, EBRO_DEVICE_LOST, &err, eb_op_name((ebro_op)i));
        /* Before anything else is looked at. */
        test_fails(fake_call((ebro_op)i, &b.stream, NULL, &err), EBRO_DEVICE_LOST, &err, NULL);
        assert_int_equal(fake.n_calls, 0);
    }
}

static void test_backend_failure_is_handed_up_with_the_op(void **state) {
    (void)state;
    for (int i = 0; i < EBRO_N_OPS; i++) {
        struct bench b;
        prepare(&b, (ebro_op)i);
        char tail[96];
        snprintf(tail, sizeof tail, "told to fail; while running %s on FAKE7",
                 eb_op_name((ebro_op)i));
        fake.result = EBRO_NOMEM_DEVICE;
        ebro_error err = {0};
        int32_t st = fake_call((ebro_op)i, &b.stream, &b.args, &err);
        test_fails(st, EBRO_NOMEM_DEVICE, &err, tail);
        assert_int_equal(atomic_load(&b.device.lost), 0);

        fake.result = EBRO_DEVICE_LOST;
        test_fails(fake_call((ebro_op)i, &b.stream, &b.args, &err), EBRO_DEVICE_LOST, &err, tail);
        assert_int_equal(atomic_load(&b.device.lost), 1);
        uint32_t n = fake.n_calls;
        test_fails(fake_call((ebro_op)i, &b.stream, &b.args, &err), EBRO_DEVICE_LOST, &err, NULL);
        assert_int_equal(fake.n_calls, n);
        assert_int_equal(fake_call((ebro_op)i, &b.stream, &b.args, NULL), EBRO_DEVICE_LOST);
    }
}

static void test_missing_op_is_unsupported_by_name(void **state) {
    (void)state;
    for (int i = 0; i < EBRO_N_OPS; i++) {
        if (i == EBRO_OP_KDA_STEP) continue; /* composed */
        struct bench b;
        prepare(&b, (ebro_op)i);
        fake_drop((ebro_op)i, &b.be);
        char text[96];
        snprintf(text, sizeof text, "%s: device FAKE7 (backend fake)", eb_op_name((ebro_op)i));
        ebro_error err = {0};
        int32_t st = fake_call((ebro_op)i, &b.stream, &b.args, &err);
        test_fails(st, EBRO_UNSUPPORTED, &err, text);
        assert_int_equal(fake.n_calls, 0);
    }
}

/* ---- nothing to do ---------------------------------------------------------------------- */

static void set_rows(union any_args *u, ebro_op op, uint32_t n_rows) {
    switch (op) {
        case EBRO_OP_EMBED:
            u->embed.n_rows = n_rows;
            break;
        case EBRO_OP_SAMPLE:
            u->sample.n_rows = n_rows;
            break;
        case EBRO_OP_RMS_NORM:
            u->rms_norm.n_rows = n_rows;
            break;
        case EBRO_OP_LINEAR:
            u->linear.n_rows = n_rows;
            break;
        case EBRO_OP_ACT_MUL:
            u->act_mul.n_rows = n_rows;
            break;
        case EBRO_OP_MLA_APPEND:
            u->mla_append.rows.n_rows = n_rows;
            break;
        case EBRO_OP_MLA_PREFILL:
            u->mla_prefill.rows.n_rows = n_rows;
            break;
        case EBRO_OP_MLA_DECODE:
            u->mla_decode.rows.n_rows = n_rows;
            break;
        case EBRO_OP_MOE_ROUTE:
            u->moe_route.n_rows = n_rows;
            break;
        case EBRO_OP_MOE_EXPERTS:
            u->moe_experts.n_rows = n_rows;
            break;
        case EBRO_OP_ATTN_RES_MIX:
            u->attn_res_mix.n_rows = n_rows;
            break;
        case EBRO_OP_STATE_COPY:
            u->state_copy.n = n_rows;
            break;
        case EBRO_OP_ROWS_COPY:
            u->rows_copy.n = n_rows;
            break;
        case EBRO_OP_KDA_CONV:
            u->kda_conv.rows.n_rows = n_rows;
            u->kda_conv.state.n_emit = 0;
            break;
        case EBRO_OP_KDA_PREP:
            u->kda_prep.rows.n_rows = n_rows;
            u->kda_prep.n_emit = 0;
            break;
        case EBRO_OP_KDA_RECUR:
            u->kda_recur.rows.n_rows = n_rows;
            u->kda_recur.state.n_emit = 0;
            break;
        case EBRO_OP_KDA_STEP:
            u->kda_step.rows.n_rows = n_rows;
            u->kda_step.windows.n_emit = u->kda_step.state.n_emit = 0;
            break;
        case EBRO_N_OPS:
            break;
    }
}

/* NULL: not a sequence op. */
static ebro_rows *rows_of(union any_args *u, ebro_op op) {
    switch (op) {
        case EBRO_OP_KDA_CONV:
            return &u->kda_conv.rows;
        case EBRO_OP_KDA_PREP:
            return &u->kda_prep.rows;
        case EBRO_OP_KDA_RECUR:
            return &u->kda_recur.rows;
        case EBRO_OP_KDA_STEP:
            return &u->kda_step.rows;
        case EBRO_OP_MLA_APPEND:
            return &u->mla_append.rows;
        case EBRO_OP_MLA_PREFILL:
            return &u->mla_prefill.rows;
        case EBRO_OP_MLA_DECODE:
            return &u->mla_decode.rows;
        default:
            return NULL;
    }
}

static void test_no_rows_do_nothing_but_move_states(void **state) {
    (void)state;
    for (int i = 0; i < EBRO_N_OPS; i++) {
        struct bench b;
        ebro_op op = (ebro_op)i;
        prepare(&b, op);
        set_rows(&b.args, op, 0);
        ebro_rows *rows = rows_of(&b.args, op);
        if (rows != NULL) rows->max_rows = 0;
        bool has_state = op >= EBRO_OP_KDA_CONV && op <= EBRO_OP_KDA_STEP;
        ebro_error err = {0};
        test_ok(fake_call(op, &b.stream, &b.args, &err), &err);
        assert_int_equal(fake.n_calls, has_state ? 1 : 0);
        if (rows != NULL) { /* no sequences either: no states to move */
            rows->n_seqs = 0;
            fake.n_calls = 0;
            test_ok(fake_call(op, &b.stream, &b.args, &err), &err);
            assert_int_equal(fake.n_calls, 0);
        }
        b.args.size = 1; /* still validated */
        test_fails(fake_call(op, &b.stream, &b.args, &err), EBRO_INVALID, &err, "size");
    }
}

/* Matrices without rows touch no byte, so they fit anywhere. */
static void test_no_rows_need_no_room(void **state) {
    (void)state;
    struct bench b;
    prepare(&b, EBRO_OP_RMS_NORM);
    b.args.rms_norm.n_rows = 0;
    b.args.rms_norm.x.mem->bytes = 0;
    b.args.rms_norm.out.mem->bytes = 0;
    ebro_error err = {0};
    test_ok(eb_op_rms_norm(&b.stream, &b.args.rms_norm, &err), &err);
    b.args.rms_norm.x.mem = NULL;
    test_fails(eb_op_rms_norm(&b.stream, &b.args.rms_norm, &err), EBRO_INVALID, &err, "x.mem");
}

static void test_optional_memory_may_be_absent(void **state) {
    (void)state;
    struct bench b;
    ebro_error err = {0};
    prepare(&b, EBRO_OP_RMS_NORM);
    b.args.rms_norm.gate.mem = NULL;
    b.args.rms_norm.weight.mem = NULL;
    test_ok(eb_op_rms_norm(&b.stream, &b.args.rms_norm, &err), &err);
    prepare(&b, EBRO_OP_MLA_PREFILL);
    b.args.mla_prefill.lse.mem = NULL;
    test_ok(eb_op_mla_prefill(&b.stream, &b.args.mla_prefill, &err), &err);
    prepare(&b, EBRO_OP_MLA_DECODE);
    b.args.mla_decode.lse.mem = NULL;
    b.args.mla_decode.token_begin = 0;
    b.args.mla_decode.token_end = UINT32_MAX;
    test_ok(eb_op_mla_decode(&b.stream, &b.args.mla_decode, &err), &err);
    prepare(&b, EBRO_OP_MLA_APPEND);
    b.args.mla_append.q.mem = NULL;
    test_ok(eb_op_mla_append(&b.stream, &b.args.mla_append, &err), &err);
    b.args.mla_append.rotary_dim = 0;
    b.args.mla_append.rotary_theta = 0;
    test_ok(eb_op_mla_append(&b.stream, &b.args.mla_append, &err), &err);
    prepare(&b, EBRO_OP_MOE_ROUTE);
    b.args.moe_route.bias.mem = NULL;
    fake.scratch[EBRO_OP_MOE_ROUTE] = 0;
    b.args.moe_route.scratch.mem = NULL;
    test_ok(eb_op_moe_route(&b.stream, &b.args.moe_route, &err), &err);
    prepare(&b, EBRO_OP_MOE_EXPERTS);
    b.args.moe_experts.scale_tables.mem = NULL;
    b.args.moe_experts.dtype = EBRO_BF16;
    b.args.moe_experts.in_dim = 60;
    test_ok(eb_op_moe_experts(&b.stream, &b.args.moe_experts, &err), &err);
    prepare(&b, EBRO_OP_ATTN_RES_MIX);
    b.args.attn_res_mix.probs.mem = NULL;
    test_ok(eb_op_attn_res_mix(&b.stream, &b.args.attn_res_mix, &err), &err);
    prepare(&b, EBRO_OP_KDA_CONV);
    b.args.kda_conv.state.n_emit = 0;
    b.args.kda_conv.state.emit_rows.mem = b.args.kda_conv.state.emit_slots.mem = NULL;
    test_ok(eb_op_kda_conv(&b.stream, &b.args.kda_conv, &err), &err);
}

/* ---- kda_step without a fused op -------------------------------------------------------- */

enum { Y_BYTES = 256 }; /* ROWS * CHANNELS floats, rounded up */

/* The backend wants 128 bytes of work for prep and says 160 for recur. */
static void prepare_composed(struct bench *b) {
    prepare(b, EBRO_OP_KDA_STEP);
    b->be.kda_step = NULL;
    fake.scratch[EBRO_OP_KDA_PREP] = 128;
    fake.scratch[EBRO_OP_KDA_RECUR] = 160;
    b->args.kda_step.scratch = fake_span(3 * Y_BYTES + 160, 1);
}

static void assert_mat(const ebro_mat *m, const ebro_mem *mem, uint64_t offset, uint64_t stride) {
    assert_ptr_equal(m->mem, mem);
    assert_int_equal(m->offset, offset);
    assert_int_equal(m->stride, stride);
    assert_int_equal(m->dtype, EBRO_F32);
}

/* Member by member: padding is nobody's. */
static void assert_span(const ebro_span *a, const ebro_span *b) {
    assert_ptr_equal(a->mem, b->mem);
    assert_int_equal(a->offset, b->offset);
}

static void assert_same_mat(const ebro_mat *a, const ebro_mat *b) {
    assert_mat(a, b->mem, b->offset, b->stride);
}

static void assert_same_vec(const ebro_vec *a, const ebro_vec *b) {
    assert_ptr_equal(a->mem, b->mem);
    assert_int_equal(a->offset, b->offset);
    assert_int_equal(a->dtype, b->dtype);
}

static void assert_same_rows(const ebro_rows *a, const ebro_rows *b) {
    assert_span(&a->row_offsets, &b->row_offsets);
    assert_int_equal(a->n_seqs, b->n_seqs);
    assert_int_equal(a->n_rows, b->n_rows);
    assert_int_equal(a->max_rows, b->max_rows);
}

static void assert_same_state(const ebro_state_io *a, const ebro_state_io *b) {
    assert_span(&a->state_in, &b->state_in);
    assert_span(&a->state_out, &b->state_out);
    assert_span(&a->emit_rows, &b->emit_rows);
    assert_span(&a->emit_slots, &b->emit_slots);
    assert_int_equal(a->n_emit, b->n_emit);
    assert_span(&a->region.table, &b->region.table);
    assert_int_equal(a->region.table_stride, b->region.table_stride);
    assert_int_equal(a->region.first_block, b->region.first_block);
    assert_int_equal(a->region.first_unit, b->region.first_unit);
    assert_int_equal(a->region.units_per_block, b->region.units_per_block);
    assert_int_equal(a->region.block_offset, b->region.block_offset);
    assert_int_equal(a->region.unit_bytes, b->region.unit_bytes);
    assert_int_equal(a->region.dtype, b->region.dtype);
}

static void assert_same_gate(const ebro_kda_gate *a, const ebro_kda_gate *b) {
    assert_int_equal(a->n_heads, b->n_heads);
    assert_int_equal(a->head_dim, b->head_dim);
    assert_same_mat(&a->g_raw, &b->g_raw);
    assert_same_mat(&a->beta_raw, &b->beta_raw);
    assert_same_vec(&a->a_log, &b->a_log);
    assert_same_vec(&a->dt_bias, &b->dt_bias);
    assert_int_equal(a->form, b->form);
    assert_true(a->lower_bound == b->lower_bound && a->l2_eps == b->l2_eps);
}

static void test_composed_step_dispatches_four_ops_in_order(void **state) {
    (void)state;
    struct bench b;
    prepare_composed(&b);
    const ebro_kda_step_args *a = &b.args.kda_step;
    ebro_error err = {0};
    test_ok(eb_op_kda_step(&b.stream, a, &err), &err);
    assert_int_equal(fake.n_calls, 4);
    for (int i = 0; i < 4; i++) assert_ptr_equal(fake.streams[i], b.stream.impl);
    const ebro_mem *scratch = a->scratch.mem;
    uint64_t y = a->scratch.offset, work = y + 3 * Y_BYTES;

    assert_int_equal(fake.ops[0], EBRO_OP_KDA_CONV);
    const ebro_kda_conv_args *conv = &fake.args[0].kda_conv;
    assert_same_rows(&conv->rows, &a->rows);
    assert_same_state(&conv->state, &a->windows);
    assert_int_equal(conv->n_channels, CHANNELS);
    for (uint64_t i = 0; i < 3; i++) {
        assert_same_mat(&conv->x[i], &a->x[i]);
        assert_same_vec(&conv->weight[i], &a->conv_weight[i]);
        assert_mat(&conv->out[i], scratch, y + i * Y_BYTES, CHANNELS);
    }

    assert_int_equal(fake.ops[1], EBRO_OP_KDA_PREP);
    const ebro_kda_prep_args *prep = &fake.args[1].kda_prep;
    assert_same_rows(&prep->rows, &a->rows);
    assert_same_mat(&prep->q, &conv->out[0]);
    assert_same_mat(&prep->k, &conv->out[1]);
    assert_same_mat(&prep->v, &conv->out[2]);
    assert_same_gate(&prep->gate, &a->gate);
    assert_span(&prep->emit_rows, &a->state.emit_rows);
    assert_int_equal(prep->n_emit, a->state.n_emit);
    assert_ptr_equal(prep->work.mem, scratch);
    assert_int_equal(prep->work.offset, work);

    assert_int_equal(fake.ops[2], EBRO_OP_KDA_RECUR);
    const ebro_kda_recur_args *recur = &fake.args[2].kda_recur;
    assert_same_rows(&recur->rows, &a->rows);
    assert_same_mat(&recur->v, &prep->v);
    assert_span(&recur->work, &prep->work);
    assert_same_state(&recur->state, &a->state);
    assert_int_equal(recur->n_heads, HEADS);
    assert_int_equal(recur->head_dim, DIM);

    assert_int_equal(fake.ops[3], EBRO_OP_RMS_NORM);
    const ebro_rms_norm_args *norm = &fake.args[3].rms_norm;
    assert_int_equal(norm->n_rows, ROWS * HEADS);
    assert_int_equal(norm->n_cols, DIM);
    assert_true(norm->eps == a->norm_eps);
    assert_same_vec(&norm->weight, &a->norm_weight);
    assert_mat(&norm->x, scratch, recur->out.offset, DIM);
    assert_mat(&norm->gate, a->out_gate.mem, a->out_gate.offset, DIM);
    assert_mat(&norm->out, a->out.mem, a->out.offset, DIM);
}

static void test_composed_step_walks_heads_of_strided_rows(void **state) {
    (void)state;
    struct bench b;
    prepare_composed(&b);
    ebro_kda_step_args *a = &b.args.kda_step;
    a->out = fake_mat(ROWS, CHANNELS, CHANNELS + 8, EBRO_F32);
    ebro_error err = {0};
    test_ok(eb_op_kda_step(&b.stream, a, &err), &err);
    assert_int_equal(fake.n_calls, 3 + HEADS);
    for (uint32_t h = 0; h < HEADS; h++) {
        assert_int_equal(fake.ops[3 + h], EBRO_OP_RMS_NORM);
        const ebro_rms_norm_args *norm = &fake.args[3 + h].rms_norm;
        uint64_t skip = (uint64_t)h * DIM * sizeof(float);
        assert_int_equal(norm->n_rows, ROWS);
        assert_int_equal(norm->n_cols, DIM);
        assert_mat(&norm->x, a->scratch.mem, a->scratch.offset + skip, CHANNELS);
        assert_mat(&norm->gate, a->out_gate.mem, a->out_gate.offset + skip, CHANNELS);
        assert_mat(&norm->out, a->out.mem, a->out.offset + skip, CHANNELS + 8);
    }
    /* One row is dense whatever its stride. */
    fake.n_calls = 0;
    a->rows.n_rows = a->rows.max_rows = 1;
    a->state.n_emit = a->windows.n_emit = 1;
    test_ok(eb_op_kda_step(&b.stream, a, &err), &err);
    assert_int_equal(fake.n_calls, 4);
    assert_int_equal(fake.args[3].rms_norm.n_rows, HEADS);
    assert_int_equal(fake.args[3].rms_norm.out.stride, DIM);
}

static void test_composed_step_without_rows_moves_states(void **state) {
    (void)state;
    struct bench b;
    prepare_composed(&b);
    set_rows(&b.args, EBRO_OP_KDA_STEP, 0);
    b.args.kda_step.rows.max_rows = 0;
    ebro_error err = {0};
    test_ok(eb_op_kda_step(&b.stream, &b.args.kda_step, &err), &err);
    assert_int_equal(fake.n_calls, 3);
    assert_int_equal(fake.ops[0], EBRO_OP_KDA_CONV);
    assert_int_equal(fake.ops[1], EBRO_OP_KDA_PREP);
    assert_int_equal(fake.ops[2], EBRO_OP_KDA_RECUR);
}

static void test_composed_step_stops_at_the_first_failure(void **state) {
    (void)state;
    static const char *const names[] = {"kda_conv", "kda_prep", "kda_recur", "rms_norm"};
    for (uint32_t i = 0; i < 4; i++) {
        struct bench b;
        prepare_composed(&b);
        fake.result = EBRO_INTERNAL;
        fake.fail_at = i;
        char tail[96];
        snprintf(tail, sizeof tail, "; while running %s on FAKE7; while composing kda_step",
                 names[i]);
        ebro_error err = {0};
        int32_t st = eb_op_kda_step(&b.stream, &b.args.kda_step, &err);
        test_fails(st, EBRO_INTERNAL, &err, tail);
        assert_int_equal(fake.n_calls, i + 1);
    }
}

static void test_composed_step_needs_all_its_parts(void **state) {
    (void)state;
    static const ebro_op parts[] = {EBRO_OP_KDA_CONV, EBRO_OP_KDA_PREP, EBRO_OP_KDA_RECUR,
                                    EBRO_OP_RMS_NORM};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        struct bench b;
        prepare_composed(&b);
        fake_drop(parts[i], &b.be);
        ebro_error err = {0};
        int32_t st = eb_op_kda_step(&b.stream, &b.args.kda_step, &err);
        test_fails(st, EBRO_UNSUPPORTED, &err, "kda_step: device FAKE7");
        assert_int_equal(fake.n_calls, 0);
    }
}

/* The fused op reads its inputs once; the composition keeps its own rows beside them. */
static void test_composed_step_refuses_scratch_over_its_data(void **state) {
    (void)state;
    static const char *const names[] = {"x[0]",          "x[1]",     "x[2]", "gate.g_raw",
                                        "gate.beta_raw", "out_gate", "out"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct bench b;
        prepare_composed(&b);
        ebro_kda_step_args *a = &b.args.kda_step;
        ebro_mat *mats[] = {&a->x[0],          &a->x[1],     &a->x[2], &a->gate.g_raw,
                            &a->gate.beta_raw, &a->out_gate, &a->out};
        uint64_t need = eb_op_scratch(&b.device, EBRO_OP_KDA_STEP, a);
        ebro_mem *shared = fake_mem(4 * need);
        a->scratch = (ebro_span){shared, 0};
        mats[i]->mem = shared;
        mats[i]->offset = need;
        ebro_error err = {0};
        test_ok(eb_op_kda_step(&b.stream, a, &err), &err);
        fake.n_calls = 0;
        mats[i]->offset = need - sizeof(float);
        char part[64];
        snprintf(part, sizeof part, "kda_step: scratch apart from %s does not hold", names[i]);
        test_fails(eb_op_kda_step(&b.stream, a, &err), EBRO_INVALID, &err, part);
        assert_int_equal(fake.n_calls, 0);
    }
}

/* ---- scratch ---------------------------------------------------------------------------- */

static void test_scratch_is_the_backends_word_or_the_sum(void **state) {
    (void)state;
    struct bench b;
    prepare(&b, EBRO_OP_KDA_STEP);
    for (uint32_t i = 0; i < EBRO_N_OPS; i++) fake.scratch[i] = 1000 + i;
    for (int i = 0; i < EBRO_N_OPS; i++)
        assert_int_equal(eb_op_scratch(&b.device, (ebro_op)i, &b.args), 1000 + i);

    b.be.kda_step = NULL;
    fake.scratch[EBRO_OP_KDA_PREP] = 4096;
    fake.scratch[EBRO_OP_KDA_RECUR] = 0;
    ebro_kda_step_args a = {.size = sizeof a, .rows = {.n_seqs = 1, .n_rows = 100, .max_rows = 9}};
    a.gate.n_heads = 3; /* memory references are absent here */
    a.gate.head_dim = 40;
    uint64_t y = 100 * 3 * 40 * 4; /* 48,000: not a multiple of 256 */
    y += 256 - y % 256;
    assert_int_equal(eb_op_scratch(&b.device, EBRO_OP_KDA_STEP, &a), 3 * y + 4096);
    fake.scratch[EBRO_OP_KDA_RECUR] = 5000; /* one region serves both */
    assert_int_equal(eb_op_scratch(&b.device, EBRO_OP_KDA_STEP, &a), 3 * y + 5000);
    fake.scratch[EBRO_OP_KDA_PREP] = UINT64_MAX - 1;
    assert_true(eb_op_scratch(&b.device, EBRO_OP_KDA_STEP, &a) == UINT64_MAX);
    fake.scratch[EBRO_OP_KDA_PREP] = 0;
    a.rows.n_rows = a.gate.n_heads = a.gate.head_dim = UINT32_MAX;
    assert_true(eb_op_scratch(&b.device, EBRO_OP_KDA_STEP, &a) == UINT64_MAX);
}

static void test_composed_step_wants_its_own_scratch(void **state) {
    (void)state;
    struct bench b;
    prepare_composed(&b);
    ebro_error err = {0};
    b.args.kda_step.scratch.mem->bytes--;
    test_fails(
        eb_op_kda_step(&b.stream, &b.args.kda_step, &err), EBRO_INVALID, &err,
        "scratch as large as eb_op_scratch says does not hold (928 bytes wanted, 927 there)");
    assert_int_equal(fake.n_calls, 0);
}

/* ---- overlap ---------------------------------------------------------------------------- */

/* Byte by byte, over all memory. */
static bool overlap_by_hand(const struct eb_strided *a, const struct eb_strided *b) {
    unsigned char mine[512] = {0};
    for (uint64_t r = 0; r < a->n; r++)
        for (uint64_t i = 0; i < a->row_bytes; i++) mine[a->offset + r * a->stride + i] = 1;
    for (uint64_t r = 0; r < b->n; r++)
        for (uint64_t i = 0; i < b->row_bytes; i++)
            if (mine[b->offset + r * b->stride + i]) return true;
    return false;
}

static void test_overlap_agrees_with_bytes(void **state) {
    (void)state;
    struct test_rng rng = {test_seed()};
    static const ebro_mem mem = {.bytes = 512};
    uint32_t n_over = 0, n_apart = 0, n_cautious = 0;
    for (int i = 0; i < 200000; i++) {
        uint64_t stride = 1 + test_u64(&rng) % 24, other = 1 + test_u64(&rng) % 24;
        struct eb_strided a = {&mem, test_u64(&rng) % 200, stride, 1 + test_u64(&rng) % stride,
                               test_u64(&rng) % 9};
        bool same = i % 2 == 0;
        if (same) other = stride;
        struct eb_strided b = {&mem, test_u64(&rng) % 200, other, 1 + test_u64(&rng) % other,
                               test_u64(&rng) % 9};
        bool want = overlap_by_hand(&a, &b), got = eb_strided_overlap(&a, &b);
        if (same) assert_int_equal(got, want);
        if (want) assert_true(got);
        n_over += want;
        n_apart += !want && !got;
        n_cautious += got && !want;
    }
    print_message("%u overlap, %u apart, %u refused for unlike strides\n", (unsigned)n_over,
                  (unsigned)n_apart, (unsigned)n_cautious);
    assert_true(n_over > 10000 && n_apart > 10000);
}

/* ---- names ------------------------------------------------------------------------------ */

static void test_names_and_sizes(void **state) {
    (void)state;
    assert_string_equal(eb_op_name(EBRO_OP_EMBED), "embed");
    assert_string_equal(eb_op_name(EBRO_OP_KDA_PREP), "kda_prep");
    assert_string_equal(eb_op_name(EBRO_OP_ROWS_COPY), "rows_copy");
    assert_string_equal(eb_op_name(EBRO_N_OPS), "unknown op");
    static const struct {
        int32_t dtype;
        const char *name;
        uint32_t size;
    } want[] = {{EBRO_F32, "f32", 4},
                {EBRO_F16, "f16", 2},
                {EBRO_BF16, "bf16", 2},
                {EBRO_MXFP4, "mxfp4", 0},
                {EBRO_U8, "u8", 1},
                {EBRO_I32, "i32", 4},
                {EBRO_I64, "i64", 8},
                {EBRO_F64, "f64", 8},
                {8, "unknown dtype", 0},
                {-1, "unknown dtype", 0},
                {INT32_MIN, "unknown dtype", 0}};
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        assert_string_equal(eb_dtype_name(want[i].dtype), want[i].name);
        assert_int_equal(eb_dtype_size(want[i].dtype), want[i].size);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lost_device_refuses_at_once),
        cmocka_unit_test(test_backend_failure_is_handed_up_with_the_op),
        cmocka_unit_test(test_missing_op_is_unsupported_by_name),
        cmocka_unit_test(test_no_rows_do_nothing_but_move_states),
        cmocka_unit_test(test_no_rows_need_no_room),
        cmocka_unit_test(test_optional_memory_may_be_absent),
        cmocka_unit_test(test_composed_step_dispatches_four_ops_in_order),
        cmocka_unit_test(test_composed_step_walks_heads_of_strided_rows),
        cmocka_unit_test(test_composed_step_without_rows_moves_states),
        cmocka_unit_test(test_composed_step_stops_at_the_first_failure),
        cmocka_unit_test(test_composed_step_needs_all_its_parts),
        cmocka_unit_test(test_composed_step_refuses_scratch_over_its_data),
        cmocka_unit_test(test_scratch_is_the_backends_word_or_the_sum),
        cmocka_unit_test(test_composed_step_wants_its_own_scratch),
        cmocka_unit_test(test_overlap_agrees_with_bytes),
        cmocka_unit_test(test_names_and_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
