/* cmd_check.c: `ebro check`: whether the devices of this machine compute right answers. What is
 * checked, and how, stands in runtime/check. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check_compare.h"
#include "check_report.h"
#include "file_out.h"
#include "interrupt.h"
#include "json_in.h"

static const char usage[] =
    "usage: ebro check [-dev DEV]... [--full] [--op NAME] [--seed N]\n"
    "                  [--json FILE] [--html FILE] [--bundle FILE]\n"
    "       ebro check --compare [--json FILE] REPORT...\n"
    "\n"
    "Computes every operator on every device (the CPU is one of them) and on every\n"
    "rung of it, the code that it falls back to without some of its capabilities,\n"
    "and compares with float64: on ordinary, extreme and adversarial inputs. Each\n"
    "call is made ten times and must give the same bytes; where a device claims the\n"
    "same bytes for any batch, that is tried too. Then, unless --op or --case is\n"
    "given, the demo model inside the program: against logits and text in float64,\n"
    "cut into steps in other ways, and saved on each device to go on on each other.\n"
    "\n"
    "One line an operator, of the case that came nearest to what is allowed:\n"
    "  variant  what the backend calls the code that ran\n"
    "  error    against float64; of what it is a part the JSON says, case by case\n"
    "  budget   the largest error that is right; the JSON has the reason\n"
    "  used     error / budget\n"
    "Below it the same of the demo model, and a table of the devices that saved and\n"
    "went on.\n"
    "What a device says that it does not support is refused, not failed; \"partly\":\n"
    "some cases of the operator are.\n"
    "\n"
    "--compare computes nothing: it reads what --json wrote, here or on other\n"
    "machines, and puts all devices side by side, what differs most first:\n"
    "  A, B ..  how much of its budget the nearest case took there\n"
    "  differ   the largest difference of that, of one case, in parts of the budget\n"
    "\n"
    "Exit code 6: something failed. tools/ebro/CHECK.md (installed beside README.md)\n"
    "describes the JSON.\n";

struct options {
    struct eb_options o; /* first: its defaults are set by eb_command_options */
    struct eb_arg_list devices, reports;
    bool quick, full, compare;
    uint64_t seed, n_runs;
    /* Of those that --compare cannot do with. */
    enum eb_arg_from threads_from, quick_from, full_from, op_from, name_from, seed_from, runs_from,
        html_from, bundle_from;
    const char *op, *name, *json, *html, *bundle;
};

static const struct eb_arg device_args[] = {
    {.name = "-dev",
     .alias = "--device",
     .env = "EBRO_DEVICE",
     .meta = "DEV",
     .kind = EB_ARG_LIST,
     .offset = offsetof(struct options, devices),
     .help = "this device alone, see `ebro devices`; may be given\nseveral times; default: all"},
    {.name = "-t",
     .alias = "--threads",
     .env = "EBRO_THREADS",
     .meta = "N",
     .kind = EB_ARG_UINT,
     .offset = offsetof(struct options, o) + offsetof(struct eb_options, n_threads),
     .from = offsetof(struct options, threads_from),
     .max = 256,
     .help = "threads that the CPU computes with; 0: one for each\ncore (default)"},
};

static const struct eb_arg check_args[] = {
    {.name = "--quick",
     .env = "EBRO_CHECK_QUICK",
     .kind = EB_ARG_FLAG,
     .offset = offsetof(struct options, quick),
     .from = offsetof(struct options, quick_from),
     .help = "seconds: a part of the cases (default)"},
    {.name = "--full",
     .env = "EBRO_CHECK_FULL",
     .kind = EB_ARG_FLAG,
     .offset = offsetof(struct options, full),
     .from = offsetof(struct options, full_from),
     .help = "minutes: all cases"},
    {.name = "--op",
     .env = "EBRO_CHECK_OP",
     .meta = "NAME",
     .kind = EB_ARG_TEXT,
     .offset = offsetof(struct options, op),
     .from = offsetof(struct options, op_from),
     .help = "this operator alone"},
    {.name = "--case",
     .env = "EBRO_CHECK_CASE",
     .meta = "NAME",
     .kind = EB_ARG_TEXT,
     .offset = offsetof(struct options, name),
     .from = offsetof(struct options, name_from),
     .help = "this case alone, as the table and the JSON name it"},
    {.name = "-s",
     .alias = "--seed",
     .env = "EBRO_SEED",
     .meta = "N",
     .kind = EB_ARG_UINT,
     .max = UINT64_MAX,
     .offset = offsetof(struct options, seed),
     .from = offsetof(struct options, seed_from),
     .help = "of the random inputs; default: a new one, printed"},
    {.name = "-r",
     .alias = "--runs",
     .env = "EBRO_CHECK_RUNS",
     .meta = "N",
     .kind = EB_ARG_UINT,
     .min = 1,
     .max = 1000,
     .offset = offsetof(struct options, n_runs),
     .from = offsetof(struct options, runs_from),
     .help = "how often each call is made; default: 10"},
};

