/* page.c: the table of the page's files. Their bytes stand in page.S. */
#include "page.h"

#include <string.h>

#define EMBEDDED(stem) extern const unsigned char eb_page_##stem[], eb_page_##stem##_end[];
EMBEDDED(index_html)
EMBEDDED(style_css)
EMBEDDED(page_js)
EMBEDDED(talk_js)
EMBEDDED(memory_js)
EMBEDDED(server_js)
EMBEDDED(sse_js)
EMBEDDED(store_js)
EMBEDDED(dom_js)

#define FILE_OF(path, type, stem) \
    { path, type, eb_page_##stem, eb_page_##stem##_end }
static const char script[] = "text/javascript; charset=utf-8";
static const struct eb_page_file files[] = {
    FILE_OF("/", "text/html; charset=utf-8", index_html),
    FILE_OF("/style.css", "text/css; charset=utf-8", style_css),
    FILE_OF("/page.js", script, page_js),
    FILE_OF("/talk.js", script, talk_js),
    FILE_OF("/memory.js", script, memory_js),
    FILE_OF("/server.js", script, server_js),
    FILE_OF("/sse.js", script, sse_js),
    FILE_OF("/store.js", script, store_js),
    FILE_OF("/dom.js", script, dom_js),
};

const struct eb_page_file *eb_page_find(const char *path) {
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if (strcmp(files[i].path, path) == 0) return &files[i];
    return NULL;
}
