/* graph.c: work that is recorded once and launched often: thin, it adds the failed flag. */
#include "device/device.h"

bool eb_can_record(const struct ebro_device *d) {
    return (d->caps.bits & EBRO_CAP_GRAPHS) != 0 && d->be->graph_begin != NULL;
}

/* EBRO_OK where graphs can be had and the device is there. */
static int32_t check(const struct eb_stream *s, ebro_error *err) {
    if (eb_can_record(s->device)) return eb_device_check(s->device, err);
    return eb_fail(err, EBRO_UNSUPPORTED, "%s does not record graphs", s->device->info.name);
}

int32_t eb_graph_begin(struct eb_stream *s, ebro_error *err) {
    int32_t st = check(s, err);
    if (st != EBRO_OK) return st;
    st = eb_device_note(s->device, s->device->be->graph_begin(s->impl, err));
    return st == EBRO_OK ? st : eb_while(err, st, "recording a graph on %s", s->device->info.name);
}

int32_t eb_graph_end(struct eb_stream *s, ebro_graph **out, ebro_error *err) {
    *out = NULL;
    int32_t st = check(s, err);
    if (st != EBRO_OK) return st;
    st = eb_device_note(s->device, s->device->be->graph_end(s->impl, out, err));
    return st == EBRO_OK ? st : eb_while(err, st, "recording a graph on %s", s->device->info.name);
}

int32_t eb_graph_launch(struct eb_stream *s, ebro_graph *graph, ebro_error *err) {
    int32_t st = check(s, err);
    if (st != EBRO_OK) return st;
    st = eb_device_note(s->device, s->device->be->graph_launch(s->impl, graph, err));
    return st == EBRO_OK ? st : eb_while(err, st, "launching a graph on %s", s->device->info.name);
}

void eb_graph_free(struct ebro_device *d, ebro_graph **graph) {
    if (graph == NULL || *graph == NULL) return;
    d->be->graph_free(d->dev, *graph);
    *graph = NULL;
}
