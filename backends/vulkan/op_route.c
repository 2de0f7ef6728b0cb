/* op_route.c: moe_route: a product for the logits, the choice of each row, the groups of pairs. */
#include "backends/vulkan/vulkan.h"
#include "shaders/common/args_route.h"

enum {
    GROUP_THREADS = 128,
    MOST_HELD = 8 /* keys that a thread of route_select can hold */
};

static uint64_t logits_bytes(const ebro_moe_route_args *a) {
    return (uint64_t)a->n_rows * a->n_experts * sizeof(float);
}

static ebro_linear_args product(const ebro_moe_route_args *a) {
    return (ebro_linear_args){
        .size = sizeof(ebro_linear_args),
        .x = a->x,
        .n_rows = a->n_rows,
        .n_items = 1,
        .n_batch = 1,
        .items = {
            {.w = a->gate, .out = {a->scratch.mem, a->scratch.offset, a->n_experts, EBRO_F32}}}};
}

/* Logits [n_rows][n_experts], then what the product wants. */
uint64_t vk_scratch_moe_route(const ebro_dev *dev, const ebro_moe_route_args *a) {
    const ebro_linear_args args = product(a);
    return vk_div_up(logits_bytes(a), 256) * 256 + vk_scratch_linear(dev, &args);
}

/* Whether the choice groups its pairs itself. */
static bool is_short(const ebro_moe_route_args *a) {
    return a->n_rows == 1 && a->top_k <= EB_ROUTE_SHORT;
}

static int32_t select_experts(ebro_stream *s, const ebro_moe_route_args *a, ebro_error *err) {
    uint64_t n_pairs = (uint64_t)a->n_rows * a->top_k;
    const struct eb_route_args args = {.logits = eb_arg_span(a->scratch),
                                       .bias = eb_arg_vec(&a->bias),
                                       .ids = eb_arg_mat(&a->ids),
                                       .weights = eb_arg_mat(&a->weights),
                                       .offsets = is_short(a) ? eb_arg_span(a->offsets) : 0,
                                       .pairs = is_short(a) ? eb_arg_span(a->pairs) : 0,
                                       .n_experts = a->n_experts,
                                       .top_k = a->top_k,
                                       .scaling = a->scaling,
                                       .renormalise = a->renormalise != 0,
                                       .biased_weights = a->biased_weights != 0,
                                       .forced = a->forced != 0};
    struct vk_launch l = {.kernel = VK_route_select,
                          .args = &args,
                          .groups = a->n_rows,
                          .work = (uint64_t)a->n_rows * a->n_experts * 64};
    l.threads = vk_threads(vk_stream_device(s), a->n_experts > 256 ? 256 : 64);
    uint64_t held = vk_div_up(a->n_experts, l.threads);
    l.specs[0] = held < MOST_HELD ? (uint32_t)held : MOST_HELD;
    l.n_specs = 1;
    vk_reads_span(&l, a->scratch, logits_bytes(a));
    vk_reads_vec(&l, &a->bias, a->n_experts);
    if (a->forced) {
        vk_reads_mat(&l, &a->ids, a->n_rows, a->top_k);
    } else {
        vk_writes_mat(&l, &a->ids, a->n_rows, a->top_k);
    }
    vk_writes_mat(&l, &a->weights, a->n_rows, a->top_k);
    if (is_short(a)) {
        vk_writes_span(&l, a->offsets, ((uint64_t)a->n_experts + 1) * sizeof(int32_t));
        vk_writes_span(&l, a->pairs, n_pairs * sizeof(int32_t));
    }
    return vk_launch(s, &l, err);
}

static int32_t group_pairs(ebro_stream *s, const ebro_moe_route_args *a, ebro_error *err) {
    uint64_t n_pairs = (uint64_t)a->n_rows * a->top_k;
    const struct eb_route_group_args args = {.ids = eb_arg_mat(&a->ids),
                                             .offsets = eb_arg_span(a->offsets),
                                             .pairs = eb_arg_span(a->pairs),
                                             .n_rows = a->n_rows,
                                             .n_experts = a->n_experts,
                                             .top_k = a->top_k};
    struct vk_launch l = {.kernel = VK_route_group,
                          .threads = vk_threads(vk_stream_device(s), GROUP_THREADS),
                          .args = &args,
                          .groups = (uint64_t)a->n_experts + 1,
                          .work = ((uint64_t)a->n_experts + 1) * n_pairs};
    vk_reads_mat(&l, &a->ids, a->n_rows, a->top_k);
    vk_writes_span(&l, a->offsets, ((uint64_t)a->n_experts + 1) * sizeof(int32_t));
    vk_writes_span(&l, a->pairs, n_pairs * sizeof(int32_t));
    return vk_launch(s, &l, err);
}

int32_t vk_moe_route(ebro_stream *s, const ebro_moe_route_args *a, ebro_error *err) {
    ebro_linear_args args = product(a);
    args.scratch =
        (ebro_span){a->scratch.mem, a->scratch.offset + vk_div_up(logits_bytes(a), 256) * 256};
    int32_t st = vk_linear(s, &args, err);
    if (st == EBRO_OK) st = select_experts(s, a, err);
    if (st == EBRO_OK && !is_short(a)) st = group_pairs(s, a, err);
    return st;
}
