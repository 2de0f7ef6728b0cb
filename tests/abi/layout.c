/* layout.c: where the fields of the public structs lie on 64-bit systems, fixed at compile time: a
 * program that was built against an older ebro.h must still be understood. Checks nothing when run.
 *
 * A new field of a struct with a size goes to its end, and not before the size that stands here:
 * what an older caller has in the padding there is not known. A struct without a size never
 * changes. */
#include <stddef.h>
#include <stdint.h>

#include "ebro/ebro.h"

#if UINTPTR_MAX == UINT64_MAX

#define AT(type, field, offset) \
    _Static_assert(offsetof(type, field) == (offset), #type "." #field " has moved")
#define FROZEN(type, bytes) _Static_assert(sizeof(type) == (bytes), #type " has changed")
#define GROWS(type, bytes) _Static_assert(sizeof(type) >= (bytes), #type " has shrunk")

AT(ebro_error, status, 0);
AT(ebro_error, text, 4);
FROZEN(ebro_error, 1024);

AT(ebro_runtime_options, size, 0);
AT(ebro_runtime_options, log, 8);
AT(ebro_runtime_options, log_user, 16);
AT(ebro_runtime_options, log_level, 24);
AT(ebro_runtime_options, realloc, 32);
AT(ebro_runtime_options, realloc_user, 40);
AT(ebro_runtime_options, module_dir, 48);
AT(ebro_runtime_options, cache_dir, 56);
GROWS(ebro_runtime_options, 64);

AT(ebro_device_info, name, 0);
AT(ebro_device_info, description, 32);
AT(ebro_device_info, id, 160);
AT(ebro_device_info, backend, 224);
AT(ebro_device_info, total_bytes, 256);
AT(ebro_device_info, free_bytes, 264);
FROZEN(ebro_device_info, 272);

AT(ebro_device_settings, size, 0);
AT(ebro_device_settings, n_threads, 8);
AT(ebro_device_settings, reserved, 12);
AT(ebro_device_settings, caps_mask, 16);
AT(ebro_device_settings, avoid, 24);
GROWS(ebro_device_settings, 32);

AT(ebro_file, name, 0);
AT(ebro_file, data, 8);
AT(ebro_file, bytes, 16);
FROZEN(ebro_file, 24);

AT(ebro_model_options, size, 0);
AT(ebro_model_options, path, 8);
AT(ebro_model_options, files, 16);
AT(ebro_model_options, n_files, 24);
AT(ebro_model_options, latent_norm_eps, 28);
AT(ebro_model_options, biased_expert_weights, 32);
AT(ebro_model_options, progress, 40);
AT(ebro_model_options, progress_user, 48);
GROWS(ebro_model_options, 56);

AT(ebro_model_info, architecture, 0);
AT(ebro_model_info, n_layers, 32);
AT(ebro_model_info, n_kda_layers, 36);
AT(ebro_model_info, n_mla_layers, 40);
AT(ebro_model_info, hidden, 44);
AT(ebro_model_info, vocab, 48);
AT(ebro_model_info, max_context, 52);
AT(ebro_model_info, weight_bytes, 56);
AT(ebro_model_info, state_bytes, 64);
AT(ebro_model_info, cache_row_elements, 72);
FROZEN(ebro_model_info, 80);

AT(ebro_layer_info, size, 0);
AT(ebro_layer_info, is_kda, 8);
AT(ebro_layer_info, is_moe, 12);
AT(ebro_layer_info, n_experts, 16);
AT(ebro_layer_info, top_k, 20);
GROWS(ebro_layer_info, 24);

AT(ebro_tensor_info, size, 0);
AT(ebro_tensor_info, name, 8);
AT(ebro_tensor_info, file, 16);
AT(ebro_tensor_info, dtype, 24);
AT(ebro_tensor_info, part, 28);
AT(ebro_tensor_info, layer, 32);
AT(ebro_tensor_info, n_dims, 36);
AT(ebro_tensor_info, shape, 40);
AT(ebro_tensor_info, bytes, 104);
AT(ebro_tensor_info, n_params, 112);
GROWS(ebro_tensor_info, 120);

AT(ebro_chat_message, role, 0);
AT(ebro_chat_message, content, 8);
AT(ebro_chat_message, reasoning, 16);
FROZEN(ebro_chat_message, 24);

AT(ebro_chat_options, size, 0);
AT(ebro_chat_options, thinking, 8);
AT(ebro_chat_options, thinking_effort, 16);
AT(ebro_chat_options, no_generation_prompt, 24);
GROWS(ebro_chat_options, 32);

AT(ebro_reply_options, size, 0);
AT(ebro_reply_options, thinking, 8);
GROWS(ebro_reply_options, 16);

AT(ebro_reply_piece, size, 0);
AT(ebro_reply_piece, kind, 8);
AT(ebro_reply_piece, call, 12);
AT(ebro_reply_piece, text, 16);
AT(ebro_reply_piece, bytes, 24);
AT(ebro_reply_piece, id, 32);
AT(ebro_reply_piece, id_bytes, 40);
GROWS(ebro_reply_piece, 48);

AT(ebro_engine_options, size, 0);
AT(ebro_engine_options, n_ctx, 8);
AT(ebro_engine_options, n_chunk, 12);
AT(ebro_engine_options, cache_dtype, 16);
AT(ebro_engine_options, prefill_form, 20);
AT(ebro_engine_options, progress, 24);
AT(ebro_engine_options, progress_user, 32);
AT(ebro_engine_options, strict, 40);
AT(ebro_engine_options, expert_choices, 44);
AT(ebro_engine_options, max_seqs, 48);
AT(ebro_engine_options, memory_bytes, 56);
AT(ebro_engine_options, keep, 64);
AT(ebro_engine_options, keep_interval, 68);
AT(ebro_engine_options, evict, 72);
AT(ebro_engine_options, host_bytes, 80);
AT(ebro_engine_options, token_cost, 88);
AT(ebro_engine_options, depth_cost, 96);
GROWS(ebro_engine_options, 104);

AT(ebro_estimate, size, 0);
AT(ebro_estimate, n_ctx, 8);
AT(ebro_estimate, n_chunk, 12);
AT(ebro_estimate, cache_dtype, 16);
AT(ebro_estimate, n_states, 20);
AT(ebro_estimate, weights_in_place, 24);
AT(ebro_estimate, weights_copied, 32);
AT(ebro_estimate, state_bytes, 40);
AT(ebro_estimate, window_bytes, 48);
AT(ebro_estimate, cache_token_bytes, 56);
AT(ebro_estimate, cache_bytes, 64);
AT(ebro_estimate, workspace_bytes, 72);
AT(ebro_estimate, other_bytes, 80);
AT(ebro_estimate, total_bytes, 88);
AT(ebro_estimate, rounding_bytes, 96);
AT(ebro_estimate, kept_bytes, 104);
AT(ebro_estimate, memory_bytes, 112);
AT(ebro_estimate, block_bytes, 120);
GROWS(ebro_estimate, 128);

AT(ebro_reuse, size, 0);
AT(ebro_reuse, n_prompt, 8);
AT(ebro_reuse, n_matched, 12);
AT(ebro_reuse, n_reused, 16);
AT(ebro_reuse, miss, 20);
AT(ebro_reuse, reason, 24);
GROWS(ebro_reuse, 32);

AT(ebro_memory, size, 0);
AT(ebro_memory, budget_bytes, 8);
AT(ebro_memory, taken_bytes, 16);
AT(ebro_memory, live_page_bytes, 24);
AT(ebro_memory, live_state_bytes, 32);
AT(ebro_memory, kept_page_bytes, 40);
AT(ebro_memory, kept_state_bytes, 48);
AT(ebro_memory, peak_bytes, 56);
AT(ebro_memory, n_seqs, 64);
AT(ebro_memory, n_snapshots, 68);
AT(ebro_memory, prompts, 72);
AT(ebro_memory, prompt_tokens, 80);
AT(ebro_memory, matched_tokens, 88);
AT(ebro_memory, reused_tokens, 96);
AT(ebro_memory, evaluated_tokens, 104);
AT(ebro_memory, snapshots_kept, 112);
AT(ebro_memory, snapshots_refused, 120);
AT(ebro_memory, evictions, 128);
AT(ebro_memory, copied_pages, 136);
AT(ebro_memory, misses, 144);
AT(ebro_memory, host_bytes, 192);
AT(ebro_memory, host_saves, 200);
AT(ebro_memory, host_loads, 208);
AT(ebro_memory, token_cost, 216);
AT(ebro_memory, depth_cost, 224);
AT(ebro_memory, host_budget_bytes, 232);
GROWS(ebro_memory, 240);

AT(ebro_export_options, size, 0);
AT(ebro_export_options, application, 8);
AT(ebro_export_options, application_bytes, 16);
GROWS(ebro_export_options, 24);

AT(ebro_transfer, size, 0);
AT(ebro_transfer, header_bytes, 8);
AT(ebro_transfer, identity_bytes, 16);
AT(ebro_transfer, token_bytes, 24);
AT(ebro_transfer, state_bytes, 32);
AT(ebro_transfer, window_bytes, 40);
AT(ebro_transfer, row_bytes, 48);
AT(ebro_transfer, application_bytes, 56);
AT(ebro_transfer, total_bytes, 64);
AT(ebro_transfer, n_tokens, 72);
AT(ebro_transfer, n_evaluated, 76);
AT(ebro_transfer, cache_dtype, 80);
AT(ebro_transfer, engine_dtype, 84);
AT(ebro_transfer, converted, 88);
GROWS(ebro_transfer, 96);

AT(ebro_logit_bias, id, 0);
AT(ebro_logit_bias, bias, 4);
FROZEN(ebro_logit_bias, 8);

AT(ebro_sampling, size, 0);
AT(ebro_sampling, temperature, 8);
AT(ebro_sampling, top_k, 12);
AT(ebro_sampling, top_p, 16);
AT(ebro_sampling, min_p, 20);
AT(ebro_sampling, seed, 24);
AT(ebro_sampling, repeat_penalty, 32);
AT(ebro_sampling, presence_penalty, 36);
AT(ebro_sampling, frequency_penalty, 40);
AT(ebro_sampling, penalty_last_n, 44);
AT(ebro_sampling, biases, 48);
AT(ebro_sampling, n_biases, 56);
AT(ebro_sampling, allowed, 64);
GROWS(ebro_sampling, 72);

#else
/* A file must declare something. */
typedef int no_layout_known;
#endif
