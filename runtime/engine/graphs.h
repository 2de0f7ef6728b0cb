/* graphs.h: steps that decode are all alike but for the step block: each number of rows is recorded
 * when it comes a second time, as a graph, and launched from then on. (The first time teaches a
 * backend what the work takes, and may be the only one.) */
#ifndef EB_GRAPHS_H
#define EB_GRAPHS_H

#include <stdbool.h>
#include <stdint.h>

#include "ebro/backend.h"

struct ebro_engine;
struct eb_step;

enum { EB_MAX_GRAPHS = 64 };

struct eb_graph_item {
    uint32_t n_rows;   /* the key: what else a decoding step depends on is fixed by the engine */
    ebro_graph *graph; /* NULL: it came once */
};

struct eb_graphs {
    struct eb_graph_item items[EB_MAX_GRAPHS];
    uint32_t n, next; /* `next` gives way where all are in use */
};

/* Whether the engine records its decoding steps at all: its device can, and nothing is kept or
 * forced on the way. Their logits then go to batch_logits, for one sequence too. */
bool eb_graphs_used(const struct ebro_engine *e);

/* The layer walk of a step: by its graph where it has one, recorded now if it is the second of its
 * kind; encoded directly else. */
int32_t eb_graphs_forward(struct ebro_engine *e, const struct eb_step *step, ebro_error *err);

/* Safe on a zeroed one; no step may be under way. */
void eb_graphs_close(struct ebro_engine *e);

#endif
