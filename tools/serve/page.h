/* page.h: the files of the page at "/", which are part of the program. Says what they are; serving
 * them is http.c's. */
#ifndef EB_PAGE_H
#define EB_PAGE_H

#include <stddef.h>

/* For the header Content-Security-Policy of every one of them: nothing but these files runs, and
 * nothing but this server is asked. */
#define EB_PAGE_POLICY                                                                    \
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "       \
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " \
    "require-trusted-types-for 'script'; trusted-types 'none'"

struct eb_page_file {
    const char *path; /* "/" and "/page.js" */
    const char *type; /* for Content-Type */
    const unsigned char *bytes, *end;
};

/* The file of this path; NULL: there is none. Constant, from any thread. */
const struct eb_page_file *eb_page_find(const char *path);

#endif
