/* args.h: options of a command, from the command line and the environment. Tables in, values out;
 * knows nothing of what the options mean. Prints help, nothing else. */
#ifndef EB_ARGS_H
#define EB_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum eb_arg_kind {
    EB_ARG_FLAG,   /* bool; "--name", "--name=0", "--name=1" */
    EB_ARG_TEXT,   /* const char * */
    EB_ARG_UINT,   /* uint64_t, in [min, max] */
    EB_ARG_REAL,   /* double, in [min, max] */
    EB_ARG_SIGNED, /* double, in [-max, max] */
    EB_ARG_CHOICE, /* int32_t, one of choices */
    EB_ARG_LIST    /* struct eb_arg_list; may be given several times */
};

/* Where a value came from; a later one wins over an earlier one. */
enum eb_arg_from { EB_FROM_DEFAULT = 0, EB_FROM_ENVIRONMENT, EB_FROM_COMMAND_LINE };

/* The values of an option that may be given several times. The first one on the command line
 * replaces what the environment gave. */
enum { EB_ARG_LIST_MAX = 64 };
struct eb_arg_list {
    const char *items[EB_ARG_LIST_MAX];
    size_t n;
    enum eb_arg_from from;
};

struct eb_choice {
    const char *name; /* NULL ends the list */
    int32_t value;
};

/* One option. `offset` says where its value lies in the struct handed to eb_args_parse, which holds
 * the defaults before; `from`, unless 0, where an enum eb_arg_from lies that says its origin. */
struct eb_arg {
    /* "-m", "--model"; alias may be NULL. A name without "-" stands for a word that is no option,
     * one of kind LIST for all of them. */
    const char *name, *alias;
    const char *env;  /* environment twin; set but empty counts as not set */
    const char *meta; /* what stands for the value in help; NULL for a flag */
    const char *help; /* lines separated by \n */
    enum eb_arg_kind kind;
    size_t offset, from;
    uint64_t min, max;
    const struct eb_choice *choices;
};

struct eb_arg_group {
    const char *title;
    const struct eb_arg *args;
    size_t n;
};

enum eb_args_result { EB_ARGS_OK, EB_ARGS_HELP, EB_ARGS_WRONG };

/* Reads the environment, then argv[0 .. argc). WRONG: `text` says what and what would be right.
 * HELP: --help or -h stood somewhere. */
enum eb_args_result eb_args_parse(const struct eb_arg_group *groups, size_t n_groups, int argc,
                                  char **argv, void *values, char *text, size_t text_bytes);

/* What the user wrote to give the option `name` of the group, for complaints that come after
 * eb_args_parse: its environment twin where the value is from there, else `name`. The option has a
 * `from`, or is a list. */
const char *eb_args_label(const struct eb_arg_group *group, const char *name, const void *values);

/* The options as help text. */
void eb_args_print(FILE *f, const struct eb_arg_group *groups, size_t n_groups);

#endif
