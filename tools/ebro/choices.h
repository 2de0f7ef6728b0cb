/* choices.h: expert choices of a prompt as a file: written after a run, forced upon another one. */
#ifndef EB_CHOICES_H
#define EB_CHOICES_H

#include "common.h"

/* The file is a safetensors file of
 *   layers   I32 [L]        the MoE layers of the model, from 0 over all layers
 *   ids      I32 [T]        the tokens of the prompt
 *   experts  I32 [L, T, K]  the experts that each token used in each of them, best first
 *   weights  F32 [L, T, K]  their weights
 * The calls return an exit code and have complained unless it is EB_EXIT_OK. */

/* All tokens are evaluated. */
int eb_choices_save(struct eb_session *s, const struct eb_tokens *tokens, const char *path);
/* Nothing is evaluated yet. The file must be of this prompt and fit the model; its weights are not
 * looked at: the model computes its own. */
int eb_choices_force(struct eb_session *s, const struct eb_tokens *tokens, const char *path);

#endif
