/* common.h: what the commands share: their options, exit codes, messages, and opening runtime,
 * device, model and engine. Uses the public API alone. */
#ifndef EB_COMMON_H
#define EB_COMMON_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "args.h"
#include "bar.h"
#include "ebro/ebro.h"

#if defined(__GNUC__)
#define EB_CLI_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define EB_CLI_PRINTF(fmt, args)
#endif

enum {
    EB_EXIT_OK = 0,
    EB_EXIT_USAGE = 1,   /* wrong request, or a file that cannot be read or written */
    EB_EXIT_MODEL = 2,   /* the model is invalid or not supported */
    EB_EXIT_DEVICE = 3,  /* no such device or backend, or it lacks what was asked for */
    EB_EXIT_MEMORY = 4,  /* out of memory */
    EB_EXIT_LOST = 5,    /* the device was lost or does not answer */
    EB_EXIT_NUMERIC = 6, /* numerical failure */
    EB_EXIT_INTERNAL = 70,
    EB_EXIT_INTERRUPTED = 130
};

/* Every option of every command; each command offers some of them. */
struct eb_options {
    /* model and device */
    const char *model, *device; /* NULL: the embedded demo, the best device */
    uint64_t n_ctx, n_chunk;    /* 0: default */
    uint64_t n_threads;         /* of the CPU; 0: one for each core */
    int32_t cache_dtype;        /* ebro_dtype; -1: the device's default */
    int32_t mla_form;
    bool strict;
    /* what the engine keeps for later prompts; a command that asks once sets EBRO_KEEP_NONE */
    int32_t keep;        /* EBRO_KEEP_* */
    uint64_t memory_mib; /* budget of cache and states; 0: default */
    uint64_t host_mib;   /* for copies of what it gives up */
    uint64_t keep_interval;
    int32_t evict; /* ebro_evict */
    enum eb_arg_from keep_from;
    uint64_t log;
    const char *cache_dir; /* NULL: the default; "none" */
    const char *avoid;     /* variants; NULL: none */
    bool no_selftest;
    /* prompt */
    const char *prompt, *system, *ids;
    bool chat, think;
    const char *session; /* file; NULL: none */
    enum eb_arg_from prompt_from, system_from, ids_from, think_from;
    /* generation */
    uint64_t n_predict, top_k, seed;
    enum eb_arg_from n_predict_from;
    double temperature, top_p, min_p;
    double repeat_penalty, presence_penalty, frequency_penalty;
    uint64_t repeat_last_n;
    struct eb_arg_list logit_bias, stop;
    /* results */
    uint64_t n_last;
    const char *out;
    const char *save_experts, *experts;
    bool json;
    enum eb_arg_from json_from;
    /* inspect and tokenize */
    bool tensors, ids_only, special;
    const char *decode;
    enum eb_arg_from decode_from, ids_only_from;
};

/* Defaults of all of them. */
void eb_options_init(struct eb_options *o);

/* "Model and device", for commands that open a model. */
extern const struct eb_arg_group eb_model_args;
/* "Memory and reuse", for commands whose engine reads several prompts. */
extern const struct eb_arg_group eb_reuse_args;
/* "Right answers", for commands that compute. */
extern const struct eb_arg_group eb_trust_args;
/* "Messages": how much is logged. */
extern const struct eb_arg_group eb_log_args;

/* Reads a command's options. Returns -1 to go on, else the exit code: help was printed or a mistake
 * reported. `usage` is the head of the help. */
int eb_command_options(const char *command, const char *usage, const struct eb_arg_group *groups,
                       size_t n_groups, int argc, char **argv, struct eb_options *o);

/* One line on stderr, "ebro: ...". Control characters become blanks. */
void eb_complain(const char *fmt, ...) EB_CLI_PRINTF(1, 2);
/* Complains with the error's text and returns the exit code. */
int eb_complain_error(const ebro_error *err);
int eb_exit_code(int32_t status);
/* The same of what a device was asked for: what is not supported then is so by the device, not the
 * model, which was found to be fine when it was opened. */
int eb_complain_device(const ebro_error *err);

/* Flushes stdout. A closed pipe is silent, any other failure is reported; false either way. */
bool eb_flush_stdout(void);

