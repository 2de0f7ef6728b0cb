/* compiled.h: what a grammar is inside. */
#ifndef EB_COMPILED_H
#define EB_COMPILED_H

#include "../grammar.h"
#include "program.h"

struct eb_grammar {
    struct eb_program program;
};

#endif
