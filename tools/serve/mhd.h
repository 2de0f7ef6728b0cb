/* mhd.h: what is used of libmicrohttpd, found when a server is opened. The program starts without
 * it, and without what it brings (GnuTLS among that): no other command needs any of it. */
#ifndef EB_MHD_H
#define EB_MHD_H

#include <microhttpd.h>

#include "ebro/ebro.h"

/* name, result, parameters: as in microhttpd.h, which mhd.c compares them with. */
#define EB_MHD_CALLS(CALL)                                                                     \
    CALL(start_daemon, struct MHD_Daemon *,                                                    \
         (unsigned int, uint16_t, MHD_AcceptPolicyCallback, void *, MHD_AccessHandlerCallback, \
          void *, ...))                                                                        \
    CALL(stop_daemon, void, (struct MHD_Daemon *))                                             \
    CALL(get_connection_values, int,                                                           \
         (struct MHD_Connection *, enum MHD_ValueKind, MHD_KeyValueIterator, void *))          \
    CALL(get_connection_info, const union MHD_ConnectionInfo *,                                \
         (struct MHD_Connection *, enum MHD_ConnectionInfoType, ...))                          \
    CALL(suspend_connection, void, (struct MHD_Connection *))                                  \
    CALL(resume_connection, void, (struct MHD_Connection *))                                   \
    CALL(create_response_from_buffer, struct MHD_Response *,                                   \
         (size_t, void *, enum MHD_ResponseMemoryMode))                                        \
    CALL(create_response_from_callback, struct MHD_Response *,                                 \
         (uint64_t, size_t, MHD_ContentReaderCallback, void *, MHD_ContentReaderFreeCallback)) \
    CALL(add_response_header, enum MHD_Result,                                                 \
         (struct MHD_Response *, const char *, const char *))                                  \
    CALL(queue_response, enum MHD_Result,                                                      \
         (struct MHD_Connection *, unsigned int, struct MHD_Response *))                       \
    CALL(destroy_response, void, (struct MHD_Response *))

struct eb_mhd {
#define EB_MHD_MEMBER(name, result, parameters) result(*name) parameters;
    EB_MHD_CALLS(EB_MHD_MEMBER)
#undef EB_MHD_MEMBER
};

/* Constant once it is there. NULL, with UNSUPPORTED: the library cannot be loaded. Not from two
 * threads at once. */
const struct eb_mhd *eb_mhd_load(ebro_error *err);

#endif
