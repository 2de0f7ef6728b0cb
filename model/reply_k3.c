/* reply_k3.c: replies of Kimi K3: channels "think" and "response", then maybe
 *     <|open|>tools<|sep|><|open|>call tool="NAME" index="1"<|sep|>
 *     <|open|>argument key="city" type="string"<|sep|>Paris<|close|>argument<|sep|>
 *     <|close|>call<|sep|><|close|>tools<|sep|>
 * whose typed arguments become one JSON object: {"city": "Paris"}. Only the marks are control
 * tokens; tags are ordinary text. */
#include <stdio.h>
#include <string.h>

#include "model/reply.h"

enum control { OPEN, CLOSE, SEP, END_OF_MSG, N_CONTROLS };
static const char *const names[N_CONTROLS] = {
    [OPEN] = "<|open|>", [CLOSE] = "<|close|>", [SEP] = "<|sep|>", [END_OF_MSG] = "<|end_of_msg|>"};

/* CALL: between the arguments of a call. OTHER: in a channel, or a part of a call, that is not
 * known. */
enum place { BETWEEN, RESPONSE, THINK, CALL, ARGUMENT, JSON, OTHER };

/* The prompt has opened the first channel. */
static void start(ebro_reply *r, bool thinking) {
    r->place = thinking ? THINK : RESPONSE;
}

static void enter(ebro_reply *r, enum place place) {
    r->place = (int32_t)place;
    r->stray = false;
}

static void give_arguments(ebro_reply *r, const char *text) {
    eb_reply_give(r, EBRO_REPLY_TOOL_ARGUMENTS, text, strlen(text));
}

/* ---- tags ------------------------------------------------------------------------------- */

static bool is(struct eb_span s, const char *name) {
    return eb_span_equal(s, (struct eb_span){name, strlen(name)});
}

/* Takes the text before the first byte of `stop`, or all, off *rest. */
static struct eb_span cut(struct eb_span *rest, const char *stop) {
    struct eb_span s = *rest;
    for (s.n = 0; s.n < rest->n; s.n++)
        if (rest->p[s.n] != '\0' && strchr(stop, rest->p[s.n]) != NULL) break;
    rest->p += s.n;
    rest->n -= s.n;
    return s;
}

static void skip(struct eb_span *rest, size_t n) {
    n = n < rest->n ? n : rest->n;
    rest->p += n;
    rest->n -= n;
}

/* The value of `key` in key="value" key="value" ..., quotes in which are escaped; none: empty. */
static struct eb_span attribute(struct eb_span rest, const char *key) {
    for (;;) {
        rest = eb_span_trim(rest);
        if (rest.n == 0) return rest;
        const struct eb_span found = cut(&rest, "= \t\r\n");
        if (rest.n < 2 || rest.p[0] != '=' || rest.p[1] != '"') {
            skip(&rest, 1);
            continue;
        }
        skip(&rest, 2);
        const struct eb_span value = cut(&rest, "\"");
        skip(&rest, 1);
        if (is(found, key)) return value;
    }
}

/* Decodes &amp; and &quot; in place; `value` lies in held. */
static struct eb_span unescape(ebro_reply *r, struct eb_span value) {
    char *out = r->held + (value.p - r->held);
    struct eb_span rest = value;
    size_t n = 0;
    while (rest.n > 0) {
        const bool amp = rest.n >= 5 && memcmp(rest.p, "&amp;", 5) == 0;
        const bool quot = rest.n >= 6 && memcmp(rest.p, "&quot;", 6) == 0;
        out[n++] = amp ? '&' : quot ? '"' : rest.p[0];
        skip(&rest, amp ? 5 : quot ? 6 : 1);
    }
    value.n = n;
    return value;
}

/* ---- arguments -------------------------------------------------------------------------- */

/* Text as the inside of a JSON string. Bytes beyond ASCII stay, so that characters may come in
 * parts. */
