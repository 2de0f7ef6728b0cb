/* split.c: Kimi's splitting rules as a PCRE2 pattern. Not here: tokens, special names. */
#include "model/split.h"

#include <stdbool.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/* The published rules use class intersections, which PCRE2 has not. A class of general categories
 * without Han equals the complement of the other categories and Han, which is a plain class: no
 * group, so a long run needs no memory for backtracking.
 *   UPPER = [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]
 *   LOWER = [\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]
 * Han is the script property itself (sc): a bare \p{Han} means script extensions since PCRE2 10.40
 * and would take in CJK punctuation. SPACE is Unicode's White_Space: PCRE2's \s has U+180E too. */
#define HAN "\\p{sc:Han}"
#define UPPER "[^\\p{Ll}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}" HAN "]"
#define LOWER "[^\\p{Lu}\\p{Lt}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}" HAN "]"
#define SPACE "\\x09-\\x0d\\x20\\x{85}\\p{Z}"
#define SUFFIX "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"

/* clang-format off */
static const char pattern[] =
    HAN "+"
    "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" SUFFIX
    "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" SUFFIX
    "|\\p{N}{1,3}"
    "| ?[^" SPACE "\\p{L}\\p{N}]+[\\r\\n]*"
    "|[" SPACE "]*[\\r\\n]+"
    "|[" SPACE "]+(?![^" SPACE "])"
    "|[" SPACE "]+";
/* clang-format on */

enum { MAX_HEAP_KIB = 64 * 1024, MAX_DEPTH = 1000 };

struct eb_splitter {
    struct eb_alloc alloc;
    pcre2_general_context *memory;
    pcre2_code *code;
};

static void *pcre_malloc(PCRE2_SIZE n, void *user) {
    void *p = NULL;
    return eb_realloc(user, &p, n, 1, NULL) == EBRO_OK ? p : NULL;
}

static void pcre_free(void *p, void *user) {
    eb_free(user, p);
}

static int32_t fail_code(ebro_error *err, int32_t status, int code, const char *what) {
    PCRE2_UCHAR text[256] = {0};
    pcre2_get_error_message(code, text, sizeof text);
    return eb_fail(err, status, "%s: PCRE2 says \"%s\"", what, (const char *)text);
}

static int32_t compile_pattern(struct eb_splitter *s, ebro_error *err) {
    pcre2_compile_context *context = pcre2_compile_context_create(s->memory);
    if (context == NULL)
        return eb_fail(err, EBRO_NOMEM_HOST, "out of memory compiling the splitting rules");
    int code = 0;
    PCRE2_SIZE at = 0;
    s->code = pcre2_compile((PCRE2_SPTR)pattern, sizeof pattern - 1,
                            PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &code, &at, context);
    pcre2_compile_context_free(context);
    if (s->code == NULL)
        return fail_code(err, code == PCRE2_ERROR_HEAP_FAILED ? EBRO_NOMEM_HOST : EBRO_UNSUPPORTED,
                         code, "the splitting rules need PCRE2 10.40 or newer with Unicode");
    /* Where there is no JIT, pcre2_match interprets: slower, same pieces. */
    (void)pcre2_jit_compile(s->code, PCRE2_JIT_COMPLETE);
    return EBRO_OK;
}

int32_t eb_splitter_open(const struct eb_alloc *a, struct eb_splitter **out, ebro_error *err) {
    *out = NULL;
    struct eb_splitter *s = eb_calloc(a, 1, sizeof *s, err);
    if (s == NULL) return EBRO_NOMEM_HOST;
    if (a != NULL) s->alloc = *a;
    s->memory = pcre2_general_context_create(pcre_malloc, pcre_free, &s->alloc);
    int32_t st = s->memory != NULL
                     ? compile_pattern(s, err)
                     : eb_fail(err, EBRO_NOMEM_HOST, "out of memory for the splitting rules");
    if (st != EBRO_OK)
        eb_splitter_close(&s);
    else
        *out = s;
    return st;
}

void eb_splitter_close(struct eb_splitter **s) {
    if (s == NULL || *s == NULL) return;
    struct eb_alloc alloc = (*s)->alloc;
    pcre2_code_free((*s)->code);
    pcre2_general_context_free((*s)->memory);
    eb_free(&alloc, *s);
    *s = NULL;
}

static bool is_tail(unsigned char c) {
    return (c & 0xc0) == 0x80;
}

