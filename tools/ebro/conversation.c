/* conversation.c: see conversation.h. */
#include "conversation.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file_out.h"
#include "json_in.h"
#include "quote.h"

static const char *const roles[] = {"system", "user", "assistant"};

static void free_message(ebro_chat_message *m) {
    free((char *)(uintptr_t)m->content);
    free((char *)(uintptr_t)m->reasoning);
}

void eb_conversation_cut(struct eb_conversation *c, size_t n) {
    while (c->n > n) free_message(&c->v[--c->n]);
}

void eb_conversation_free(struct eb_conversation *c) {
    eb_conversation_cut(c, 0);
    free(c->v);
    *c = (struct eb_conversation){0};
}

static bool grow(struct eb_conversation *c) {
    if (c->n < c->capacity) return true;
    size_t capacity = c->capacity ? 2 * c->capacity : 16;
    ebro_chat_message *grown = realloc(c->v, capacity * sizeof *grown);
    if (!grown) return false;
    c->v = grown;
    c->capacity = capacity;
    return true;
}

bool eb_conversation_add(struct eb_conversation *c, const char *role, const char *content,
                         size_t content_bytes, const char *reasoning, size_t reasoning_bytes) {
    ebro_chat_message m = {.role = role};
    m.content = eb_utf8_clean(content, content_bytes);
    if (reasoning) m.reasoning = eb_utf8_clean(reasoning, reasoning_bytes);
    if (!m.content || (reasoning && !m.reasoning) || !grow(c)) {
        free_message(&m);
        return false;
    }
    c->v[c->n++] = m;
    return true;
}

bool eb_conversation_set_system(struct eb_conversation *c, const char *text) {
    bool there = c->n > 0 && strcmp(c->v[0].role, "system") == 0;
    if (*text) {
        /* added at the end, then moved to the front */
        if (!eb_conversation_add(c, "system", text, strlen(text), NULL, 0)) return false;
        ebro_chat_message added = c->v[c->n - 1];
        if (there) {
            c->n--;
            free_message(&c->v[0]);
        } else {
            memmove(c->v + 1, c->v, (c->n - 1) * sizeof *c->v);
        }
        c->v[0] = added;
    } else if (there) {
        free_message(&c->v[0]);
        c->n--;
        memmove(c->v, c->v + 1, c->n * sizeof *c->v);
    }
    return true;
}

const char *eb_conversation_last(const struct eb_conversation *c) {
    return c->n > 0 ? c->v[c->n - 1].role : "";
}

/* ---- files ------------------------------------------------------------------------------ */

static bool write_json(FILE *f, const void *user) {
    errno = EIO; /* jansson does not say */
    return json_dumpf(user, f, JSON_INDENT(2)) == 0 && fputc('\n', f) != EOF;
}

/* NULL: out of memory. */
static json_t *to_json(const struct eb_conversation *c) {
    json_t *all = json_array();
    for (size_t i = 0; all && i < c->n; i++) {
        const ebro_chat_message *m = &c->v[i];
        json_t *one = json_pack("{s:s, s:s, s:s*}", "role", m->role, "content", m->content,
                                "reasoning_content", m->reasoning);
        if (json_array_append_new(all, one) != 0) {
            json_decref(all);
            all = NULL;
        }
    }
    return all;
}

bool eb_conversation_save(const struct eb_conversation *c, const char *path, char *text,
                          size_t text_bytes) {
    json_t *all = to_json(c);
    if (!all) snprintf(text, text_bytes, "out of memory for %zu messages", c->n);
    bool ok = all && eb_file_write(path, write_json, all, text, text_bytes);
    json_decref(all);
    return ok;
}

char *eb_conversation_dump(const struct eb_conversation *c) {
    json_t *all = to_json(c);
    char *bytes = all ? json_dumps(all, JSON_COMPACT) : NULL;
    json_decref(all);
    return bytes;
}

/* False: `wrong` says why; empty: out of memory. */
static bool take_message(struct eb_conversation *c, const json_t *one, size_t i, char *wrong,
                         size_t wrong_bytes) {
    const json_t *given = json_object_get(one, "role");
    const json_t *content = json_object_get(one, "content");
    const json_t *reasoning = json_object_get(one, "reasoning_content");
    const char *name = json_string_value(given), *role = NULL, *problem = NULL;
    for (size_t k = 0; name && k < sizeof roles / sizeof *roles; k++)
        if (strcmp(name, roles[k]) == 0) role = roles[k];
    if (json_is_null(reasoning)) reasoning = NULL;
    *wrong = '\0';
    if (!role) {
        char value[32] = "missing";
        if (given) eb_json_shorten(given, value, sizeof value);
        snprintf(wrong, wrong_bytes, "its role (%s) is none of system, user, assistant", value);
        return false;
    }
    if (i > 0 && role == roles[0])
        problem = "a system message can only be the first one";
    else if (!json_is_string(content))
        problem = "its content is no text";
    else if (reasoning && !json_is_string(reasoning))
        problem = "its reasoning_content is no text";
    if (problem) {
        snprintf(wrong, wrong_bytes, "%s", problem);
        return false;
    }
    return eb_conversation_add(c, role, json_string_value(content), json_string_length(content),
                               json_string_value(reasoning), json_string_length(reasoning));
}

/* Takes *all over. NULL: it could not be parsed, and *why says why. */
static bool from_json(struct eb_conversation *c, const char *what, json_t *all,
                      const json_error_t *why, char *text, size_t text_bytes) {
    struct eb_conversation loaded = {0};
    if (!all) {
        if (why->line > 0)
            snprintf(text, text_bytes, "%s is not valid JSON: %s (line %d)", what, why->text,
                     why->line);
        else
            snprintf(text, text_bytes, "cannot read %s: %s", what, why->text);
        return false;
    }
    bool ok = json_is_array(all);
    if (!ok) snprintf(text, text_bytes, "%s: a JSON array of messages is needed", what);
    for (size_t i = 0; ok && i < json_array_size(all); i++) {
        char wrong[128];
        ok = take_message(&loaded, json_array_get(all, i), i, wrong, sizeof wrong);
        if (!ok)
            snprintf(text, text_bytes, "%s: message %zu: %s", what, i + 1,
                     *wrong ? wrong : "out of memory");
    }
    json_decref(all);
    if (ok) {
        eb_conversation_free(c);
        *c = loaded;
    } else {
        eb_conversation_free(&loaded);
    }
    return ok;
}

bool eb_conversation_load(struct eb_conversation *c, const char *path, char *text,
                          size_t text_bytes) {
    json_error_t why;
    json_t *all = eb_json_read_file(path, 0, &why);
    return from_json(c, path, all, &why, text, text_bytes);
}

bool eb_conversation_parse(struct eb_conversation *c, const char *what, const void *bytes, size_t n,
                           char *text, size_t text_bytes) {
    json_error_t why;
    json_t *all = json_loadb(bytes, n, 0, &why);
    return from_json(c, what, all, &why, text, text_bytes);
}