static const struct eb_arg output_args[] = {
    {.name = "--json",
     .env = "EBRO_CHECK_JSON",
     .meta = "FILE",
     .kind = EB_ARG_TEXT,
     .offset = offsetof(struct options, json),
     .help = "also write all results to this file; - is stdout, and\nthe table is left out then"},
    {.name = "--html",
     .env = "EBRO_CHECK_HTML",
     .meta = "FILE",
     .kind = EB_ARG_TEXT,
     .offset = offsetof(struct options, html),
     .from = offsetof(struct options, html_from),
     .help = "the same as a page for a browser, which needs no\nnetwork"},
    {.name = "--bundle",
     .env = "EBRO_CHECK_BUNDLE",
     .meta = "FILE",
     .kind = EB_ARG_TEXT,
     .offset = offsetof(struct options, bundle),
     .from = offsetof(struct options, bundle_from),
     .help = "the JSON with what a report of a fault needs besides:\n"
             "versions, processor, devices, commands that repeat what\n"
             "failed; no names or paths of this machine"},
};

static const struct eb_arg compare_args[] = {
    {.name = "--compare",
     .env = "EBRO_CHECK_COMPARE",
     .kind = EB_ARG_FLAG,
     .offset = offsetof(struct options, compare),
     .help = "show reports side by side instead"},
    {.name = "REPORT",
     .kind = EB_ARG_LIST,
     .offset = offsetof(struct options, reports),
     .help = "what --json wrote; - is stdin"},
};

#define GROUP(title, args) \
    { title, args, sizeof args / sizeof *args }

/* ---- running ---------------------------------------------------------------------------- */

enum { MAX_RUNGS = 16 };

struct job {
    struct eb_check_report report;
    size_t printed; /* rows */
    size_t first;   /* row of the rung */
    uint32_t n_cases;
    struct eb_bar bar;
    bool silent; /* no table */
    bool no_memory;
    /* Rungs of the last device that was checked, for the model; the first is the best. */
    struct rung {
        char name[64];
        uint64_t caps_mask;
    } rungs[EB_CHECK_MAX_DEVICES][MAX_RUNGS];
    uint32_t n_rungs[EB_CHECK_MAX_DEVICES];
    size_t first_model; /* row of the rung, or of what one device goes on with */
};

/* The table of a rung, once it is complete. */
static void print_rung(struct job *j, bool last) {
    const struct eb_check_report *r = &j->report;
    size_t n = r->n_rows;
    if (j->silent || j->printed == n) return;
    if (!last) {
        const struct eb_check_row *a = &r->rows[j->printed], *b = &r->rows[n - 1];
        if (a->device == b->device && strcmp(a->rung, b->rung) == 0) return;
        n--;
    }
    eb_bar_end(&j->bar);
    eb_check_print_group(r, j->printed, n);
    fflush(stdout);
    j->printed = n;
}

/* How far the rung is. */
static void show_progress(struct job *j) {
    const struct eb_check_report *r = &j->report;
    const struct eb_check_row *last = &r->rows[r->n_rows - 1], *first = &r->rows[j->first];
    char label[64];
    if (r->n_rows == 1 || last->device != first->device || strcmp(last->rung, first->rung) != 0) {
        j->first = r->n_rows - 1;
        eb_bar_start(&j->bar);
    }
    snprintf(label, sizeof label, "%.15s %s", r->devices[last->device].name, eb_op_name(last->op));
    eb_bar_show(&j->bar, label, (double)(r->n_rows - j->first) / j->n_cases);
}

static bool note(void *user, const struct eb_opcheck_result *result) {
    struct job *j = user;
    j->no_memory = !eb_check_add(&j->report, result);
    if (j->no_memory) return false;
    print_rung(j, false);
    show_progress(j);
    return !eb_interrupted;
}

