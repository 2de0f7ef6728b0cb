/* fault.h: what a client is told when its request cannot be answered. */
#ifndef EB_FAULT_H
#define EB_FAULT_H

#include <stdbool.h>

#include "ebro/ebro.h"

struct eb_fault {
    int status;        /* of HTTP; 0: no fault */
    const char *code;  /* constant; NULL: none */
    const char *allow; /* 405: the methods that there are; constant */
    char param[96];    /* the field that is wrong; "": none */
    char text[640];    /* need not be UTF-8 */
};

#if defined(__GNUC__)
#define EB_FAULT_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define EB_FAULT_PRINTF(fmt, args)
#endif

/* All return false, so that a reader can return what they return. param: NULL or "": none. */
bool eb_fault_set(struct eb_fault *fault, int status, const char *param, const char *fmt, ...)
    EB_FAULT_PRINTF(4, 5);
/* Of the status of a call into the library or the scheduler. */
bool eb_fault_of(struct eb_fault *fault, const char *param, const ebro_error *err);
bool eb_fault_no_memory(struct eb_fault *fault);

/* OpenAI's "type" for the status. */
const char *eb_fault_type(const struct eb_fault *fault);

#endif
