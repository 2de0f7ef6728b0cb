/* grammar.h: what a reply may be: a pushdown automaton over bytes and control tokens, made from a
 * JSON schema, "any JSON object" or tools that must be called; and the walk through it, token by
 * token. Knows nothing of probabilities. Uses the public API alone. */
#ifndef EB_GRAMMAR_H
#define EB_GRAMMAR_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "ebro/ebro.h"

/* ---- vocabulary --------------------------------------------------------------------------- */

/* The model's tokens as a tree of bytes, made once; immutable: any number of threads may use it.
 * The model must outlive it. UNSUPPORTED for a vocabulary that lacks a token for some byte, and for
 * a model without a stop token. */
struct eb_vocab;
int32_t eb_vocab_create(const ebro_model *model, struct eb_vocab **out, ebro_error *err);
void eb_vocab_destroy(struct eb_vocab **vocab);

/* ---- grammar ------------------------------------------------------------------------------ */

/* Immutable: any number of threads may walk it. */
struct eb_grammar;

/* What the content of a reply must be. */
enum eb_content { EB_CONTENT_TEXT, EB_CONTENT_JSON_OBJECT, EB_CONTENT_JSON_SCHEMA };

/* Text is UTF-8, whole and well-formed, over the borders of tokens too. Of control tokens those of
 * the frame alone may come. JSON is written with at most one blank after ':' and ',' and no other,
 * for models lose themselves in blanks; nested at most 64 deep; strings without "\u0000" and
 * without halves of surrogate pairs; whole numbers of at most 18 digits, exponents of two. */
struct eb_grammar_spec {
    const ebro_model *model; /* its chat format is what the reply is framed in */
    bool chat;               /* else the reply is the content alone, then a stop token */
    bool thinking; /* chat, K3: the prompt has opened the think channel: free text first */
    enum eb_content content;
    const json_t *schema; /* EB_CONTENT_JSON_SCHEMA; grammar/schema.h says what may stand in it */
    /* Tools that must be called: OpenAI's "tools" array, or NULL. Then there is no content: the
     * reply is one call (up to 16 where parallel_calls is set) of one of them, with arguments that
     * its "parameters" allow; in K3's format those that it lists, no others. tool: only the one of
     * this name; NULL: any. Without "parameters" a tool has no arguments. */
    const json_t *tools;
    const char *tool;
    bool parallel_calls;
};

/* UNSUPPORTED for a keyword of JSON Schema that is not known how to keep, with its name and place
 * ("#/properties/age/multipleOf"; within a tool's parameters the place begins with
 * "tools[0].function.parameters"). INVALID for what is no schema, for one that allows no value at
 * all or leads back to itself, and for one that is too deep or too large. FORMAT: the vocabulary
 * lacks a control token. Bounded in depth, size and time for any input. Nothing of *spec is kept.
 */
int32_t eb_grammar_create(const struct eb_grammar_spec *spec, struct eb_grammar **out,
                          ebro_error *err);
void eb_grammar_destroy(struct eb_grammar **grammar);

/* ---- walk --------------------------------------------------------------------------------- */

/* Where a reply stands in its grammar. Belongs to one thread at a time, const or not: it remembers
 * what it was asked. Grammar and vocab must outlive it. */
struct eb_walk;
int32_t eb_walk_create(const struct eb_grammar *grammar, const struct eb_vocab *vocab,
                       struct eb_walk **out, ebro_error *err);
void eb_walk_destroy(struct eb_walk **walk);
/* May the token come next? Stop tokens may where the grammar is complete. False too where memory
 * ran out or the grammar is too ambiguous: eb_walk_mask says so. */
bool eb_walk_allows(const struct eb_walk *walk, int32_t id);
/* Goes on past the token, which must be allowed (INVALID, and nothing has changed). NOMEM_HOST, or
 * UNSUPPORTED where the grammar is more ambiguous than what is bounded: nothing has changed, but
 * the request must end. */
int32_t eb_walk_accept(struct eb_walk *walk, int32_t id, ebro_error *err);
/* One bit a token (word id / 32, bit id % 32), 1: allowed; vocab_size bits, rounded up to words.
 * At least one bit is set, always: no walk comes to a dead end. Where it fails the bits mean
 * nothing. Takes a few milliseconds where most of a large vocabulary is allowed. */
int32_t eb_walk_mask(const struct eb_walk *walk, uint32_t *mask, ebro_error *err);
/* True where nothing but a stop token may follow. */
bool eb_walk_is_over(const struct eb_walk *walk);

#endif
