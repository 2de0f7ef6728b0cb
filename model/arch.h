/* arch.h: the architectures that can be opened: where their configuration lies, how their tensors
 * are called, how they chat. Private to the model room. */
#ifndef EB_ARCH_H
#define EB_ARCH_H

#include "model/bind.h"

/* Constant. */
struct eb_arch {
    const char *class_name; /* in config.json's "architectures" */
    const char *name;       /* ebro_model_info.architecture */
    enum eb_chat_family chat;
    const char *config_key; /* object that holds the text model's keys; NULL: the root */
    const char *prefix;     /* of every tensor name */
    const char *const *skip_prefixes;
};

extern const struct eb_arch eb_arch_kimi_linear, eb_arch_kimi_k3;

/* Binds a text model of the Kimi family into b->m. Both architectures share one set of modules; the
 * configuration says which of them a model has. NOMEM_HOST, or eb_bind_finish's errors. */
int32_t eb_kimi_bind(struct eb_binder *b, ebro_error *err);

/* What K3 added (arch_kimi_k3.c); called by eb_kimi_bind where the configuration has them. */
void eb_kimi_k3_bind_residuals(struct eb_binder *b, uint32_t l);
void eb_kimi_k3_bind_output_residual(struct eb_binder *b);
void eb_kimi_k3_bind_latent(struct eb_binder *b, uint32_t l);

#endif
