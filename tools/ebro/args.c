/* args.c: strict parsing of options. A number with anything behind it, or outside its range, is an
 * error and never rounded, cut or ignored. */
#include "args.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nearest.h"

static bool read_uint(const char *s, uint64_t *out) {
    if (*s < '0' || *s > '9') return false; /* strtoull takes signs and blanks */
    char *end = NULL;
    errno = 0;
    unsigned long long v = strtoull(s, &end, 10);
    if (errno != 0 || *end != '\0') return false;
    *out = v;
    return true;
}

static bool read_real(const char *s, double *out) {
    /* strtod also takes blanks, hexadecimal, "inf" and "nan" */
    if (*s == '\0' || strspn(s, "0123456789.eE+-") != strlen(s)) return false;
    char *end = NULL;
    double v = strtod(s, &end);
    if (end == s || *end != '\0' || !isfinite(v)) return false;
    *out = v;
    return true;
}

static void list_choices(const struct eb_choice *c, char *out, size_t bytes) {
    size_t n = 0;
    out[0] = '\0';
    for (; c->name && n < bytes; c++) {
        int w = snprintf(out + n, bytes - n, "%s%s", n ? ", " : "", c->name);
        if (w < 0) return;
        n += (size_t)w;
    }
}

/* `label` is what the user wrote: the option or the environment variable. */
static bool set_value(const struct eb_arg *a, const char *label, const char *value,
                      enum eb_arg_from from, void *values, char *text, size_t text_bytes) {
    char *at = (char *)values + a->offset;
    switch (a->kind) {
        case EB_ARG_FLAG:
            if (strcmp(value, "0") != 0 && strcmp(value, "1") != 0) {
                snprintf(text, text_bytes, "%s: \"%s\" is neither 0 nor 1", label, value);
                return false;
            }
            *(bool *)(void *)at = value[0] == '1';
            break;
        case EB_ARG_TEXT:
            *(const char **)(void *)at = value;
            break;
        case EB_ARG_UINT: {
            uint64_t v = 0;
            if (!read_uint(value, &v) || v < a->min || v > a->max) {
                snprintf(text, text_bytes, "%s: \"%s\" is not a whole number from %llu to %llu",
                         label, value, (unsigned long long)a->min, (unsigned long long)a->max);
                return false;
            }
            *(uint64_t *)(void *)at = v;
            break;
        }
        case EB_ARG_REAL: {
            double v = 0;
            if (!read_real(value, &v) || v < (double)a->min || v > (double)a->max) {
                snprintf(text, text_bytes, "%s: \"%s\" is not a number from %llu to %llu", label,
                         value, (unsigned long long)a->min, (unsigned long long)a->max);
                return false;
            }
            *(double *)(void *)at = v;
            break;
        }
        case EB_ARG_SIGNED: {
            double v = 0, most = (double)a->max;
            if (!read_real(value, &v) || v < -most || v > most) {
                snprintf(text, text_bytes, "%s: \"%s\" is not a number from -%g to %g", label,
                         value, most, most);
                return false;
            }
            *(double *)(void *)at = v;
            break;
        }
        case EB_ARG_LIST: {
            struct eb_arg_list *list = (struct eb_arg_list *)(void *)at;
            if (list->from != from) list->n = 0;
            if (list->n == EB_ARG_LIST_MAX) {
                snprintf(text, text_bytes, "%s: given more than %d times", label, EB_ARG_LIST_MAX);
                return false;
            }
            list->items[list->n++] = value;
            list->from = from;
            break;
        }
        case EB_ARG_CHOICE: {
            const struct eb_choice *c = a->choices;
            while (c->name && strcmp(c->name, value) != 0) c++;
            if (!c->name) {
                char names[128];
                list_choices(a->choices, names, sizeof names);
                snprintf(text, text_bytes, "%s: \"%s\" is none of %s", label, value, names);
                return false;
            }
            *(int32_t *)(void *)at = c->value;
            break;
        }
    }
    if (a->from) *(enum eb_arg_from *)(void *)((char *)values + a->from) = from;
    return true;
}

/* `n` bytes of `word` are an option's name. */
static const struct eb_arg *find_arg(const struct eb_arg_group *groups, size_t n_groups,
                                     const char *word, size_t n) {
    for (size_t g = 0; g < n_groups; g++) {
        for (size_t i = 0; i < groups[g].n; i++) {
            const struct eb_arg *a = &groups[g].args[i];
            if (strlen(a->name) == n && strncmp(a->name, word, n) == 0) return a;
            if (a->alias && strlen(a->alias) == n && strncmp(a->alias, word, n) == 0) return a;
        }
    }
    return NULL;
}

/* The option that `n` bytes of `word` may have meant; NULL: none comes near. */
static const char *nearest_option(const struct eb_arg_group *groups, size_t n_groups,
                                  const char *word, size_t n) {
    enum { MOST = 128 };
    const char *names[MOST];
    char name[64];
    size_t n_names = 0;
    if (n >= sizeof name) return NULL;
    memcpy(name, word, n);
    name[n] = '\0';
    for (size_t g = 0; g < n_groups; g++) {
        for (size_t i = 0; i < groups[g].n && n_names + 2 <= MOST; i++) {
            const struct eb_arg *a = &groups[g].args[i];
            if (a->name[0] == '-') names[n_names++] = a->name;
            if (a->alias) names[n_names++] = a->alias;
        }
    }
    return eb_nearest(name, names, n_names);
}

/* The option that takes words which are no options; NULL: none. */
static const struct eb_arg *find_positional(const struct eb_arg_group *groups, size_t n_groups) {
    for (size_t g = 0; g < n_groups; g++) {
        for (size_t i = 0; i < groups[g].n; i++) {
            if (groups[g].args[i].name[0] != '-') return &groups[g].args[i];
        }
    }
    return NULL;
}

