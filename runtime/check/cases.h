/* cases.h: the lists of cases, one file for each family of operators. */
#ifndef EB_CHECK_CASES_H
#define EB_CHECK_CASES_H

#include "check/trial.h"

/* The smallest check that a case is in; the larger ones have it too. */
enum eb_case_part {
    EB_CASE_FULL,
    EB_CASE_QUICK,
    EB_CASE_START /* the self-test before a device is used: what finds most in the least time */
};

struct eb_opcheck_case {
    ebro_op op;
    const char *name;
    enum eb_case_part part;
    /* Capabilities (EBRO_CAP_*) that the device must have claimed; without them there is no case.
     */
    uint64_t needs;
    /* Builds the data, calls, compares. `which`: the case's own number. */
    void (*run)(struct eb_trial *t, uint32_t which);
    uint32_t which;
};

/* A list and its length. */
struct eb_opcheck_list {
    const struct eb_opcheck_case *cases;
    size_t n;
};

extern const struct eb_opcheck_list eb_opcheck_dense; /* embed, linear, rms_norm, act_mul, mix */
extern const struct eb_opcheck_list eb_opcheck_moe;
extern const struct eb_opcheck_list eb_opcheck_kda;
extern const struct eb_opcheck_list eb_opcheck_mla;
extern const struct eb_opcheck_list eb_opcheck_sample;
extern const struct eb_opcheck_list eb_opcheck_copy;

#endif
