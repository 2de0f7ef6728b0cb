/* session.c: what an application needs beside embed.c: it shows how far loading is, streams text,
 * stops at ctrl-C, and keeps the text in a file, also where it was stopped: the next start goes on
 * from there without reading it again. Valid C11 and C++11.
 *
 *   cc session.c $(pkg-config --cflags --libs ebro) -o session
 *   ./session MODEL_FOLDER whale.session "The whale is"
 *   ./session MODEL_FOLDER whale.session ""
 */
#include <ebro/ebro.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { MAX_PROMPT = 4096, MAX_NEW = 24 };

/* What the application has open. All of it closes with `app_close`, whatever was never opened. */
struct app {
    ebro_runtime *runtime;
    ebro_device *device;
    ebro_model *model;
    ebro_engine *engine;
    ebro_seq *seq;
    ebro_text_stream *stream;
};

/* Set by whoever wants the application to stop: a signal here, a button or another thread (then an
 * atomic flag) elsewhere. */
static volatile sig_atomic_t stop;

static void on_interrupt(int signal_number) {
    (void)signal_number;
    stop = 1;
}

/* Both callbacks cancel the call that they come from by a result other than 0. */
static int32_t on_loading(void *user, const char *label, float fraction) {
    (void)user;
    fprintf(stderr, "\r%-24s %3d%%", label, (int)(100.0f * fraction));
    return stop;
}

/* Called before every step, and between the layers of one that reads a prompt. */
static int32_t on_step(void *user, const char *label, float fraction) {
    (void)user, (void)label, (void)fraction;
    return stop;
}

static int32_t app_open(struct app *app, const char *folder, ebro_error *err) {
    ebro_model_options model;
    ebro_engine_options engine;
    memset(&model, 0, sizeof model); /* zero: the default, of every field but cache_dtype */
    model.size = sizeof model;
    model.path = folder;
    model.progress = on_loading;
    memset(&engine, 0, sizeof engine);
    engine.size = sizeof engine;
    engine.cache_dtype = -1;
    engine.progress = on_step;
    int32_t st = ebro_runtime_open(NULL, &app->runtime, err);
    if (st == EBRO_OK) st = ebro_device_open(app->runtime, NULL, &app->device, err);
    if (st == EBRO_OK) st = ebro_model_open(app->runtime, &model, &app->model, err);
    fputc('\n', stderr);
    if (st == EBRO_OK) st = ebro_engine_open(app->model, app->device, &engine, &app->engine, err);
    if (st == EBRO_OK) st = ebro_text_stream_create(app->runtime, NULL, 0, &app->stream, err);
    return st;
}

static void app_close(struct app *app) {
    ebro_text_stream_destroy(&app->stream);
    ebro_seq_destroy(&app->seq);
    ebro_engine_close(&app->engine);
    ebro_model_close(&app->model);
    ebro_device_close(&app->device);
    ebro_runtime_close(&app->runtime);
}

/* Goes on from the file where there is one, else begins a text. */
static int32_t app_restore(struct app *app, const char *path, ebro_error *err) {
    FILE *file = fopen(path, "rb");
    int32_t bos = ebro_token_bos(app->model);
    if (file != NULL) {
        fclose(file);
        int32_t st = ebro_seq_load(app->engine, path, &app->seq, NULL, err);
        if (st == EBRO_OK)
            fprintf(stderr, "goes on from %u tokens, and %u that were not read yet\n",
                    (unsigned)ebro_seq_length(app->seq), (unsigned)ebro_seq_pending(app->seq));
        return st;
    }
    int32_t st = ebro_seq_create(app->engine, &app->seq, err);
    if (st == EBRO_OK && bos >= 0) st = ebro_seq_append(app->seq, &bos, 1, 0, err);
    return st;
}

static int32_t app_append(struct app *app, const char *text, ebro_error *err) {
    static int32_t ids[MAX_PROMPT];
    size_t n = 0;
    int32_t st = ebro_tokenize(app->model, text, strlen(text), 0, ids, MAX_PROMPT, &n, err);
    return st == EBRO_OK && n > 0 ? ebro_seq_append(app->seq, ids, n, 0, err) : st;
}

static void show(const char *text, size_t n) {
    fwrite(text, 1, n, stdout);
    fflush(stdout);
}

/* Evaluates what is queued, samples, shows, queues. A cancelled step gives EBRO_CANCELLED; the
 * sequence is then as it was before that step, and can be saved or gone on with. */
static int32_t app_generate(struct app *app, ebro_error *err) {
    ebro_sampling sampling;
    memset(&sampling, 0, sizeof sampling); /* zero: greedy, everything else off */
    sampling.size = sizeof sampling;
    const char *text;
    size_t n;
    int32_t id, special, stopped = 0, st;
    for (int i = 0; i < MAX_NEW; i++) {
        while (ebro_seq_pending(app->seq) > 0)
            if ((st = ebro_engine_step(app->engine, err)) != EBRO_OK) return st;
        if ((st = ebro_seq_sample(app->seq, &sampling, &id, err)) != EBRO_OK) return st;
        if (ebro_token_is_stop(app->model, id)) break;
        const char *bytes = ebro_token_bytes(app->model, id, &n, &special);
        if (bytes != NULL && !special) {
            st = ebro_text_stream_push(app->stream, bytes, n, &text, &n, &stopped, err);
            if (st != EBRO_OK) return st;
            show(text, n);
        }
        if ((st = ebro_seq_append(app->seq, &id, 1, 0, err)) != EBRO_OK) return st;
    }
    return EBRO_OK;
}

/* Shows what the stream still holds back: bytes that begin a character. */
static int32_t app_finish(struct app *app, ebro_error *err) {
    const char *text;
    size_t n;
    int32_t st = ebro_text_stream_finish(app->stream, &text, &n, err);
    if (st == EBRO_OK) show(text, n);
    putchar('\n');
    return st;
}

int main(int argc, char **argv) {
    struct app app;
    ebro_error err;
    memset(&app, 0, sizeof app);
    if (argc != 4) {
        fprintf(stderr, "usage: session MODEL_FOLDER SESSION_FILE TEXT\n");
        return 1;
    }
    signal(SIGINT, on_interrupt);
    int32_t st = app_open(&app, argv[1], &err);
    if (st == EBRO_OK) st = app_restore(&app, argv[2], &err);
    if (st == EBRO_OK) st = app_append(&app, argv[3], &err);
    if (st == EBRO_OK) {
        st = app_generate(&app, &err);
        if (st == EBRO_CANCELLED) fprintf(stderr, "stopped: %s\n", err.text);
        if (st == EBRO_OK || st == EBRO_CANCELLED) st = app_finish(&app, &err);
        if (st == EBRO_OK) st = ebro_seq_save(app.seq, argv[2], NULL, NULL, &err);
    }
    if (st != EBRO_OK) fprintf(stderr, "session: %s (%s)\n", err.text, ebro_status_name(st));
    app_close(&app);
    return st == EBRO_OK ? 0 : 1;
}