static void note_rung(void *user, const char *name, uint64_t caps_mask, const ebro_caps *caps) {
    struct job *j = user;
    uint32_t device = j->report.n_devices - 1;
    if (j->n_rungs[device] == 0) j->report.caps[device] = *caps;
    if (j->n_rungs[device] == MAX_RUNGS) return;
    struct rung *rung = &j->rungs[device][j->n_rungs[device]++];
    snprintf(rung->name, sizeof rung->name, "%s", name);
    rung->caps_mask = caps_mask;
}

/* What a check of a device ended with; an exit code where the whole check ends. */
static int settle(struct job *j, uint32_t device, int32_t st, const ebro_error *err) {
    struct eb_check_report *r = &j->report;
    eb_bar_end(&j->bar);
    if (j->no_memory) {
        eb_complain("out of memory while keeping the results");
        return EB_EXIT_MEMORY;
    }
    if (eb_interrupted) return EB_EXIT_INTERRUPTED;
    if (st == EBRO_OK) return EB_EXIT_OK;
    /* A device that breaks down is a finding; the others are checked all the same. */
    const ebro_device_info info = r->devices[device];
    snprintf(r->troubles[device], sizeof r->troubles[0], "%.31s was not checked to the end: %.900s",
             info.name, err->text);
    return EB_EXIT_OK;
}

/* One device; an exit code where the whole check ends. */
static int check_device(struct job *j, ebro_runtime *rt, const ebro_device_info *info,
                        const struct options *o, int32_t op) {
    struct eb_check_report *r = &j->report;
    const struct eb_opcheck_options options = {.seed = r->seed,
                                               .full = o->full,
                                               .op = op,
                                               .name = o->name,
                                               .n_runs = (uint32_t)o->n_runs,
                                               .result = note,
                                               .rung = note_rung,
                                               .user = j};
    const ebro_device_options settings = {.size = sizeof settings,
                                          .n_threads = (uint32_t)o->o.n_threads};
    ebro_error err = {0};
    r->devices[r->n_devices++] = *info;
    j->n_cases = eb_opcheck_count(&options);
    int32_t st = eb_opcheck_rungs(rt, info->name, &settings, &options, &r->tally, &err);
    print_rung(j, true);
    return settle(j, r->n_devices - 1, st, &err);
}

/* ---- the model -------------------------------------------------------------------------- */

static bool note_model(void *user, const struct eb_modelcheck_result *result) {
    struct job *j = user;
    char label[64];
    j->no_memory = !eb_check_add_model(&j->report, result);
    if (j->no_memory) return false;
    /* How many are to come is not known; what is done is. */
    snprintf(label, sizeof label, "%.15s model, %s", j->report.devices[result->device].name,
             eb_modelcheck_name(result->kind));
    eb_bar_show(&j->bar, label, 0);
    return !eb_interrupted;
}

/* The table of what was found since the last one. */
static void print_models(struct job *j) {
    const struct eb_check_report *r = &j->report;
    eb_bar_end(&j->bar);
    if (!j->silent) eb_check_print_models(r, j->first_model, r->n_models);
    fflush(stdout);
    j->first_model = r->n_models;
    eb_bar_start(&j->bar);
}

/* The model on a device and, in a full check, on each rung of it. */
static int check_model_device(struct job *j, struct eb_modelcheck *c, uint32_t device,
                              const struct options *o) {
    int code = EB_EXIT_OK;
    for (uint32_t i = 0; i < j->n_rungs[device] && code == EB_EXIT_OK; i++) {
        const struct eb_modelcheck_rung rung = {.device = j->report.devices[device].name,
                                                .name = j->rungs[device][i].name,
                                                .caps_mask = j->rungs[device][i].caps_mask,
                                                .n_threads = (uint32_t)o->o.n_threads};
        ebro_error err = {0};
        if (i > 0 && (!o->full || j->report.troubles[device][0])) break;
        int32_t st = i == 0 ? eb_modelcheck_device(c, device, &rung, &err)
                            : eb_modelcheck_rung(c, device, &rung, &err);
        print_models(j);
        code = settle(j, device, st, &err);
    }
    return code;
}

