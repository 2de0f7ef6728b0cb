/* reference.h: a whole-model forward in float64, token by token, written from the formulas alone.
 * It shares no code with the product but the safetensors reader that hands it tensors. Slow and
 * plain on purpose: it is what the engine is measured against. */
#ifndef EB_TEST_REFERENCE_H
#define EB_TEST_REFERENCE_H

#include <stddef.h>
#include <stdint.h>

/* Logits of the last n_last of n tokens, [n_last][vocab], free with free(). `dir` holds config.json
 * and model.safetensors; anything it cannot make sense of fails the test. *vocab is set. */
double *test_reference_logits(const char *dir, const int32_t *ids, size_t n, size_t n_last,
                              size_t *vocab);

#endif
