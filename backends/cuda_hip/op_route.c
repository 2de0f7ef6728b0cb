/* op_route.c: moe_route: a product for the logits, the choice of each row, the groups of pairs. */
#include "backends/cuda_hip/cuda_hip.h"
#include "shaders/common/args_route.h"
#include "shaders/cuda_hip/shapes.h"

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

/* The logits, [n_rows][n_experts]. */
uint64_t gpu_scratch_moe_route(const ebro_dev *dev, const ebro_moe_route_args *a) {
    (void)dev;
    return (uint64_t)a->n_rows * a->n_experts * sizeof(float);
}

/* Whether the choice groups its pairs itself. */
static bool is_short(const ebro_moe_route_args *a) {
    return a->n_rows == 1 && a->top_k <= EB_ROUTE_SHORT;
}

static int32_t select_experts(ebro_stream *s, const ebro_moe_route_args *a, ebro_error *err) {
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
    const struct gpu_launch l = {.kernel = GPU_route_select,
                                 .threads = a->n_experts > 256 ? EB_ROUTE_THREADS : 64,
                                 .groups = a->n_rows,
                                 .args = &args};
    return gpu_launch(s, &l, err);
}

static int32_t group_pairs(ebro_stream *s, const ebro_moe_route_args *a, ebro_error *err) {
    const struct eb_route_group_args args = {.ids = eb_arg_mat(&a->ids),
                                             .offsets = eb_arg_span(a->offsets),
                                             .pairs = eb_arg_span(a->pairs),
                                             .n_rows = a->n_rows,
                                             .n_experts = a->n_experts,
                                             .top_k = a->top_k};
    const struct gpu_launch l = {.kernel = GPU_route_group,
                                 .threads = EB_ROUTE_GROUP_THREADS,
                                 .groups = (uint64_t)a->n_experts + 1,
                                 .args = &args};
    return gpu_launch(s, &l, err);
}

int32_t gpu_moe_route(ebro_stream *s, const ebro_moe_route_args *a, ebro_error *err) {
    const ebro_linear_args args = product(a);
    int32_t st = gpu_linear(s, &args, err);
    if (st == EBRO_OK) st = select_experts(s, a, err);
    if (st == EBRO_OK && !is_short(a)) st = group_pairs(s, a, err);
    return st;
}