/* The demo model on every device that came through its operators. */
static int check_models(struct job *j, ebro_runtime *rt, const struct options *o) {
    ebro_file files[EB_DEMO_FILES];
    struct eb_modelcheck_options options = {.files = files,
                                            .n_files = eb_demo_files(files),
                                            .full = o->full,
                                            .result = note_model,
                                            .user = j};
    struct eb_check_report *r = &j->report;
    struct eb_modelcheck *c = NULL;
    ebro_error err = {0};
    int code = EB_EXIT_OK;
    options.golden = eb_demo_golden(&options.golden_bytes);
    if (eb_modelcheck_open(rt, &options, &c, &err) != EBRO_OK) return eb_complain_error(&err);
    eb_bar_start(&j->bar);
    for (uint32_t i = 0; i < r->n_devices && code == EB_EXIT_OK; i++)
        if (!r->troubles[i][0]) code = check_model_device(j, c, i, o);
    for (uint32_t i = 0; i < r->n_devices && code == EB_EXIT_OK; i++) {
        if (r->troubles[i][0]) continue;
        int32_t st = eb_modelcheck_resume(c, i, &err);
        print_models(j);
        code = settle(j, i, st, &err);
    }
    eb_bar_end(&j->bar);
    if (code == EB_EXIT_OK && !j->silent) eb_check_print_resumed(r);
    eb_modelcheck_close(&c);
    return code;
}

/* In a runtime of its own: that a cache of another type is converted is warned of, and here meant.
 */
static int check_models_quietly(struct job *j, const struct options *o) {
    struct eb_options quiet = o->o;
    ebro_runtime *rt = NULL;
    ebro_error err = {0};
    if (quiet.log == EBRO_LOG_WARN) quiet.log = EBRO_LOG_ERROR;
    if (eb_runtime_open(&quiet, &rt, &err) != EBRO_OK) return eb_complain_error(&err);
    int code = check_models(j, rt, o);
    ebro_runtime_close(&rt);
    return code;
}

/* The devices that are asked for, in the order of `ebro devices`. */
static int choose_devices(ebro_runtime *rt, const struct options *o, ebro_device_info *list,
                          uint32_t *n) {
    ebro_device_info all[EB_CHECK_MAX_DEVICES];
    ebro_error err = {0};
    uint32_t count = 0;
    *n = 0;
    if (o->devices.n == 0) {
        if (ebro_device_list(rt, all, EB_CHECK_MAX_DEVICES, &count, &err) != EBRO_OK)
            return eb_complain_error(&err);
        for (uint32_t i = 0; i < count && i < EB_CHECK_MAX_DEVICES; i++)
            if (eb_device_computes(&all[i])) list[(*n)++] = all[i];
        if (*n > 0) return EB_EXIT_OK;
        eb_complain("no device can be checked: none of the backend modules finds one");
        return EB_EXIT_DEVICE;
    }
    for (size_t i = 0; i < o->devices.n; i++) {
        ebro_device *d = NULL;
        if (*n == EB_CHECK_MAX_DEVICES) break;
        if (ebro_device_open(rt, o->devices.items[i], &d, &err) != EBRO_OK)
            return eb_complain_device(&err);
        ebro_device_get_info(d, &list[(*n)++]);
        ebro_device_close(&d);
    }
    return EB_EXIT_OK;
}

static bool write_json(FILE *f, const void *user) {
    return json_dumpf(user, f, JSON_INDENT(1)) == 0 && fputc('\n', f) != EOF;
}

static bool is_stdout(const char *path) {
    return path && strcmp(path, "-") == 0;
}

/* Fills the file of that name, or stdout. Returns an exit code. */
static int save(const char *path, bool (*write)(FILE *f, const void *user), const void *user) {
    char text[512];
    if (is_stdout(path)) {
        bool written = write(stdout, user);
        return eb_flush_stdout() && written ? EB_EXIT_OK : EB_EXIT_USAGE;
    }
    if (eb_file_write(path, write, user, text, sizeof text)) return EB_EXIT_OK;
    eb_complain("%s", text);
    return EB_EXIT_USAGE;
}

/* Takes the JSON; NULL: it could not be made. */
static int save_json(json_t *json, const char *path) {
    if (!json) {
        eb_complain("out of memory, or a device whose name is not UTF-8, while writing %s", path);
        return EB_EXIT_MEMORY;
    }
    int code = save(path, write_json, json);
    json_decref(json);
    return code;
}

/* Tries all, so that none is lost with another. The first that failed counts. */
static int save_all(const struct job *j, const struct options *o) {
    const int codes[] = {
        o->json ? save_json(eb_check_json(&j->report), o->json) : EB_EXIT_OK,
        o->html ? save(o->html, eb_check_html, &j->report) : EB_EXIT_OK,
        o->bundle ? save_json(eb_check_bundle(&j->report), o->bundle) : EB_EXIT_OK};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i] != EB_EXIT_OK) return codes[i];
    return EB_EXIT_OK;
}

