/* literals.h: one of many texts, and none of them. */
#ifndef EB_LITERALS_H
#define EB_LITERALS_H

#include "program.h"

struct eb_literal {
    const char *p;
    size_t n;
};

/* One of n texts; none: nothing passes. Sorts them. The same text may come twice. Beginnings that
 * texts share are read once, so that many texts are no more ways to go on than there are bytes. */
void eb_build_one_of(struct eb_builder *b, struct eb_literal *texts, size_t n);
/* A string's inside that has no escapes and is none of n texts. Sorts them. */
void eb_build_none_of(struct eb_builder *b, struct eb_literal *texts, size_t n);

#endif
