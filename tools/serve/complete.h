/* complete.h: a request for a reply from its arrival to the last byte of its answer: read, handed
 * to the scheduler, and each piece of what is written told to whoever asked, whole or as a stream.
 */
#ifndef EB_COMPLETE_H
#define EB_COMPLETE_H

#include "service.h"

/* Answers a POST of a conversation, or of a text. Returns soon; the answer comes later. */
void eb_complete(const struct eb_service *service, struct eb_exchange *x, bool chat);

/* The parts of it, for whoever stands in for the scheduler. */
struct eb_completion;
/* Reads the request; NULL, with a fault, where it is wrong. Holds the exchange. */
struct eb_completion *eb_completion_open(const struct eb_service *service, struct eb_exchange *x,
                                         bool chat, struct eb_fault *fault);
const struct eb_job_spec *eb_completion_job(const struct eb_completion *completion);
/* A listener for each reply that is asked for; returns how many. Once the last one was told the
 * finish, the answer is complete and the completion is gone. */
uint32_t eb_completion_listeners(struct eb_completion *completion,
                                 struct eb_listener listeners[EB_REQUEST_CHOICES]);
/* Instead of all that: no listener was called, and none will be. Answers nothing. */
void eb_completion_drop(struct eb_completion *completion);

#endif
