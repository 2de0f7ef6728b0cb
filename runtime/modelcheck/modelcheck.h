/* modelcheck.h: does a device run a whole model right? The level above check/check.h: the small
 * demo model, on prompts whose float64 logits and continuations are known.
 *
 *   - logits: of a prompt's last tokens, against float64
 *   - greedy: the tokens that float64 goes on with; at each step those before are given
 *   - recall: the answer to a question about facts in the prompt
 *   - split: the same prompt in one piece, in pieces of odd sizes, token by token
 *   - strict: the same, where a device claims identical bytes for any split
 *   - resume: a sequence that was saved on each device goes on on each other one, itself included
 *   - damage: a saved sequence with one wrong bit is refused
 *
 * Models come and go through the public interface (ebro/ebro.h), as applications use it; the room
 * adds to it what a device's capabilities and budgets are (device/, check/). Not its job:
 * operators, which check/ judges; whose model and golden results these are: the caller hands them
 * in. Results are handed out one by one, as there. */
#ifndef EB_MODELCHECK_MODELCHECK_H
#define EB_MODELCHECK_MODELCHECK_H

#include "check/check.h"

enum eb_modelcheck_kind {
    EB_MODELCHECK_LOGITS = 0,
    EB_MODELCHECK_GREEDY = 1,
    EB_MODELCHECK_RECALL = 2,
    EB_MODELCHECK_SPLIT = 3,
    EB_MODELCHECK_STRICT = 4,
    EB_MODELCHECK_RESUME = 5,
    EB_MODELCHECK_DAMAGE = 6,
    EB_N_MODELCHECKS = 7
};
/* "logits", "greedy", ... */
const char *eb_modelcheck_name(enum eb_modelcheck_kind kind);

/* Valid during the callback alone, but for constants. */
struct eb_modelcheck_result {
    uint32_t device; /* the caller's number of it */
    int32_t from;    /* of RESUME: the device that saved; else -1 */
    const char *rung;
    enum eb_modelcheck_kind kind;
    const char *prompt; /* its name */
    const char *cache;  /* type of the latent cache: "f32"; constant */
    const char *shape;  /* what was evaluated, in words */
    enum eb_opcheck_verdict verdict;
    double error, budget;
    const char *measure, *reason; /* constant */
    double seconds;
    const char *text; /* what is wrong, or why it is refused; else "" */
};

struct eb_modelcheck_options {
    const ebro_file *files; /* of the model; must stay valid */
    uint32_t n_files;
    const void *golden; /* golden.bin of the model (tools/golden.py); must stay valid */
    size_t golden_bytes;
    bool full; /* all prompts and steps, else those that make a quick check */
    /* Called after each result, from the calling thread. False: no more. */
    bool (*result)(void *user, const struct eb_modelcheck_result *r);
    void *user;
};

/* Opens the model; its devices follow. Close it before the runtime. */
struct eb_modelcheck;
int32_t eb_modelcheck_open(ebro_runtime *rt, const struct eb_modelcheck_options *o,
                           struct eb_modelcheck **out, ebro_error *err);
void eb_modelcheck_close(struct eb_modelcheck **check);

/* What a device is opened with for one rung of it. */
struct eb_modelcheck_rung {
    const char *device; /* its name */
    const char *name;   /* "best", "without matrix" */
    uint64_t caps_mask;
    uint32_t n_threads;
};
enum { EB_MODELCHECK_MAX_DEVICES = 32 };

/* All but RESUME and DAMAGE on the best rung of a device; its number, below
 * EB_MODELCHECK_MAX_DEVICES, is the caller's, each once. It stays open, and keeps a saved sequence,
 * for eb_modelcheck_resume. EBRO_OK also where something is wrong; an error is what kept the check
 * from going on, EBRO_CANCELLED included: the device is out of it then. */
int32_t eb_modelcheck_device(struct eb_modelcheck *check, uint32_t device,
                             const struct eb_modelcheck_rung *rung, ebro_error *err);
/* Another rung of it, as a quick check does it, and closed again. */
int32_t eb_modelcheck_rung(struct eb_modelcheck *check, uint32_t device,
                           const struct eb_modelcheck_rung *rung, ebro_error *err);
/* What all devices have saved goes on on this one; and that damage is refused. Does nothing for a
 * device that is out. */
int32_t eb_modelcheck_resume(struct eb_modelcheck *check, uint32_t device, ebro_error *err);

#endif