/* No file can hold two of them. */
static bool share_a_file(const struct options *o) {
    const struct {
        const char *name, *path;
    } files[] = {{"--json", o->json}, {"--html", o->html}, {"--bundle", o->bundle}};
    for (size_t i = 1; i < sizeof files / sizeof *files; i++) {
        for (size_t k = 0; k < i; k++) {
            const char *a = files[k].path, *b = files[i].path;
            if (!(is_stdout(a) && is_stdout(b)) && !eb_file_same(a, b)) continue;
            eb_complain("check: %s and %s both to \"%s\": two files are needed", files[k].name,
                        files[i].name, b);
            return true;
        }
    }
    return false;
}

/* ---- comparing -------------------------------------------------------------------------- */

/* Options on the command line that mean nothing where nothing is computed. */
static bool refuse_options(const struct options *o) {
    const struct {
        const char *name;
        enum eb_arg_from from;
    } others[] = {{"-dev", o->devices.from},   {"-t", o->threads_from},  {"--quick", o->quick_from},
                  {"--full", o->full_from},    {"--op", o->op_from},     {"--case", o->name_from},
                  {"--seed", o->seed_from},    {"--runs", o->runs_from}, {"--html", o->html_from},
                  {"--bundle", o->bundle_from}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (others[i].from != EB_FROM_COMMAND_LINE) continue;
        eb_complain("check: %s does not go with --compare, which computes nothing", others[i].name);
        return true;
    }
    for (size_t i = 0; i < o->reports.n; i++) {
        if (is_stdout(o->json) || !eb_file_same(o->json, o->reports.items[i])) continue;
        eb_complain("check: --json would replace %s, which is compared", o->reports.items[i]);
        return true;
    }
    return false;
}

static int read_report(const char *path, struct eb_saved_report *out) {
    const char *what = strcmp(path, "-") == 0 ? "standard input" : path;
    char text[512];
    bool no_memory = false;
    json_error_t why;
    json_t *json = eb_json_read_file(path, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &why);
    if (json && eb_saved_read(out, what, json, text, sizeof text, &no_memory)) return EB_EXIT_OK;
    if (json)
        eb_complain("%s: %s", what, text);
    else if (why.line > 0)
        eb_complain("%s is not valid JSON: %s (line %d)", what, why.text, why.line);
    else
        eb_complain("cannot read %s: %s", what, why.text);
    if (!json) no_memory = json_error_code(&why) == json_error_out_of_memory;
    return no_memory ? EB_EXIT_MEMORY : EB_EXIT_USAGE;
}

/* 6 where a report says that something failed, as the check itself ended. */
static int verdict_of(const struct eb_saved_report *reports, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (reports[i].n_model[EB_SAVED_FAILED] > 0) return EB_EXIT_NUMERIC;
    for (size_t i = 0; i < n; i++)
        for (uint32_t d = 0; d < reports[i].n_devices; d++)
            if (reports[i].devices[d].n[EB_SAVED_FAILED] > 0 || reports[i].devices[d].trouble[0])
                return EB_EXIT_NUMERIC;
    return EB_EXIT_OK;
}

static int show_comparison(const struct eb_comparison *c, const char *json) {
    if (!is_stdout(json)) eb_comparison_print(c);
    if (!eb_flush_stdout()) return EB_EXIT_USAGE;
    if (!json) return EB_EXIT_OK;
    json_t *all = eb_comparison_json(c);
    if (!all) {
        eb_complain("out of memory while writing %s", json);
        return EB_EXIT_MEMORY;
    }
    int code = save(json, write_json, all);
    json_decref(all);
    return code;
}

static int compare(const struct options *o) {
    static struct eb_saved_report reports[EB_ARG_LIST_MAX];
    struct eb_comparison c = {.machines = NULL};
    int code = EB_EXIT_OK;
    size_t n = 0;
    if (refuse_options(o)) return EB_EXIT_USAGE;
    if (o->reports.n == 0) {
        eb_complain("check: --compare needs reports: files that --json wrote");
        return EB_EXIT_USAGE;
    }
    while (n < o->reports.n && code == EB_EXIT_OK) {
        code = read_report(o->reports.items[n], &reports[n]);
        n++;
    }
    if (code == EB_EXIT_OK && !eb_comparison_make(&c, reports, n)) {
        eb_complain("out of memory for a comparison of %zu reports", n);
        code = EB_EXIT_MEMORY;
    } else if (code == EB_EXIT_OK && c.n_machines < 2) {
        eb_complain("check: --compare: %zu device in all; two are needed", c.n_machines);
        code = EB_EXIT_USAGE;
    }
    if (code == EB_EXIT_OK) code = show_comparison(&c, o->json);
    if (code == EB_EXIT_OK) code = verdict_of(reports, n);
    eb_comparison_free(&c);
    for (size_t i = 0; i < n; i++) eb_saved_free(&reports[i]);
    return code;
}