static void give_escaped(ebro_reply *r, const char *p, size_t n) {
    static const char plain[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    size_t from = 0;
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)p[i];
        char escape[8];
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        eb_reply_give(r, EBRO_REPLY_TOOL_ARGUMENTS, p + from, i - from);
        const char *at = c != 0 ? strchr(plain, c) : NULL;
        if (at != NULL)
            snprintf(escape, sizeof escape, "\\%c", letters[at - plain]);
        else
            snprintf(escape, sizeof escape, "\\u%04x", c);
        give_arguments(r, escape);
        from = i + 1;
    }
    eb_reply_give(r, EBRO_REPLY_TOOL_ARGUMENTS, p + from, n - from);
}

static enum eb_value_kind kind_of(struct eb_span type) {
    if (is(type, "object") || is(type, "array")) return EB_VALUE_JSON;
    if (is(type, "number") || is(type, "integer") || is(type, "boolean") || is(type, "null"))
        return EB_VALUE_SCALAR;
    return EB_VALUE_STRING; /* which any text may be */
}

static void begin_argument(ebro_reply *r, struct eb_span attributes) {
    r->value = kind_of(attribute(attributes, "type"));
    r->blank = true;
    r->n_scalar = 0;
    const struct eb_span key = unescape(r, attribute(attributes, "key"));
    give_arguments(r, r->n_arguments++ == 0 ? "{\"" : ", \"");
    give_escaped(r, key.p, key.n);
    give_arguments(r, r->value == EB_VALUE_STRING ? "\": \"" : "\": ");
    enter(r, ARGUMENT);
}

static void become_string(ebro_reply *r, struct eb_span text) {
    r->value = EB_VALUE_STRING;
    give_arguments(r, "\"");
    give_escaped(r, text.p, text.n);
}

/* Held until all of it is known to be a number, true, false or null; what is not, or is too long to
 * be held, is a string. */
static void take_scalar(ebro_reply *r, const char *p, size_t n) {
    const size_t room = sizeof r->scalar - r->n_scalar, taken = n < room ? n : room;
    memcpy(r->scalar + r->n_scalar, p, taken);
    r->n_scalar += taken;
    if (taken == n) return;
    become_string(r, (struct eb_span){r->scalar, r->n_scalar});
    give_escaped(r, p + taken, n - taken);
}

static void take_argument(ebro_reply *r, const char *p, size_t n) {
    if (r->value == EB_VALUE_STRING) {
        give_escaped(r, p, n);
    } else if (r->value == EB_VALUE_SCALAR) {
        take_scalar(r, p, n);
    } else {
        for (size_t i = 0; i < n && r->blank; i++) r->blank = eb_is_white(p[i]);
        eb_reply_give(r, EBRO_REPLY_TOOL_ARGUMENTS, p, n);
    }
}

static size_t count_digits(struct eb_span s) {
    size_t n = 0;
    while (n < s.n && s.p[n] >= '0' && s.p[n] <= '9') n++;
    return n;
}

/* As JSON writes it. */
static bool is_number(struct eb_span s) {
    if (s.n > 0 && s.p[0] == '-') skip(&s, 1);
    size_t digits = count_digits(s);
    if (digits == 0 || (digits > 1 && s.p[0] == '0')) return false;
    skip(&s, digits);
    if (s.n > 0 && s.p[0] == '.') {
        skip(&s, 1);
        if ((digits = count_digits(s)) == 0) return false;
        skip(&s, digits);
    }
    if (s.n > 0 && (s.p[0] == 'e' || s.p[0] == 'E')) {
        skip(&s, 1);
        if (s.n > 0 && (s.p[0] == '+' || s.p[0] == '-')) skip(&s, 1);
        if ((digits = count_digits(s)) == 0) return false;
        skip(&s, digits);
    }
    return s.n == 0;
}

static void close_scalar(ebro_reply *r) {
    const struct eb_span whole = {r->scalar, r->n_scalar}, s = eb_span_trim(whole);
    if (s.n == 0)
        give_arguments(r, "null");
    else if (is(s, "true") || is(s, "false") || is(s, "null") || is_number(s))
        eb_reply_give(r, EBRO_REPLY_TOOL_ARGUMENTS, s.p, s.n);
    else
        become_string(r, whole);
}

static void close_argument(ebro_reply *r) {
    if (r->place == ARGUMENT) {
        if (r->value == EB_VALUE_SCALAR) close_scalar(r);
        if (r->value == EB_VALUE_STRING) give_arguments(r, "\"");
        if (r->value == EB_VALUE_JSON && r->blank) give_arguments(r, "null");
    }
    enter(r, CALL);
}