/* Not so for the null device, which is there for those who write backends. */
bool eb_device_computes(const ebro_device_info *info);

/* A runtime whose log goes to stderr, by eb_log_to_stderr. */
int32_t eb_runtime_open(const struct eb_options *o, ebro_runtime **out, ebro_error *err);

/* The files of the demo model that is linked into the program; how many. */
enum { EB_DEMO_FILES = 5 };
uint32_t eb_demo_files(ebro_file out[EB_DEMO_FILES]);
/* What is known of it in float64 (tools/golden.py). */
const void *eb_demo_golden(size_t *bytes);

void eb_log_to_stderr(void *user, int32_t level, const char *text);

/* The device of the options, after its self-test unless they say otherwise. */
int32_t eb_device_open_for(const struct eb_options *o, ebro_runtime *runtime, ebro_device **out,
                           ebro_error *err);

/* Everything between a prompt and its logits. Zero it first; eb_session_close may follow any time.
 */
struct eb_session {
    ebro_runtime *runtime;
    ebro_device *device;
    ebro_model *model;
    ebro_engine *engine;
    ebro_seq *seq;
    ebro_model_info model_info;
    ebro_device_info device_info;
    int32_t cache_dtype; /* never -1 */
    uint32_t n_ctx;
    uint64_t memory_mib;                    /* --memory; 0: not given */
    struct eb_bar bar;                      /* what the library's progress is shown with */
    const volatile sig_atomic_t *interrupt; /* cancels what the library does; NULL: nothing does */
};

/* Runtime, device (one that computes), model; then engine and sequence. The session stays where it
 * is from then on. They return an exit code and have complained unless it is EB_EXIT_OK. */
int eb_session_open_model(struct eb_session *s, const struct eb_options *o);
int eb_session_open_model_alone(struct eb_session *s, const struct eb_options *o); /* no device */
int eb_session_open_engine(struct eb_session *s, const struct eb_options *o);
void eb_session_close(struct eb_session *s);
/* As eb_complain_device; where --memory is what was too little, it says so. */
int eb_session_complain(const struct eb_session *s, const ebro_error *err);
/* The sequence forgets everything: a new one in place of the old one. Returns an exit code. */
int eb_session_restart(struct eb_session *s);
/* ebro_seq_append, with a word about -c where they do not fit. Returns an exit code. */
int eb_session_append(struct eb_session *s, const int32_t *ids, size_t n, uint32_t n_logits);
/* Complains about --think where the model has no channel for it. Returns an exit code. */
int eb_session_check_think(const struct eb_session *s, const struct eb_options *o);

/* Token ids in memory of their own (free ids). */
struct eb_tokens {
    int32_t *ids;
    size_t n;
};
/* [BOS], where the model has one, then the text as ordinary text. */
int eb_tokens_of_text(const ebro_model *model, const char *text, size_t bytes,
                      struct eb_tokens *out);
/* A conversation in the model's own format; `to_reply`: up to where the assistant is to go on, else
 * to the end of the last message. */
int eb_tokens_of_chat(const ebro_model *model, const ebro_chat_message *messages, size_t n,
                      bool think, bool to_reply, struct eb_tokens *out);

/* Evaluates all that is queued, with a bar on a terminal when it takes long. Stops early, with
 * tokens still pending, once *interrupt is not 0 (NULL: never). */
int eb_session_evaluate(struct eb_session *s, const volatile sig_atomic_t *interrupt);

/* "token" for one, else "tokens". */
const char *eb_tokens_word(size_t n);
const char *eb_cache_dtype_name(int32_t dtype);
double eb_seconds(void); /* a monotonic clock */

/* The commands: argv[0] is the first argument after the command's name. They return exit codes. */
int eb_cmd_run(int argc, char **argv);
int eb_cmd_chat(int argc, char **argv);
int eb_cmd_serve(int argc, char **argv);
int eb_cmd_inspect(int argc, char **argv);
int eb_cmd_tokenize(int argc, char **argv);
int eb_cmd_logits(int argc, char **argv);
int eb_cmd_devices(int argc, char **argv);
int eb_cmd_bench(int argc, char **argv);
int eb_cmd_check(int argc, char **argv);
int eb_cmd_cache_sim(int argc, char **argv);

#endif
