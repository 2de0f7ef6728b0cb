/* check.h: does a device compute the operators right? Every operator on friendly, extreme and
 * adversarial inputs against float64, on every rung of the device: how far it is off, what is
 * allowed and why, and whether the same call gives the same bytes again. Results are handed out one
 * by one; nothing is printed and nothing is decided for the caller.
 *
 * Not its job: whole models, and what happens to a device that fails.
 *
 *   - a case: one operator, one kind of input; its data are random numbers from a seed, or what
 *     breaks such operators elsewhere. cases_*.c list them.
 *   - a trial (trial.h): a case on a device, with its memory, and what was found.
 *   - a budget (budget.h): the largest error that is right, with the reason. tests/opcheck holds
 * the backends to the same ones.
 *   - the references (ref.h) are float64 and share no code with any backend. */
#ifndef EB_CHECK_CHECK_H
#define EB_CHECK_CHECK_H

#include "ops/ops.h"

enum eb_opcheck_verdict {
    EB_OPCHECK_OK = 0,
    EB_OPCHECK_FAILED = 1, /* wrong, not repeatable, or refused though others have to accept it */
    EB_OPCHECK_REFUSED = 2 /* EBRO_UNSUPPORTED before anything was computed, with its reason */
};

/* One case on one rung. Valid during the callback alone. */
struct eb_opcheck_result {
    const ebro_device_info *device;
    const char *rung;    /* "best", or what was taken away: "without matrix" */
    const char *variant; /* the backend's name of the code that ran; "": it gives none */
    ebro_op op;
    const char *name;  /* of the case */
    const char *shape; /* in words */
    uint64_t seed;     /* of the run: with it the case has the same inputs again */
    enum eb_opcheck_verdict verdict;
    /* Of the comparison that came nearest to its budget; infinite where something is not finite. */
    double error, budget;
    const char *measure; /* what both are parts of: "of the largest", "bytes" */
    const char *reason;  /* of the budget */
    uint32_t n_runs;     /* with the same input */
    bool repeatable;     /* all of them gave the same bytes */
    double seconds;
    const char *text; /* what is wrong, or why it is refused; else "" */
};

struct eb_opcheck_options {
    uint64_t seed;
    bool full;        /* all cases; else those that make a quick check, a part of them */
    bool start;       /* even fewer: those of the self-test (selftest.h) */
    int32_t op;       /* this one alone; -1: all */
    const char *name; /* of a case: this one alone; NULL: all */
    uint32_t n_runs;  /* of each call, with the same input; 0: 10 */
    /* Called after each case, from the calling thread. False: no more. */
    bool (*result)(void *user, const struct eb_opcheck_result *r);
    /* Called before the cases of each rung (eb_opcheck_rungs); caps_mask: what was taken away,
     * caps: what is left. NULL: not. */
    void (*rung)(void *user, const char *name, uint64_t caps_mask, const ebro_caps *caps);
    void *user;
};

/* How many cases of a rung the options mean; fewer where operators were checked before, or where
 * the device does not claim what a case needs. */
uint32_t eb_opcheck_count(const struct eb_opcheck_options *o);

struct eb_opcheck_tally {
    uint32_t n_ok, n_failed, n_refused;
};

/* The device as it is open, on a stream of its own. Adds to *tally. EBRO_OK also where cases
 * failed; an error is what kept the check from going on: memory, a lost device, EBRO_CANCELLED. */
int32_t eb_opcheck_device(struct ebro_device *d, const struct eb_opcheck_options *o,
                          struct eb_opcheck_tally *tally, ebro_error *err);

/* Every rung of the device: it is opened with all its capabilities, then with some of them taken
 * away, and an operator is checked where that makes the backend choose other code than before.
 * settings: threads; its caps_mask is taken away throughout. */
int32_t eb_opcheck_rungs(ebro_runtime *rt, const char *device, const ebro_device_options *settings,
                         const struct eb_opcheck_options *o, struct eb_opcheck_tally *tally,
                         ebro_error *err);

#endif
