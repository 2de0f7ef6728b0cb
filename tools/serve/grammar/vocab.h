/* vocab.h: what a walk sees of a vocabulary. */
#ifndef EB_VOCAB_H
#define EB_VOCAB_H

#include "../grammar.h"

/* Nodes stand in depth-first order, children right behind their parent: who leaves a node out goes
 * on at `skip`. No two tokens have the same bytes: a model whose vocabulary had them is refused. */
struct eb_vocab_node {
    uint32_t skip;
    int32_t token;  /* -1: none ends here */
    uint16_t depth; /* of what its byte comes to, from 1 */
    uint8_t byte;
};

struct eb_vocab_ids {
    int32_t *v;
    uint32_t n;
    size_t room;
};

struct eb_vocab {
    const ebro_model *model;
    struct eb_vocab_node *nodes;
    uint32_t n_nodes, n_tokens, max_depth;
    size_t nodes_room;
    struct eb_vocab_ids special, stops; /* in order; a control token may be both */
};

#endif
