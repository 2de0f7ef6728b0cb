/* embed.c: Ebro inside another program: streams the continuation of a text. Valid C11 and C++11.
 *
 *   cc embed.c $(pkg-config --cflags --libs ebro) -o embed && ./embed MODEL_FOLDER "The whale is"
 */
#include <ebro/ebro.h>
#include <stdio.h>
#include <string.h>

enum { MAX_PROMPT = 4096, MAX_NEW = 48 };

/* Evaluates what is queued, samples, shows, queues: until the model stops. */
static int32_t generate(ebro_model *model, ebro_engine *engine, ebro_seq *seq,
                        ebro_text_stream *stream, ebro_error *err) {
    ebro_sampling sampling;
    memset(&sampling, 0, sizeof sampling); /* zero: greedy, everything else off */
    sampling.size = sizeof sampling;
    const char *text;
    size_t n;
    int32_t id, special, stopped = 0, st = EBRO_OK;
    for (int i = 0; i < MAX_NEW && !stopped; i++) {
        while (ebro_seq_pending(seq) > 0)
            if ((st = ebro_engine_step(engine, err)) != EBRO_OK) return st;
        if ((st = ebro_seq_sample(seq, &sampling, &id, err)) != EBRO_OK) return st;
        if (ebro_token_is_stop(model, id)) break;
        const char *bytes = ebro_token_bytes(model, id, &n, &special);
        if (bytes != NULL && !special) {
            st = ebro_text_stream_push(stream, bytes, n, &text, &n, &stopped, err);
            if (st != EBRO_OK) return st;
            fwrite(text, 1, n, stdout);
            fflush(stdout);
        }
        if ((st = ebro_seq_append(seq, &id, 1, 0, err)) != EBRO_OK) return st;
    }
    if ((st = ebro_text_stream_finish(stream, &text, &n, err)) != EBRO_OK) return st;
    fwrite(text, 1, n, stdout);
    putchar('\n');
    return EBRO_OK;
}

int main(int argc, char **argv) {
    static int32_t ids[1 + MAX_PROMPT];
    size_t n_bos = 0, n = 0;
    ebro_runtime *runtime = NULL;
    ebro_device *device = NULL;
    ebro_model *model = NULL;
    ebro_engine *engine = NULL;
    ebro_seq *seq = NULL;
    ebro_text_stream *stream = NULL;
    ebro_error err;
    if (argc != 3) {
        fprintf(stderr, "usage: embed MODEL_FOLDER PROMPT\n");
        return 1;
    }
    ebro_model_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.path = argv[1];
    int32_t st = ebro_runtime_open(NULL, &runtime, &err);
    if (st == EBRO_OK) st = ebro_device_open(runtime, NULL, &device, &err);
    if (st == EBRO_OK) st = ebro_model_open(runtime, &options, &model, &err);
    if (st == EBRO_OK && (ids[0] = ebro_token_bos(model)) >= 0) n_bos = 1;
    if (st == EBRO_OK)
        st = ebro_tokenize(model, argv[2], strlen(argv[2]), 0, ids + n_bos, MAX_PROMPT, &n, &err);
    if (st == EBRO_OK) st = ebro_engine_open(model, device, NULL, &engine, &err);
    if (st == EBRO_OK) st = ebro_seq_create(engine, &seq, &err);
    if (st == EBRO_OK) st = ebro_seq_append(seq, ids, n_bos + n, 0, &err);
    if (st == EBRO_OK) st = ebro_text_stream_create(runtime, NULL, 0, &stream, &err);
    if (st == EBRO_OK) st = generate(model, engine, seq, stream, &err);
    if (st != EBRO_OK) fprintf(stderr, "embed: %s (%s)\n", err.text, ebro_status_name(st));
    ebro_text_stream_destroy(&stream); /* all of these accept what was never opened */
    ebro_seq_destroy(&seq);
    ebro_engine_close(&engine);
    ebro_model_close(&model);
    ebro_device_close(&device);
    ebro_runtime_close(&runtime);
    return st == EBRO_OK ? 0 : 1;
}