/* Bytes of the valid UTF-8 sequence that p starts with; 0: none. No overlong forms, no surrogates,
 * nothing above U+10FFFF: the same set as PCRE2's own check, which is skipped for this one. */
static size_t utf8_length(const unsigned char *p, size_t n) {
    unsigned char c = p[0];
    if (c < 0x80) return 1;
    if (c < 0xc2 || c > 0xf4 || n < 2 || !is_tail(p[1])) return 0;
    if (c < 0xe0) return 2;
    if (c < 0xf0) {
        if ((c == 0xe0 && p[1] < 0xa0) || (c == 0xed && p[1] > 0x9f)) return 0;
        return n >= 3 && is_tail(p[2]) ? 3 : 0;
    }
    if ((c == 0xf0 && p[1] < 0x90) || (c == 0xf4 && p[1] > 0x8f)) return 0;
    return n >= 4 && is_tail(p[2]) && is_tail(p[3]) ? 4 : 0;
}

/* Length of the longest run of valid sequences, or of bytes that belong to none. */
static size_t run_length(const unsigned char *p, size_t n, bool *valid) {
    size_t len = utf8_length(p, n), at = len;
    *valid = len > 0;
    if (*valid) {
        while (at < n && (len = utf8_length(p + at, n - at)) > 0) at += len;
    } else {
        at = 1;
        while (at < n && utf8_length(p + at, n - at) == 0) at++;
    }
    return at;
}

struct matcher {
    const pcre2_code *code;
    pcre2_match_data *data;
    pcre2_match_context *context;
};

static int32_t match_at(const struct matcher *m, const char *text, size_t bytes, size_t at,
                        size_t *end, ebro_error *err) {
    PCRE2_SPTR subject = (PCRE2_SPTR)text;
    int rc = pcre2_match(m->code, subject, bytes, at, PCRE2_NO_UTF_CHECK, m->data, m->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(m->code, subject, bytes, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, m->data,
                         m->context);
    if (rc == PCRE2_ERROR_NOMEMORY)
        return eb_fail(err, EBRO_NOMEM_HOST, "out of memory splitting text at byte %zu", at);
    if (rc < 0) return fail_code(err, EBRO_INTERNAL, rc, "splitting text");
    const PCRE2_SIZE *found = pcre2_get_ovector_pointer(m->data);
    if (found[0] != at || found[1] <= at || found[1] > bytes)
        return eb_fail(err, EBRO_INTERNAL, "splitting text: a piece at byte %zu is [%zu, %zu)", at,
                       (size_t)found[0], (size_t)found[1]);
    *end = found[1];
    return EBRO_OK;
}

static int32_t split_valid(const struct matcher *m, const char *text, size_t bytes,
                           eb_piece_fn piece, void *user, ebro_error *err) {
    for (size_t at = 0, end = 0; at < bytes; at = end) {
        int32_t st = match_at(m, text, bytes, at, &end, err);
        if (st == EBRO_OK) st = piece(user, text + at, end - at, err);
        if (st != EBRO_OK) return st;
    }
    return EBRO_OK;
}

int32_t eb_splitter_run(const struct eb_splitter *s, const char *text, size_t bytes,
                        eb_piece_fn piece, void *user, ebro_error *err) {
    if (bytes == 0) return EBRO_OK;
    int32_t st = EBRO_OK;
    struct matcher m = {.code = s->code};
    m.data = pcre2_match_data_create(1, s->memory);
    m.context = pcre2_match_context_create(s->memory);
    if (m.data == NULL || m.context == NULL) {
        st = eb_fail(err, EBRO_NOMEM_HOST, "out of memory splitting text");
        goto out;
    }
    /* No alternative looks at a character more than a few times, so a limit in proportion to the
     * text is never met; it is there so that a mistake in this reasoning is an error, not a hang.
     */
    uint64_t limit = 1000 + 16 * (uint64_t)bytes;
    pcre2_set_match_limit(m.context, limit < UINT32_MAX ? (uint32_t)limit : UINT32_MAX);
    pcre2_set_heap_limit(m.context, MAX_HEAP_KIB);
    pcre2_set_depth_limit(m.context, MAX_DEPTH);

    for (size_t at = 0, n = 0; at < bytes && st == EBRO_OK; at += n) {
        bool valid = false;
        n = run_length((const unsigned char *)text + at, bytes - at, &valid);
        st = valid ? split_valid(&m, text + at, n, piece, user, err)
                   : piece(user, text + at, n, err);
    }
out:
    pcre2_match_context_free(m.context);
    pcre2_match_data_free(m.data);
    return st;
}
