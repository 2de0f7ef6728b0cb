/* routes.h: which request is answered by what. */
#ifndef EB_ROUTES_H
#define EB_ROUTES_H

#include "service.h"

/* Decides on a request by its line and headers, before its body is read: false, with the fault. */
bool eb_routes_admit(const struct eb_service *service, const struct eb_exchange *x,
                     struct eb_fault *fault);
/* Answers a request that was admitted, now or later. */
void eb_routes_handle(const struct eb_service *service, struct eb_exchange *x);

/* Handlers that stand in files of their own. */
void eb_answer_slots(const struct eb_service *service, struct eb_exchange *x);
void eb_answer_health(const struct eb_service *service, struct eb_exchange *x);
void eb_answer_metrics(const struct eb_service *service, struct eb_exchange *x);

#endif
