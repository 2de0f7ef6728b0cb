/* check_compare.h: reports of `ebro check` side by side. A machine is one device of one report; a
 * case is an operator and a name; what counts of a case on a machine is the rung where it is worst.
 */
#ifndef EB_CHECK_COMPARE_H
#define EB_CHECK_COMPARE_H

#include "check_read.h"

/* What a machine says of a case, or of all cases of an operator; a later one outweighs. */
enum eb_compared_state {
    EB_COMPARED_ABSENT = 0,
    EB_COMPARED_REFUSED = 1,
    EB_COMPARED_RIGHT = 2,
    EB_COMPARED_FAILED = 3
};

struct eb_machine {
    const struct eb_saved_report *report;
    uint32_t device;
    char label[8]; /* "A" */
};

struct eb_compared_cell {
    enum eb_compared_state state;
    double share; /* of the budget, the largest; 0 where nothing was computed */
};

/* One case, or one operator (name is then the case that differs most, or NULL). */
struct eb_compared {
    const char *op, *name;
    uint32_t n_cases; /* 1 for a case */
    /* The largest share less the smallest, of one case on all machines that computed it; infinite
     * where a machine has no number or was allowed nothing; -1: fewer than two computed it. */
    double difference;
    struct eb_compared_cell *cells; /* [n_machines] */
};

struct eb_comparison {
    struct eb_machine *machines;
    size_t n_machines;
    struct eb_compared *cases; /* by operator, then name */
    size_t n_cases;
    struct eb_compared *ops; /* what differs most comes first */
    size_t n_ops;
    struct eb_compared_cell *cells; /* of all of these */
};

/* The reports have to outlive it. False: out of memory. eb_comparison_free follows either way. */
bool eb_comparison_make(struct eb_comparison *out, const struct eb_saved_report *reports,
                        size_t n_reports);
void eb_comparison_free(struct eb_comparison *c);

/* NULL: no machine has such a case. */
const struct eb_compared *eb_comparison_find(const struct eb_comparison *c, const char *op,
                                             const char *name);
/* "absent", "refused", "right", "failed". */
const char *eb_compared_word(enum eb_compared_state state);
/* The one machine that has the case at all; n_machines: there are several. */
size_t eb_compared_alone(const struct eb_comparison *c, const struct eb_compared *one);
/* Refused on that machine, and computed on another. */
bool eb_compared_refused(const struct eb_comparison *c, const struct eb_compared *one,
                         size_t machine);

/* As text of at most 100 columns, on stdout; as JSON, described in CHECK.md (NULL: out of memory).
 */
void eb_comparison_print(const struct eb_comparison *c);
json_t *eb_comparison_json(const struct eb_comparison *c);

#endif