/* ---- the command ------------------------------------------------------------------------ */

/* -1: all; -2: there is no such operator, and it was said. */
static int32_t find_op(const struct options *o, const struct eb_arg_group *group) {
    if (!o->op) return -1;
    for (int op = 0; op < EBRO_N_OPS; op++)
        if (strcmp(o->op, eb_op_name((ebro_op)op)) == 0) return op;
    eb_complain("%s: \"%s\" is no operator: `ebro bench ops --help` lists them",
                eb_args_label(group, "--op", o), o->op);
    return -2;
}

static uint64_t new_seed(void) {
    struct timespec now = {0};
    timespec_get(&now, TIME_UTC);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int check_all(struct job *j, const struct options *o, int32_t op) {
    ebro_device_info list[EB_CHECK_MAX_DEVICES];
    ebro_runtime *rt = NULL;
    ebro_error err = {0};
    uint32_t n = 0;
    if (eb_runtime_open(&o->o, &rt, &err) != EBRO_OK) return eb_complain_error(&err);
    int code = choose_devices(rt, o, list, &n);
    for (uint32_t i = 0; i < n && code == EB_EXIT_OK; i++)
        code = check_device(j, rt, &list[i], o, op);
    ebro_runtime_close(&rt);
    if (code == EB_EXIT_OK && op < 0 && !o->name) code = check_models_quietly(j, o);
    return code;
}

/* The exit code that the findings stand for. */
static int verdict(const struct eb_check_report *r) {
    for (uint32_t i = 0; i < r->n_devices; i++)
        if (r->troubles[i][0]) return EB_EXIT_NUMERIC;
    return r->tally.n_failed + r->model_tally.n_failed > 0 ? EB_EXIT_NUMERIC : EB_EXIT_OK;
}

int eb_cmd_check(int argc, char **argv) {
    const struct eb_arg_group groups[] = {GROUP("Device", device_args), GROUP("Check", check_args),
                                          GROUP("Output", output_args),
                                          GROUP("Compare", compare_args), eb_log_args};
    struct options o = {.n_runs = 10};
    int code = eb_command_options("check", usage, groups, sizeof groups / sizeof *groups, argc,
                                  argv, &o.o);
    if (code >= 0) return code;
    if (o.compare) return compare(&o);
    if (o.reports.n > 0) {
        eb_complain("check: unexpected argument \"%s\": reports go with --compare",
                    o.reports.items[0]);
        return EB_EXIT_USAGE;
    }
    if (o.quick && o.full) {
        eb_complain("check: --quick or --full, not both");
        return EB_EXIT_USAGE;
    }
    if (share_a_file(&o)) return EB_EXIT_USAGE;
    int32_t op = find_op(&o, &groups[1]);
    if (op == -2) return EB_EXIT_USAGE;
    struct job *j = calloc(1, sizeof *j);
    if (!j) {
        eb_complain("out of memory");
        return EB_EXIT_MEMORY;
    }
    time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc))
        strftime(j->report.date, sizeof j->report.date, "%Y-%m-%dT%H:%M:%SZ", &utc);
    j->report.seed = o.seed_from != EB_FROM_DEFAULT ? o.seed : new_seed();
    j->report.full = o.full;
    j->silent = is_stdout(o.json) || is_stdout(o.html) || is_stdout(o.bundle);
    eb_interrupt_catch(true);
    code = check_all(j, &o, op);
    if (code == EB_EXIT_OK && j->report.n_rows == 0 && verdict(&j->report) == EB_EXIT_OK) {
        eb_complain("check: no case of that name%s", o.full ? "" : " in a quick check (--full)");
        code = EB_EXIT_USAGE;
    } else if (code == EB_EXIT_OK) {
        if (!j->silent) eb_check_print_summary(&j->report);
        if (!eb_flush_stdout()) code = EB_EXIT_USAGE;
        if (code == EB_EXIT_OK) code = save_all(j, &o);
        if (code == EB_EXIT_OK) code = verdict(&j->report);
    }
    eb_check_free(&j->report);
    free(j);
    return code;
}