/* `a` stands on the command line. A value that looks like it counts too: what it would hide is
 * then only a complaint about the environment. */
static bool is_given(const struct eb_arg *a, int argc, char **argv) {
    for (int i = 0; i < argc; i++) {
        const char *value = strncmp(argv[i], "--", 2) == 0 ? strchr(argv[i], '=') : NULL;
        size_t n = value ? (size_t)(value - argv[i]) : strlen(argv[i]);
        if (strlen(a->name) == n && strncmp(a->name, argv[i], n) == 0) return true;
        if (a->alias && strlen(a->alias) == n && strncmp(a->alias, argv[i], n) == 0) return true;
    }
    return false;
}

static bool parse_environment(const struct eb_arg_group *groups, size_t n_groups, int argc,
                              char **argv, void *values, char *text, size_t text_bytes) {
    for (size_t g = 0; g < n_groups; g++) {
        for (size_t i = 0; i < groups[g].n; i++) {
            const struct eb_arg *a = &groups[g].args[i];
            const char *value = a->env ? getenv(a->env) : NULL;
            if (!value || !*value) continue;
            if (!set_value(a, a->env, value, EB_FROM_ENVIRONMENT, values, text, text_bytes) &&
                !is_given(a, argc, argv))
                return false;
        }
    }
    return true;
}

enum eb_args_result eb_args_parse(const struct eb_arg_group *groups, size_t n_groups, int argc,
                                  char **argv, void *values, char *text, size_t text_bytes) {
    /* Help is given however wrong the rest is, but not where "--help" is the value of an option. */
    bool wrong = !parse_environment(groups, n_groups, argc, argv, values, text, text_bytes);
    const struct eb_arg *positional = find_positional(groups, n_groups);
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) return EB_ARGS_HELP;
        if (wrong) continue; /* the first mistake is the one to name */
        /* "-" is no option: it often stands for stdin */
        if (positional && (word[0] != '-' || word[1] == '\0')) {
            wrong = !set_value(positional, positional->name, word, EB_FROM_COMMAND_LINE, values,
                               text, text_bytes);
            if (positional->kind != EB_ARG_LIST) positional = NULL; /* one word, and no more */
            continue;
        }
        if (word[0] != '-' || word[1] == '\0') {
            snprintf(text, text_bytes, "unexpected argument \"%s\"", word);
            wrong = true;
            continue;
        }
        const char *value = strncmp(word, "--", 2) == 0 ? strchr(word, '=') : NULL;
        size_t n_name = value ? (size_t)(value - word) : strlen(word);
        const struct eb_arg *a = find_arg(groups, n_groups, word, n_name);
        if (!a) {
            const char *meant = nearest_option(groups, n_groups, word, n_name);
            snprintf(text, text_bytes, "unknown option \"%s\"%s%s%s", word,
                     meant ? ": did you mean " : "", meant ? meant : "", meant ? "?" : "");
            wrong = true;
            continue;
        }
        char label[64];
        snprintf(label, sizeof label, "%.*s", (int)n_name, word);
        if (value) {
            value++;
        } else if (a->kind == EB_ARG_FLAG) {
            value = "1";
        } else if (i + 1 < argc) {
            value = argv[++i];
        } else {
            snprintf(text, text_bytes, "%s needs a value: %s %s", label, label, a->meta);
            wrong = true;
            continue;
        }
        wrong = !set_value(a, label, value, EB_FROM_COMMAND_LINE, values, text, text_bytes);
    }
    return wrong ? EB_ARGS_WRONG : EB_ARGS_OK;
}

const char *eb_args_label(const struct eb_arg_group *group, const char *name, const void *values) {
    const struct eb_arg *a = find_arg(group, 1, name, strlen(name));
    if (!a) return name;
    const char *at = values;
    enum eb_arg_from from = a->kind == EB_ARG_LIST
                                ? ((const struct eb_arg_list *)(const void *)(at + a->offset))->from
                                : *(const enum eb_arg_from *)(const void *)(at + a->from);
    return from == EB_FROM_ENVIRONMENT ? a->env : name;
}

void eb_args_print(FILE *f, const struct eb_arg_group *groups, size_t n_groups) {
    enum { COLUMN = 26, WIDTH = 80 };
    for (size_t g = 0; g < n_groups; g++) {
        fprintf(f, "\n%s\n", groups[g].title);
        for (size_t i = 0; i < groups[g].n; i++) {
            const struct eb_arg *a = &groups[g].args[i];
            char left[96];
            snprintf(left, sizeof left, "%s%s%s%s%s", a->name, a->alias ? ", " : "",
                     a->alias ? a->alias : "", a->meta ? " " : "", a->meta ? a->meta : "");
            /* what does not fit beside its help stands above it */
            if (strlen(left) + 3 > COLUMN) {
                fprintf(f, "  %s\n", left);
                left[0] = '\0';
            }
            const char *line = a->help;
            for (bool more = true; more;) {
                size_t n = strcspn(line, "\n");
                more = line[n] == '\n';
                fprintf(f, "  %-*s%.*s", COLUMN - 2, left, (int)n, line);
                if (!more && a->env) {
                    bool fits = COLUMN + n + strlen(a->env) + 3 <= WIDTH;
                    if (!fits) fprintf(f, "\n%*s", COLUMN - 1, "");
                    fprintf(f, " [%s]", a->env);
                }
                fputc('\n', f);
                left[0] = '\0';
                line += n + 1;
            }
        }
    }
}
