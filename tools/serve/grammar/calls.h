/* calls.h: between grammar.c and calls.c: a reply's grammar while it is built. */
#ifndef EB_CALLS_H
#define EB_CALLS_H

#include "../grammar.h"
#include "schema.h"

/* Calls that one reply may make in parallel. */
enum { EB_MAX_CALLS = 16 };

struct eb_draft {
    const struct eb_grammar_spec *spec;
    struct eb_builder b;
    struct eb_rules rules;
};

void eb_draft_control(struct eb_draft *r, const char *name);
/* Kimi K3: <|open|>NAME<|sep|>, or closed. */
void eb_draft_tag(struct eb_draft *r, bool open, const char *name);

/* Calls of the tools that spec names, as each model family writes them. */
void eb_calls_linear(struct eb_draft *r);
void eb_calls_k3(struct eb_draft *r);

#endif
