/* two.c: two engines in one process, each in a thread of its own. Runtime, device and model are
 * shared by both; an engine and its sequences belong to one thread. Valid C11 and C++11.
 *
 *   cc two.c $(pkg-config --cflags --libs ebro) -pthread -o two
 *   ./two MODEL_FOLDER "The whale is" "Once upon a time"
 */
#include <ebro/ebro.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MAX_PROMPT = 4096, MAX_NEW = 48, MAX_TEXT = 4096 };

struct writer {
    ebro_model *model;
    ebro_device *device;
    const char *prompt;
    char text[MAX_TEXT]; /* what it wrote: n bytes */
    size_t n;
    int32_t status;
    ebro_error err;
};

static int32_t append_prompt(struct writer *w, ebro_seq *seq) {
    int32_t ids[1 + MAX_PROMPT];
    size_t n_bos = 0, n = 0;
    if ((ids[0] = ebro_token_bos(w->model)) >= 0) n_bos = 1;
    int32_t st = ebro_tokenize(w->model, w->prompt, strlen(w->prompt), 0, ids + n_bos, MAX_PROMPT,
                               &n, &w->err);
    return st == EBRO_OK ? ebro_seq_append(seq, ids, n_bos + n, 0, &w->err) : st;
}

static int32_t generate(struct writer *w, ebro_engine *engine, ebro_seq *seq) {
    ebro_sampling sampling;
    memset(&sampling, 0, sizeof sampling); /* zero: greedy, everything else off */
    sampling.size = sizeof sampling;
    int32_t id, special, st;
    for (int i = 0; i < MAX_NEW; i++) {
        size_t n = 0;
        while (ebro_seq_pending(seq) > 0)
            if ((st = ebro_engine_step(engine, &w->err)) != EBRO_OK) return st;
        if ((st = ebro_seq_sample(seq, &sampling, &id, &w->err)) != EBRO_OK) return st;
        if (ebro_token_is_stop(w->model, id)) break;
        const char *bytes = ebro_token_bytes(w->model, id, &n, &special);
        if (bytes == NULL || n > MAX_TEXT - w->n) break;
        if (!special) {
            memcpy(w->text + w->n, bytes, n);
            w->n += n;
        }
        if ((st = ebro_seq_append(seq, &id, 1, 0, &w->err)) != EBRO_OK) return st;
    }
    return EBRO_OK;
}

static void *write_text(void *user) {
    struct writer *w = (struct writer *)user;
    ebro_engine *engine = NULL;
    ebro_seq *seq = NULL;
    w->status = ebro_engine_open(w->model, w->device, NULL, &engine, &w->err);
    if (w->status == EBRO_OK) w->status = ebro_seq_create(engine, &seq, &w->err);
    if (w->status == EBRO_OK) w->status = append_prompt(w, seq);
    if (w->status == EBRO_OK) w->status = generate(w, engine, seq);
    ebro_seq_destroy(&seq);
    ebro_engine_close(&engine);
    return NULL;
}

/* Both at once, or, where there is no other thread to be had, one after the other. */
static void write_both(struct writer *w) {
    pthread_t thread;
    int started = pthread_create(&thread, NULL, write_text, &w[0]) == 0;
    write_text(&w[1]);
    if (started) {
        pthread_join(thread, NULL);
    } else {
        write_text(&w[0]);
    }
}

int main(int argc, char **argv) {
    static struct writer writers[2];
    ebro_runtime *runtime = NULL;
    ebro_device *device = NULL;
    ebro_model *model = NULL;
    ebro_model_options options;
    ebro_error err;
    if (argc != 4) {
        fprintf(stderr, "usage: two MODEL_FOLDER PROMPT PROMPT\n");
        return 1;
    }
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.path = argv[1];
    int32_t st = ebro_runtime_open(NULL, &runtime, &err);
    if (st == EBRO_OK) st = ebro_device_open(runtime, NULL, &device, &err);
    if (st == EBRO_OK) st = ebro_model_open(runtime, &options, &model, &err);
    if (st != EBRO_OK) fprintf(stderr, "two: %s (%s)\n", err.text, ebro_status_name(st));
    if (st == EBRO_OK) {
        for (int i = 0; i < 2; i++) {
            writers[i].model = model;
            writers[i].device = device;
            writers[i].prompt = argv[2 + i];
        }
        write_both(writers);
        for (int i = 0; i < 2; i++) {
            fwrite(writers[i].text, 1, writers[i].n, stdout);
            putchar('\n');
            if (writers[i].status == EBRO_OK) continue;
            st = writers[i].status;
            fprintf(stderr, "two: %s (%s)\n", writers[i].err.text, ebro_status_name(st));
        }
    }
    ebro_model_close(&model);
    ebro_device_close(&device);
    ebro_runtime_close(&runtime);
    return st == EBRO_OK ? 0 : 1;
}
