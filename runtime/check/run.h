/* run.h: what the walk over rungs and the walk over cases share. */
#ifndef EB_CHECK_RUN_H
#define EB_CHECK_RUN_H

#include "check/cases.h"
#include "check/check.h"

enum { EB_VARIANT_BYTES = 256 };

/* The cases of one open device. */
struct eb_opcheck_run {
    const struct eb_opcheck_options *options;
    struct eb_opcheck_tally *tally;
    const char *rung;
    char variants[EBRO_N_OPS][EB_VARIANT_BYTES];
    bool skip[EBRO_N_OPS]; /* ops that are left out */
};

int32_t eb_opcheck_cases(const struct eb_opcheck_run *run, struct ebro_device *d, ebro_error *err);

/* What the backend calls the code of each op; "" where it says nothing. */
void eb_opcheck_variants(struct ebro_device *d, char variants[EBRO_N_OPS][EB_VARIANT_BYTES]);

#endif
