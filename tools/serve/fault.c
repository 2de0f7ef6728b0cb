/* fault.c: see fault.h. */
#include "fault.h"

#include <stdarg.h>
#include <stdio.h>

bool eb_fault_set(struct eb_fault *fault, int status, const char *param, const char *fmt, ...) {
    va_list ap;
    fault->status = status;
    fault->code = fault->allow = NULL;
    snprintf(fault->param, sizeof fault->param, "%s", param ? param : "");
    va_start(ap, fmt);
    vsnprintf(fault->text, sizeof fault->text, fmt, ap);
    va_end(ap);
    return false;
}

bool eb_fault_no_memory(struct eb_fault *fault) {
    return eb_fault_set(fault, 500, NULL, "out of memory for the request");
}

static int status_of(int32_t status) {
    switch (status) {
        case EBRO_INVALID:
        case EBRO_UNSUPPORTED:
        case EBRO_FORMAT: /* the vocabulary lacks a control token that the request needs */
            return 400;
        case EBRO_TIMEOUT: /* how the scheduler says that its queue is full */
            return 429;
        case EBRO_CANCELLED: /* and that it ends */
        case EBRO_DEVICE_LOST:
        case EBRO_NOMEM_DEVICE:
            return 503;
        default:
            return 500;
    }
}

bool eb_fault_of(struct eb_fault *fault, const char *param, const ebro_error *err) {
    const char *text = err->text[0] ? err->text : ebro_status_name(err->status);
    int status = status_of(err->status);
    eb_fault_set(fault, status, param, "%s", text);
    if (status == 429) fault->code = "queue_full";
    return false;
}

const char *eb_fault_type(const struct eb_fault *fault) {
    if (fault->status == 429) return "rate_limit_error";
    return fault->status >= 500 ? "server_error" : "invalid_request_error";
}