/* ---- calls and channels ----------------------------------------------------------------- */

static void close_call(ebro_reply *r) {
    if (r->in_call) {
        close_argument(r);
        if (!r->raw) give_arguments(r, r->n_arguments > 0 ? "}" : "{}");
        eb_reply_end_call(r);
    }
}

static void open_channel(ebro_reply *r, enum place place) {
    close_call(r);
    enter(r, place);
}

static void open_call(ebro_reply *r, struct eb_span attributes) {
    close_call(r);
    eb_reply_begin_call(r, unescape(r, attribute(attributes, "tool")), (struct eb_span){0});
    r->n_arguments = 0;
    r->raw = false;
    enter(r, CALL);
}

/* Arguments are typed blocks or one block of JSON, not both. */
static void open_part(ebro_reply *r, struct eb_span tag, struct eb_span attributes) {
    close_argument(r);
    if (is(tag, "argument") && !r->raw) {
        begin_argument(r, attributes);
    } else if (is(tag, "json") && !r->raw && r->n_arguments == 0) {
        r->raw = true;
        enter(r, JSON);
    } else {
        enter(r, OTHER);
    }
}

static void open_tag(ebro_reply *r, struct eb_span tag, struct eb_span attributes) {
    if (is(tag, "response"))
        open_channel(r, RESPONSE);
    else if (is(tag, "think"))
        open_channel(r, THINK);
    else if (is(tag, "tools") || is(tag, "message"))
        open_channel(r, BETWEEN);
    else if (is(tag, "call"))
        open_call(r, attributes);
    else if (r->in_call)
        open_part(r, tag, attributes);
    else
        enter(r, OTHER);
}

/* A tag that closes what is not open means nothing, so that text goes on to where it did. */
static void close_tag(ebro_reply *r, struct eb_span tag) {
    const enum place place = (enum place)r->place;
    if ((is(tag, "response") && place == RESPONSE) || (is(tag, "think") && place == THINK))
        enter(r, BETWEEN);
    else if ((is(tag, "argument") && place == ARGUMENT) || (is(tag, "json") && place == JSON))
        close_argument(r);
    else if (is(tag, "message") || (r->in_call && (is(tag, "call") || is(tag, "tools"))))
        open_channel(r, BETWEEN);
    else if (place == OTHER)
        enter(r, r->in_call ? CALL : BETWEEN);
}

/* ---- tokens ----------------------------------------------------------------------------- */

static void end_tag(ebro_reply *r) {
    struct eb_span attributes = eb_span_trim((struct eb_span){r->held, r->n_held});
    const struct eb_span tag = cut(&attributes, " \t\r\n");
    const bool opens = r->in_tag == OPEN;
    r->in_tag = -1;
    if (opens)
        open_tag(r, tag, attributes);
    else
        close_tag(r, tag);
}

static void control(ebro_reply *r, int32_t which) {
    if (which == SEP) {
        if (r->in_tag >= 0) end_tag(r);
        return;
    }
    r->in_tag = which == END_OF_MSG ? -1 : which;
    r->n_held = 0;
}

static void take_text(ebro_reply *r, const char *p, size_t n) {
    switch ((enum place)r->place) {
        case RESPONSE:
        case OTHER:
            eb_reply_give(r, EBRO_REPLY_CONTENT, p, n);
            return;
        case THINK:
            eb_reply_give(r, EBRO_REPLY_REASONING, p, n);
            return;
        case BETWEEN:
        case CALL:
            eb_reply_stray(r, p, n);
            return;
        case ARGUMENT:
            take_argument(r, p, n);
            return;
        case JSON:
            eb_reply_give(r, EBRO_REPLY_TOOL_ARGUMENTS, p, n);
            return;
    }
}

static void text(ebro_reply *r, const char *p, size_t n) {
    if (r->in_tag >= 0) {
        if (eb_reply_hold(r, p, n)) return;
        /* what is too long for a tag is none */
        r->in_tag = -1;
        take_text(r, r->held, r->n_held);
    }
    take_text(r, p, n);
}

const struct eb_reply_format eb_reply_k3 = {names, N_CONTROLS, start, control, text};
