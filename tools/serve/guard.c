/* guard.c: see guard.h. */
#include "guard.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

/* ---- host --------------------------------------------------------------------------------- */

/* The name in "name", "name:port", "[address]" or "[address]:port", without brackets; false: it is
 * none of these, or longer than `out`. */
static bool host_name(const char *host, char *out, size_t bytes) {
    bool bracket = host[0] == '[';
    const char *begin = host + bracket;
    const char *end = begin + strcspn(begin, bracket ? "]" : ":");
    const char *rest = end;
    if (bracket && *rest++ != ']') return false;
    if (*rest == ':') {
        size_t digits = strspn(++rest, "0123456789");
        if (digits == 0 || digits > 5) return false;
        rest += digits;
    }
    size_t n = (size_t)(end - begin);
    if (*rest != '\0' || n == 0 || n >= bytes) return false;
    memcpy(out, begin, n);
    out[n] = '\0';
    return true;
}

static bool is_numeric(const char *name) {
    unsigned char address[16];
    return inet_pton(AF_INET, name, address) == 1 || inet_pton(AF_INET6, name, address) == 1;
}

static bool is_own_name(const struct eb_guard *guard, const char *name) {
    static const char *const loopback[] = {"localhost", "127.0.0.1", "::1"};
    for (size_t i = 0; i < sizeof loopback / sizeof *loopback; i++)
        if (strcasecmp(name, loopback[i]) == 0) return true;
    for (size_t i = 0; i < guard->n_names; i++)
        if (strcasecmp(name, guard->names[i]) == 0) return true;
    if (strcasecmp(name, guard->bound) == 0) return true;
    /* a number cannot be pointed elsewhere, as a name can */
    return guard->everywhere && is_numeric(name);
}

/* ---- origin ------------------------------------------------------------------------------- */

/* The page came from where the request goes: a scheme, and then what Host says. */
static bool is_own_origin(const char *origin, const char *host) {
    static const char *const schemes[] = {"http://", "https://"};
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        size_t n = strlen(schemes[i]);
        if (strncasecmp(origin, schemes[i], n) == 0 && strcasecmp(origin + n, host) == 0)
            return true;
    }
    return false;
}

bool eb_guard_check_source(const struct eb_guard *guard, const struct eb_credentials *c,
                           struct eb_fault *fault) {
    char name[256];
    const char *text = NULL;
    if (!c->host)
        text = "there is no Host header; it must name this server";
    else if (!host_name(c->host, name, sizeof name) || !is_own_name(guard, name))
        text = "the Host header is no name of this server (--allow-host NAME adds one)";
    else if (c->origin && !is_own_origin(c->origin, c->host))
        text = "the Origin header is that of another site, which may not use this server";
    if (!text) return true;
    eb_fault_set(fault, 403, NULL, "%s", text);
    fault->code = "forbidden";
    return false;
}

/* ---- type --------------------------------------------------------------------------------- */

static const char *skip_blanks(const char *s) {
    return s + strspn(s, " \t");
}

/* "; charset=utf-8", in any spelling, or nothing. */
static bool is_utf8_parameter(const char *s) {
    static const char name[] = "charset=";
    s = skip_blanks(s);
    if (*s == '\0') return true;
    if (*s++ != ';') return false;
    s = skip_blanks(s);
    if (*s == '\0') return true;
    if (strncasecmp(s, name, sizeof name - 1) != 0) return false;
    s += sizeof name - 1;
    bool quoted = *s == '"';
    s += quoted;
    if (strncasecmp(s, "utf-8", 5) != 0) return false;
    s += 5;
    if (quoted && *s++ != '"') return false;
    return *skip_blanks(s) == '\0';
}

bool eb_guard_check_type(const struct eb_credentials *c, struct eb_fault *fault) {
    static const char json[] = "application/json";
    if (c->type && strncasecmp(c->type, json, sizeof json - 1) == 0 &&
        is_utf8_parameter(c->type + sizeof json - 1))
        return true;
    return eb_fault_set(fault, 415, NULL, "Content-Type is %s%.60s%s; it must be application/json",
                        c->type ? "\"" : "missing", c->type ? c->type : "", c->type ? "\"" : "");
}

/* ---- key ---------------------------------------------------------------------------------- */

/* A key at its full length, so that comparing two takes one time. */
struct padded {
    unsigned char bytes[EB_KEY_BYTES];
    size_t n;
};

static struct padded pad(const char *key) {
    struct padded out = {.n = strlen(key)};
    memcpy(out.bytes, key, out.n < EB_KEY_BYTES ? out.n : EB_KEY_BYTES);
    return out;
}

static bool same(const struct padded *a, const struct padded *b) {
    volatile size_t differ = a->n ^ b->n; /* volatile: no compiler may stop at the first one */
    for (size_t i = 0; i < EB_KEY_BYTES; i++) differ = differ | (a->bytes[i] ^ b->bytes[i]);
    return differ == 0;
}

bool eb_guard_check_key(const struct eb_guard *guard, const struct eb_credentials *c,
                        struct eb_fault *fault) {
    static const char bearer[] = "Bearer ";
    const size_t skip = sizeof bearer - 1;
    if (guard->n_keys == 0) return true;
    bool given = c->authorization && strncasecmp(c->authorization, bearer, skip) == 0;
    struct padded said = pad(given ? skip_blanks(c->authorization + skip) : "");
    unsigned good = 0;
    for (size_t i = 0; i < guard->n_keys; i++) {
        struct padded key = pad(guard->keys[i]);
        good |= same(&said, &key);
    }
    if (good) return true;
    eb_fault_set(fault, 401, NULL, "%s",
                 given ? "the key is none of this server's"
                       : "this server asks for a key: Authorization: Bearer KEY");
    fault->code = "invalid_api_key";
    return false;
}
