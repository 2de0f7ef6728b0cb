/* graphs.c: see graphs.h. Everything that changes from step to step is read on the device, from the
 * step block, so a graph is never patched: not when sequences come and go, not when contexts grow.
 */
#include "engine/engine.h"

bool eb_graphs_used(const struct ebro_engine *e) {
    return eb_can_record(e->device) && !e->expert_choices;
}

static bool is_recordable(const struct ebro_engine *e, const struct eb_step *step) {
    return eb_graphs_used(e) && step->n_decoding == step->n_parts && step->n_heads == 1 &&
           step->heads[0].out.mem == e->batch_logits;
}

static struct eb_graph_item *find(struct eb_graphs *g, uint32_t n_rows) {
    for (uint32_t i = 0; i < g->n; i++)
        if (g->items[i].n_rows == n_rows) return &g->items[i];
    return NULL;
}

/* A place without a graph yet. The oldest gives way: every step is waited for, so none of them is
 * under way. */
static void remember(struct ebro_engine *e, uint32_t n_rows) {
    struct eb_graphs *g = &e->graphs;
    eb_graph_free(e->device, &g->items[g->next].graph);
    g->items[g->next].n_rows = n_rows;
    g->next = (g->next + 1) % EB_MAX_GRAPHS;
    if (g->n < EB_MAX_GRAPHS) g->n++;
}

static int32_t record(struct ebro_engine *e, const struct eb_step *step, ebro_graph **out,
                      ebro_error *err) {
    ebro_graph *graph = NULL;
    int32_t st = eb_graph_begin(&e->stream, err);
    if (st != EBRO_OK) return st;
    st = eb_forward(e, step, err);
    int32_t ended = eb_graph_end(&e->stream, &graph, st == EBRO_OK ? err : NULL);
    if (st == EBRO_OK) st = ended;
    if (st != EBRO_OK) {
        eb_graph_free(e->device, &graph);
        return st;
    }
    *out = graph;
    return EBRO_OK;
}

int32_t eb_graphs_forward(struct ebro_engine *e, const struct eb_step *step, ebro_error *err) {
    if (!is_recordable(e, step)) return eb_forward(e, step, err);
    struct eb_graph_item *item = find(&e->graphs, step->n_rows);
    if (item == NULL) {
        remember(e, step->n_rows);
        return eb_forward(e, step, err);
    }
    int32_t st =
        item->graph == NULL ? record(e, step, &item->graph, err) : eb_forward_begin(e, step, err);
    return st == EBRO_OK ? eb_graph_launch(&e->stream, item->graph, err) : st;
}

void eb_graphs_close(struct ebro_engine *e) {
    for (uint32_t i = 0; i < e->graphs.n; i++) eb_graph_free(e->device, &e->graphs.items[i].graph);
    e->graphs = (struct eb_graphs){0};
}
