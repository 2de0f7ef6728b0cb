/* config.h: reads config.json into the switches and sizes of eb_config, checked one by one. Private
 * to the model room. */
#ifndef EB_CONFIG_H
#define EB_CONFIG_H

#include "model/json.h"
#include "model/model.h"

enum { EB_LAYER_KDA = 1, EB_LAYER_MOE = 2 };

/* What the file says beyond eb_config. */
struct eb_config_file {
    struct eb_config c; /* mla_gate: NONE, or ELEMENT as "there is one": bind.h finds which */
    uint8_t *layers;    /* [n_layers] EB_LAYER_* bits; free with eb_free */
    bool tied;          /* lm_head is embed_tokens */
    bool mxfp4;         /* quantization_config is there: matrices may be packed */
    int32_t bos;        /* -1: none */
    int32_t stop_ids[8];
    uint32_t n_stop;
};

/* `root` is the document, `text` the object that holds the text model's keys (the same one for a
 * plain model). On error *out holds nothing to free. */
int32_t eb_config_read(const struct eb_alloc *a, const struct eb_json_node *root,
                       const struct eb_json_node *text, struct eb_config_file *out,
                       ebro_error *err);
/* Adds eos_token_id (an integer or an array) of an object to the stop ids, each once. */
int32_t eb_config_add_stops(const struct eb_json_node *n, struct eb_config_file *out,
                            ebro_error *err);

#endif
