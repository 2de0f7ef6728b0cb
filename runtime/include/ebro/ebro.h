/* ebro.h: the public interface of Ebro, a runtime for language models that mix Kimi Delta
 * Attention (KDA) with Multi-head Latent Attention (MLA).
 *
 * Conventions
 *   - Every call that can fail returns an ebro_status and writes a text to *err (err may be NULL).
 *   - Structs passed in start with `size` = sizeof the struct as the caller knows it; they only
 *     ever grow at the end, and a zero field means its default unless its comment says otherwise.
 *   - Structs that are filled in by a call have a `size` to set before it, by the same rule, or
 * never change. So do elements of arrays.
 *   - open/close for things that do I/O, create/destroy for the rest. Both take the address of
 *     the caller's pointer, accept NULL and a pointer to NULL, and set the pointer to NULL.
 *   - NULL for an object that a call needs is INVALID; a call that has no status gives zeros then,
 * or what its comment says.
 *   - Strings are UTF-8 and NUL-terminated unless a length is given.
 *   - The library never aborts, exits, prints or reads the environment.
 *   - Threads: a runtime, a device and a model may be used from several threads at once. An engine
 *     and its sequences belong to one thread at a time. Callbacks run on the calling thread and
 *     must not call back into the object that called them.
 */
#ifndef EBRO_EBRO_H
#define EBRO_EBRO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define EBRO_API __declspec(dllexport)
#elif defined(__GNUC__)
#define EBRO_API __attribute__((visibility("default")))
#else
#define EBRO_API
#endif

/* ---- status and error ------------------------------------------------------------------- */

typedef enum ebro_status {
    EBRO_OK = 0,
    EBRO_INVALID = 1,      /* an argument or a request is wrong */
    EBRO_UNSUPPORTED = 2,  /* valid, but not by this build, model or device */
    EBRO_NOMEM_HOST = 3,   /* host memory */
    EBRO_NOMEM_DEVICE = 4, /* device memory */
    EBRO_IO = 5,           /* the operating system refused a file operation */
    EBRO_FORMAT = 6,       /* a file is not what it should be */
    EBRO_NO_DEVICE = 7,    /* no such device or backend */
    EBRO_DEVICE_LOST = 8,  /* sticky: the device must be opened again */
    EBRO_TIMEOUT = 9,
    EBRO_CANCELLED = 10,
    EBRO_NUMERIC = 11, /* a non-finite value where a finite one must be, or a failed self-test */
    EBRO_INTERNAL = 12 /* a broken invariant of Ebro itself: please report */
} ebro_status;

/* The text reads "cause; while doing this; while doing that". Always NUL-terminated. */
typedef struct ebro_error {
    int32_t status;
    char text[1020];
} ebro_error;

/* A short constant name such as "FORMAT". Never NULL. */
EBRO_API const char *ebro_status_name(int32_t status);

/* "0.1.0 (commit)"; constant. */
EBRO_API const char *ebro_version(void);

/* Tells how far a long call is: what is done of it, from 0 to 1, and what is being done ("reading
 * weights", constant). Any other result than 0 cancels the call, which then returns EBRO_CANCELLED
 * and leaves nothing behind. */
typedef int32_t (*ebro_progress_fn)(void *user, const char *label, float fraction);

/* ---- runtime ---------------------------------------------------------------------------- */

typedef struct ebro_runtime ebro_runtime;
typedef struct ebro_device ebro_device;
typedef struct ebro_model ebro_model;
typedef struct ebro_engine ebro_engine;
typedef struct ebro_seq ebro_seq;

typedef enum ebro_log_level {
    EBRO_LOG_ERROR = 1,
    EBRO_LOG_WARN = 2,
    EBRO_LOG_INFO = 3,
    EBRO_LOG_DEBUG = 4,
    EBRO_LOG_TRACE = 5
} ebro_log_level;

typedef struct ebro_runtime_options {
    size_t size;
    /* Log sink; NULL: no log. May be called from any thread that uses the runtime. */
    void (*log)(void *user, int32_t level, const char *text);
    void *log_user;
    int32_t log_level; /* 0: EBRO_LOG_WARN */
    /* Allocation hook for host memory: p == NULL allocates, n == 0 frees, else reallocates.
     * Returns NULL when out of memory. Alignment as malloc. NULL: the C library's. May be called
     * from any thread that uses the runtime. The C library's is used all the same by what allocates
     * behind the library's back: the JSON parser while a model opens or a conversation is read,
     * checksums (600 bytes), the dynamic linker, threads. */
    void *(*realloc)(void *user, void *p, size_t n);
    void *realloc_user;
    /* Folder that holds the backend modules, an absolute path; NULL: the folder of the Ebro library
     * (or of the program it is linked into). Never the working directory unless named here. */
    const char *module_dir;
    /* Folder, an absolute path, for what is slow to make again: compiled kernels and results of
     * self-tests. One that cannot be written to is no error. NULL: nothing is kept. */
    const char *cache_dir;
} ebro_runtime_options;

EBRO_API int32_t ebro_runtime_open(const ebro_runtime_options *options, ebro_runtime **out,
                                   ebro_error *err);
/* Everything opened through the runtime must be closed before. */
EBRO_API void ebro_runtime_close(ebro_runtime **runtime);

/* ---- guard ------------------------------------------------------------------------------ */

/* Model files are mapped. Reading a page of one that another program has truncated meanwhile, or
 * that the disk does not give, raises SIGBUS and ends the process. With the guard it is an error
 * instead: ebro_model_open, ebro_engine_open and ebro_engine_step give EBRO_IO and name the file,
 * and nothing of the step is kept. A file that is overwritten in place at its full length goes
 * unnoticed; one that is replaced by renaming does no harm.
 *
 * Installs a handler of SIGBUS for the whole process. It answers faults inside files that the
 * runtime has mapped, in any thread, and hands all others to the handler (or default) that was
 * there before. A handler that is installed later must do the same, and threads must not block
 * SIGBUS. Installed already: does nothing. UNSUPPORTED where the system has no such signal. Not
 * from two threads at once, nor ebro_guard_remove. */
EBRO_API int32_t ebro_guard_install(ebro_error *err);
/* Puts back what was there before. Not installed: does nothing. INVALID where another handler is in
 * force: then nothing changes. */
EBRO_API int32_t ebro_guard_remove(ebro_error *err);

/* ---- devices ---------------------------------------------------------------------------- */

typedef struct ebro_device_info {
    char name[32]; /* "CPU", "CUDA0", "ROCm0", "Vulkan0", ... */
    char description[128];
    char id[64];          /* stable: PCI address or UUID; "cpu" for the CPU */
    char backend[32];     /* module, e.g. "cpu" */
    uint64_t total_bytes; /* memory; 0: not known */
    uint64_t free_bytes;
} ebro_device_info;

/* Writes up to `capacity` entries and sets *count to the number of devices there are. A module
 * that is present but unusable is not an error: its reason goes to the log at level INFO. */
EBRO_API int32_t ebro_device_list(ebro_runtime *runtime, ebro_device_info *out, uint32_t capacity,
                                  uint32_t *count, ebro_error *err);
/* `name`: a name or id as listed, without regard to case; NULL: the best device present. */
EBRO_API int32_t ebro_device_open(ebro_runtime *runtime, const char *name, ebro_device **out,
                                  ebro_error *err);
typedef struct ebro_device_settings {
    size_t size;
    uint32_t n_threads; /* CPU: threads that compute; 0: one for each core that may be used */
    uint32_t reserved;  /* 0 */
    /* Capabilities (EBRO_CAP_* of backend.h) that the device must do without. */
    uint64_t caps_mask;
    /* Variants of its code that the device must do without: names with blanks between them, as
     * "norm:subgroup linear_matrix:bf16" or, of the CPU, "avx512". What they fall back to takes
     * their place; where that is nothing, the device is not opened. A name that the backend does
     * not know is INVALID, and the error lists those it knows. NULL: none. */
    const char *avoid;
} ebro_device_settings;

/* The same with settings; NULL: all defaults. */
EBRO_API int32_t ebro_device_open_with(ebro_runtime *runtime, const char *name,
                                       const ebro_device_settings *settings, ebro_device **out,
                                       ebro_error *err);
/* The same after a self-test: every operator computes a few cases in the variants that the device
 * chose, compared with float64, in less than two seconds in all. A variant that is wrong, does not
 * repeat itself, or loses the device is avoided as if `avoid` had named it, and a warning in the
 * log says which operator was how wrong, and what takes its place. Where one is wrong in every
 * variant, the device is not opened: NUMERIC, with operator, case, error and what is allowed.
 *
 * The result is kept in the runtime's cache_dir for as long as device, driver, module and library
 * are the same. Without one the test runs each time, which is why the calls above do not make it:
 * what takes seconds must be asked for. */
EBRO_API int32_t ebro_device_open_tested(ebro_runtime *runtime, const char *name,
                                         const ebro_device_settings *settings, ebro_device **out,
                                         ebro_error *err);
EBRO_API void ebro_device_close(ebro_device **device);
EBRO_API void ebro_device_get_info(const ebro_device *device, ebro_device_info *out);

/* ---- model ------------------------------------------------------------------------------ */

/* One file of a model folder that is already in memory. The bytes must stay valid and unchanged
 * until the model is closed; `data` is best aligned to 64 bytes. */
typedef struct ebro_file {
    const char *name; /* "config.json", "model.safetensors", "tiktoken.model", ... */
    const void *data;
    size_t bytes;
} ebro_file;

typedef struct ebro_model_options {
    size_t size;
    /* Either a folder in the Hugging Face layout ... */
    const char *path;
    /* ... or the same files in memory (path NULL). The array itself is copied. */
    const ebro_file *files;
    uint32_t n_files;
    /* eps of the norms on the query and key-value latents; 0: 1e-6, as in the published modelling
     * code (some runtimes use rms_norm_eps, 1e-5). */
    float latent_norm_eps;
    /* Weigh experts by score + bias (the remote code published with the 48B) instead of score. */
    int32_t biased_expert_weights;
    ebro_progress_fn progress; /* NULL: none */
    void *progress_user;
} ebro_model_options;

/* Loads and checks configuration, tensors and tokenizer; weights stay in the mapped file. */
EBRO_API int32_t ebro_model_open(ebro_runtime *runtime, const ebro_model_options *options,
                                 ebro_model **out, ebro_error *err);
EBRO_API void ebro_model_close(ebro_model **model);

typedef struct ebro_model_info {
    char architecture[32]; /* "kimi-linear" or "kimi-k3" */
    uint32_t n_layers, n_kda_layers, n_mla_layers;
    uint32_t hidden, vocab;
    uint32_t max_context; /* what the configuration states; 0: not stated */
    uint64_t weight_bytes;
    uint64_t state_bytes;        /* recurrent state of one sequence, f32, conv windows included */
    uint64_t cache_row_elements; /* latent cache elements per token over all MLA layers */
} ebro_model_info;
EBRO_API void ebro_model_get_info(const ebro_model *model, ebro_model_info *out);

/* What a layer is made of. Set `size` before the call. */
typedef struct ebro_layer_info {
    size_t size;
    int32_t is_kda;            /* else MLA */
    int32_t is_moe;            /* else a dense feed-forward network */
    uint32_t n_experts, top_k; /* routed experts, and how many of them a token uses; 0: no MoE */
} ebro_layer_info;
/* Layers count from 0. INVALID beyond the last one. */
EBRO_API int32_t ebro_model_get_layer(const ebro_model *model, uint32_t layer, ebro_layer_info *out,
                                      ebro_error *err);

typedef enum ebro_part {
    EBRO_PART_EMBEDDING = 0,
    EBRO_PART_KDA = 1,
    EBRO_PART_MLA = 2,
    EBRO_PART_DENSE_FFN = 3,
    EBRO_PART_ROUTER = 4,
    EBRO_PART_EXPERTS = 5, /* routed */
    EBRO_PART_SHARED_EXPERTS = 6,
    EBRO_PART_LATENT = 7, /* LatentMoE's way into the experts' width and back */
    EBRO_PART_NORMS = 8,  /* of layers and output, Attention Residuals included */
    EBRO_PART_HEAD = 9    /* none where it is the embedding */
} ebro_part;

/* A tensor that the model uses. Names belong to the model. */
typedef struct ebro_tensor_info {
    size_t size;
    const char *name; /* in its file */
    const char *file;
    int32_t dtype; /* ebro_dtype, as stored: packed MXFP4 codes and their scales are U8 */
    int32_t part;  /* ebro_part */
    int32_t layer; /* -1: of no layer */
    uint32_t n_dims;
    uint64_t shape[8];
    uint64_t bytes;
    uint64_t n_params; /* weights that it holds; 0: it scales another tensor's codes */
} ebro_tensor_info;
/* Calls `each` for every tensor that the model uses, once, layer by layer. *info is valid during
 * the call alone. A result other than 0 ends the walk and is returned, else 0. (INVALID for NULL.)
 */
EBRO_API int32_t ebro_model_each_tensor(const ebro_model *model,
                                        int32_t (*each)(void *user, const ebro_tensor_info *info),
                                        void *user);

/* Text -> token ids. `special` != 0 reads special-token names in the text as control tokens; for
 * anything that a user typed it must be 0. Sets *n to the number of ids; writes at most
 * `capacity`, and returns INVALID (with *n set) when that is too few. */
EBRO_API int32_t ebro_tokenize(const ebro_model *model, const char *text, size_t bytes,
                               int32_t special, int32_t *ids, size_t capacity, size_t *n,
                               ebro_error *err);
/* Bytes of one token, not NUL-terminated, owned by the model; NULL for an unknown id. Special
 * tokens give their names with *is_special = 1 (is_special may be NULL). */
EBRO_API const char *ebro_token_bytes(const ebro_model *model, int32_t id, size_t *bytes,
                                      int32_t *is_special);
/* -1 where the model has none. */
EBRO_API int32_t ebro_token_bos(const ebro_model *model);
/* 1 where generation must stop after this token. */
EBRO_API int32_t ebro_token_is_stop(const ebro_model *model, int32_t id);

typedef struct ebro_chat_message {
    const char *role; /* "system", "user", "assistant" */
    const char *content;
    /* Assistant messages of models with a think channel; NULL or white space alone: none. */
    const char *reasoning;
} ebro_chat_message;

typedef struct ebro_chat_options {
    size_t size;
    int32_t thinking;            /* K3: open the think channel */
    const char *thinking_effort; /* K3, with thinking: "low" ...; NULL: not stated */
    int32_t no_generation_prompt;
} ebro_chat_options;

/* Renders a conversation with the model's own chat format straight into token ids: control tokens
 * come from the format alone, message text is ordinary text. Capacity rule as ebro_tokenize. */
EBRO_API int32_t ebro_chat_tokenize(const ebro_model *model, const ebro_chat_message *messages,
                                    size_t n_messages, const ebro_chat_options *options,
                                    int32_t *ids, size_t capacity, size_t *n, ebro_error *err);
/* The same for a conversation with tools, in OpenAI's form as JSON: an object with "messages" and
 * maybe "tools"; its other keys are ignored, so that a whole request will do.
 *   - A message has "role": system, developer (the same), user, assistant or tool; "content": a
 *     string, or an array of parts {"type": "text", "text": ...}, which for an assistant may be
 *     missing or null where there are tool calls; and maybe "name", which goes into the prompt.
 *   - An assistant's may have "reasoning_content" (used as ebro_chat_message.reasoning) and
 *     "tool_calls": [{"id", "type": "function", "function": {"name", "arguments": a string}}].
 *   - A tool's has "tool_call_id". K3 tells results by the order of the calls and by the tools'
 *     names: results are sorted so; where one has an id that no call has, all that follow one
 *     another are taken as they come. Arguments that are no JSON go to K3 as they are.
 *   - Other keys of messages are ignored. "tools" are [{"type": "function", "function": {"name",
 *     ...}}], and all of them goes into the prompt.
 * INVALID names the place of what is wrong ("messages[3].content is an integer; ..."); so do the
 * limits: 64 MiB, 64 levels of nesting, 200,000 values, 1,024 calls in a message, 256 bytes in a
 * name or id. Parts that are not text, and tools that are no functions, are UNSUPPORTED. A key that
 * stands twice in one object is INVALID. */
EBRO_API int32_t ebro_chat_tokenize_json(const ebro_model *model, const char *json, size_t bytes,
                                         const ebro_chat_options *options, int32_t *ids,
                                         size_t capacity, size_t *n, ebro_error *err);

/* ---- replies to a chat -------------------------------------------------------------------- */

/* Takes apart what a model writes after a chat prompt: content, reasoning, calls of tools. Control
 * tokens and the tags between them are never handed out; text that looks like them is text.
 * However a text is cut into tokens, the pieces of a kind (and call) joined are the same.
 *   - Kimi K2 and Kimi Linear: <think> and </think> hold reasoning where the vocabulary has them as
 *     control tokens. In another vocabulary they are text: an instruct model has no such channel.
 *   - Kimi K3: the channels think and response; a K3 reply ends with a stop token, not where its
 *     response is closed, since calls may follow.
 * What a model writes beside its format: text where none belongs is content, but for white space
 * before it, and so is that of unknown channels. A tag or head of a call that is longer than 4,096
 * bytes is text; one that is not complete when the next begins, or at the end, is dropped. Tags
 * that close what is not open mean nothing. A call without a name has an empty one. */
typedef struct ebro_reply ebro_reply;

typedef struct ebro_reply_options {
    size_t size;
    int32_t thinking; /* as in the ebro_chat_options of the prompt */
} ebro_reply_options;

typedef enum ebro_reply_kind {
    EBRO_REPLY_CONTENT = 0,
    EBRO_REPLY_REASONING = 1,
    EBRO_REPLY_TOOL_BEGIN = 2, /* text is the tool's name, all of it */
    /* Joined, the arguments of a call are JSON: K2's as the model wrote them; K3's put together,
     * {"key": "text", "other": 12}. There objects and arrays are as the model wrote them, null for
     * none, and what should be a number, true, false or null and is not, or has more than 64 bytes,
     * is a string. Of a call that the end of the reply cuts off nothing is closed: what is there is
     * the beginning of such JSON. */
    EBRO_REPLY_TOOL_ARGUMENTS = 3,
    EBRO_REPLY_TOOL_END = 4
} ebro_reply_kind;

/* Valid during the call alone. */
typedef struct ebro_reply_piece {
    size_t size;
    int32_t kind;  /* ebro_reply_kind */
    uint32_t call; /* number of the call, from 0; of calls alone */
    /* Not NUL-terminated. Bytes as they come: a character may be cut between two pieces, which an
     * ebro_text_stream of each kind and call puts together. */
    const char *text;
    size_t bytes;
    /* EBRO_REPLY_TOOL_BEGIN: the call's id as the model wrote it, "functions.NAME:INDEX". Empty for
     * K3, whose calls have none. */
    const char *id;
    size_t id_bytes;
} ebro_reply_piece;

/* Any other result than 0 is returned by the call that called it, which hands out nothing more. */
typedef int32_t (*ebro_reply_each_fn)(void *user, const ebro_reply_piece *piece);

/* options may be NULL. Belongs to one thread at a time; destroy it before the model. Its memory
 * does not grow. */
EBRO_API int32_t ebro_reply_create(const ebro_model *model, const ebro_reply_options *options,
                                   ebro_reply **out, ebro_error *err);
EBRO_API void ebro_reply_destroy(ebro_reply **reply);
/* Takes one token, stop tokens too, and calls `each` for what is known now, which may be nothing.
 * INVALID for an unknown id, and after ebro_reply_finish; nothing has changed then. */
EBRO_API int32_t ebro_reply_push(ebro_reply *reply, int32_t id, ebro_reply_each_fn each, void *user,
                                 ebro_error *err);
/* Nothing more comes: ends a call that is open. Once; again it does nothing. */
EBRO_API int32_t ebro_reply_finish(ebro_reply *reply, ebro_reply_each_fn each, void *user,
                                   ebro_error *err);

/* ---- engine ----------------------------------------------------------------------------- */

typedef enum ebro_dtype {
    EBRO_F32 = 0,
    EBRO_F16 = 1,
    EBRO_BF16 = 2,
    EBRO_MXFP4 = 3, /* two e2m1 codes a byte, low nibble first; one e8m0 scale per 32 columns */
    EBRO_U8 = 4,
    EBRO_I32 = 5,
    EBRO_I64 = 6,
    EBRO_F64 = 7
} ebro_dtype;

typedef enum ebro_mla_form {
    EBRO_MLA_AUTO = 0,
    EBRO_MLA_EXPANDED = 1,
    EBRO_MLA_ABSORBED = 2
} ebro_mla_form;

/* Which snapshots of recurrent states are kept for later prompts. A KDA state is overwritten as
 * text goes on: an earlier prompt can only be gone on from where one was taken. */
enum {
    EBRO_KEEP_PROMPT_END = 1 << 0, /* at the end of each prompt, before its last token */
    EBRO_KEEP_TURN_END = 1 << 1,   /* where a sequence ends, and where a prompt is appended to it */
    EBRO_KEEP_INTERVAL = 1 << 2,   /* every keep_interval tokens */
    EBRO_KEEP_JUNCTION = 1 << 3,   /* where a prompt leaves one that was seen before */
    EBRO_KEEP_NONE = 1 << 30       /* nothing is kept and nothing reused, ebro_seq_keep excepted */
};

typedef enum ebro_evict {
    EBRO_EVICT_LRU = 0, /* what was not used for longest goes first */
    EBRO_EVICT_COST = 1 /* what saves the least recomputation for its bytes goes first (see
                           token_cost of ebro_engine_options) */
} ebro_evict;

typedef struct ebro_engine_options {
    size_t size;
    uint32_t n_ctx;   /* tokens that a sequence can hold; 0: the model's maximum, at most 8192 */
    uint32_t n_chunk; /* tokens per step, one of each decoding sequence first; 0: 512 */
    /* Latent cache: EBRO_F32, EBRO_F16 or EBRO_BF16; -1: the device's default (f32 on the CPU,
     * bf16 elsewhere). */
    int32_t cache_dtype;
    int32_t prefill_form; /* ebro_mla_form for steps with several rows per sequence */
    /* Called while the engine opens, and in every step: before it, and before each layer of a step
     * of several tokens, with the share of the sequence's tokens that are evaluated. A cancelled
     * step leaves the sequence as it was before that step; another ebro_engine_step tries again. An
     * engine with a callback holds two recurrent states for that. NULL: none. */
    ebro_progress_fn progress;
    void *progress_user;
    /* Not 0: a sequence gives identical bytes for any split of its tokens and any n_chunk: KDA by
     * the step recurrence, MLA absorbed (prefill_form EXPANDED is INVALID). Slower for prompts.
     * UNSUPPORTED on a device that cannot promise it. */
    int32_t strict;
    /* Not 0: sequences keep which experts their tokens chose, for ebro_seq_experts and
     * ebro_seq_force_experts. Takes 12 bytes of host memory per token of context, MoE layer and
     * chosen expert. Needs max_seqs 1, and EBRO_KEEP_NONE or 0 in keep: nothing is reused. */
    int32_t expert_choices;
    uint32_t max_seqs; /* sequences at once, 1 to 1024; 0: 1 */
    /* One budget for all latent pages and recurrent states, of live sequences and of what is kept,
     * never exceeded. Taken in parts, as they are needed. 0: what max_seqs full contexts take, once
     * more for kept pages, and eight kept states. Less than the live sequences need is allowed:
     * those that do not fit are refused. */
    uint64_t memory_bytes;
    int32_t keep;           /* EBRO_KEEP_*; 0: all four */
    uint32_t keep_interval; /* tokens; 0: 4096 */
    int32_t evict;          /* ebro_evict */
    int32_t reserved;       /* 0 */
    /* Memory of the host for copies of snapshots that memory_bytes has no room for, each with its
     * pages: a second budget, never exceeded. They come back when a prompt needs them. 0: none are
     * made. Of use where the device has memory of its own. */
    uint64_t host_bytes;
    /* What evaluating a prompt token after t others costs, for EBRO_EVICT_COST: token_cost +
     * depth_cost * t, in any unit, for the proportion alone counts. token_cost 0 (and depth_cost
     * 0): learned from the time that steps take; which snapshots go then depends on it. */
    double token_cost, depth_cost;
} ebro_engine_options;

/* What an engine takes, by use, in bytes. Set `size` before the call. */
typedef struct ebro_estimate {
    size_t size;
    uint32_t n_ctx, n_chunk; /* as the engine would have them */
    int32_t cache_dtype;
    uint32_t n_states;          /* recurrent states that are held at once */
    uint64_t weights_in_place;  /* used where they lie in the mapped files */
    uint64_t weights_copied;    /* to the device, expert tables included */
    uint64_t state_bytes;       /* recurrent state of KDA, of all n_states */
    uint64_t window_bytes;      /* its convolution windows, of all n_states */
    uint64_t cache_token_bytes; /* latent cache of one token */
    uint64_t cache_bytes;       /* of max_seqs times n_ctx tokens */
    uint64_t workspace_bytes;   /* activations and scratch of a step of n_chunk tokens */
    uint64_t other_bytes;       /* tables of a step, one row of logits, the sampled token */
    uint64_t total_bytes;       /* all of it, mapped weights included */
    uint64_t rounding_bytes;    /* lost to whole blocks, in pages and states of live sequences */
    uint64_t kept_bytes;        /* what the budget leaves for snapshots and their pages */
    uint64_t memory_bytes;      /* the budget: states, windows, cache, rounding, kept */
    uint64_t block_bytes;
} ebro_estimate;
/* What ebro_engine_open with the same arguments and a sequence would take of memory that the device
 * works on, without taking it: sampling and host-side lists (a few bytes a token) are not counted.
 * Fails where the options would be refused. */
EBRO_API int32_t ebro_model_estimate(ebro_model *model, ebro_device *device,
                                     const ebro_engine_options *options, ebro_estimate *out,
                                     ebro_error *err);

/* options may be NULL: all defaults, the device's cache dtype. Holds model and device: close it
 * before them. */
EBRO_API int32_t ebro_engine_open(ebro_model *model, ebro_device *device,
                                  const ebro_engine_options *options, ebro_engine **out,
                                  ebro_error *err);
/* Also destroys its sequences: pointers to them must not be used, nor destroyed, afterwards. */
EBRO_API void ebro_engine_close(ebro_engine **engine);

/* INVALID beyond max_seqs. */
EBRO_API int32_t ebro_seq_create(ebro_engine *engine, ebro_seq **out, ebro_error *err);
/* Its last state is kept where EBRO_KEEP_TURN_END is on. */
EBRO_API void ebro_seq_destroy(ebro_seq **seq);
/* Tokens evaluated so far, and appended but not yet evaluated. */
EBRO_API uint32_t ebro_seq_length(const ebro_seq *seq);
EBRO_API uint32_t ebro_seq_pending(const ebro_seq *seq);

/* Queues tokens. `n_logits` asks for the logits of the last n_logits tokens of this call (0: none
 * but the very last). A context that would overflow is INVALID, names both lengths and changes
 * nothing. The first append of a sequence is looked up among the prompts that were seen before:
 * what a kept snapshot covers, and whose logits are not asked for, counts as evaluated at once (see
 * ebro_seq_get_reuse). NOMEM_DEVICE, naming needed and allowed bytes, when memory_bytes has no room
 * for what all sequences hold and have queued; nothing has changed then. So there is room for all
 * that is queued. */
EBRO_API int32_t ebro_seq_append(ebro_seq *seq, const int32_t *ids, size_t n, uint32_t n_logits,
                                 ebro_error *err);
/* Evaluates one step: at most n_chunk queued tokens, of all sequences together: first one for each
 * sequence that has one left, then more of the others in turn. Nothing queued: does nothing;
 * INVALID where only sequences that failed have tokens queued. A sequence for whose second state
 * memory is short waits while others go on, and comes first in the next step.
 * EBRO_CANCELLED, EBRO_NOMEM_DEVICE and EBRO_NOMEM_HOST leave all sequences as before the step, to
 * be tried again. Of a step that a device could not finish for want of memory, and that changed
 * states in place (single tokens, or an engine without a progress callback), tokens since the
 * nearest snapshot are queued again. After any other error the sequence that it names (the first of
 * several) is unusable and must be destroyed: ebro_seq_status tells which ones; the others have
 * gone on. So it is where a device that is short of memory does not even finish what it had begun,
 * or where memory_bytes has no room to evaluate those tokens again. */
EBRO_API int32_t ebro_engine_step(ebro_engine *engine, ebro_error *err);
/* From now on a step takes at most n_tokens queued tokens beyond the one of each sequence that has
 * one left: a short step lets those go on soon. 0, as in the beginning, or more than n_chunk has
 * room for: as many as that. What is computed does not depend on it beyond what chunks do. */
EBRO_API void ebro_engine_limit_prompts(ebro_engine *engine, uint32_t n_tokens);
/* EBRO_OK, or the status of the step that made the sequence unusable. */
EBRO_API int32_t ebro_seq_status(const ebro_seq *seq);

/* A second sequence that goes on from the same tokens, sharing memory until they differ. Logits are
 * not taken along: append before asking for them. NOMEM_DEVICE as ebro_seq_append, where tokens are
 * queued. */
EBRO_API int32_t ebro_seq_fork(ebro_seq *seq, ebro_seq **out, ebro_error *err);
/* Cuts the sequence down to its first n_tokens tokens, pending ones included. Where no snapshot was
 * kept at that point, the tokens since the nearest one before it are queued again: NOMEM_DEVICE as
 * ebro_seq_append. There are no logits until the next append or step. */
EBRO_API int32_t ebro_seq_rewind(ebro_seq *seq, uint32_t n_tokens, ebro_error *err);
/* Keeps a snapshot after n_tokens tokens, for this sequence to rewind to and for later ones to go
 * on from: at once where so many are evaluated, else as soon as they are. INVALID for a point that
 * is past. Kept as long as memory allows, like any other. */
EBRO_API int32_t ebro_seq_keep(ebro_seq *seq, uint32_t n_tokens, ebro_error *err);

typedef struct ebro_reuse {
    size_t size;
    uint32_t n_prompt;  /* tokens of the sequence's first append */
    uint32_t n_matched; /* of them, leading ones that were seen before */
    uint32_t n_reused;  /* of those, ones that were not evaluated again */
    int32_t miss;       /* ebro_miss: why not more */
    const char *reason; /* the same as a text; constant */
} ebro_reuse;
typedef enum ebro_miss {
    EBRO_MISS_NONE = 0,        /* all that could be reused was */
    EBRO_MISS_NEW = 1,         /* no earlier prompt began like this one */
    EBRO_MISS_OFF = 2,         /* nothing is kept, by option */
    EBRO_MISS_NO_SNAPSHOT = 3, /* seen before, but no snapshot was taken on the way */
    EBRO_MISS_EVICTED = 4,     /* a nearer snapshot was given up for memory */
    EBRO_MISS_EARLIER = 5,     /* the nearest snapshot lies before the end of what is shared */
    EBRO_N_MISSES = 6
} ebro_miss;
/* Set `size` before the call. */
EBRO_API void ebro_seq_get_reuse(const ebro_seq *seq, ebro_reuse *out);

/* Where memory is, and what reuse did since the engine was opened. Set `size` before the call. */
typedef struct ebro_memory {
    size_t size;
    uint64_t budget_bytes, taken_bytes;         /* allowed; taken from the device so far */
    uint64_t live_page_bytes, live_state_bytes; /* held by sequences */
    uint64_t kept_page_bytes, kept_state_bytes; /* held for later ones alone */
    uint64_t peak_bytes;                        /* most that was held at once */
    uint32_t n_seqs, n_snapshots;
    uint64_t prompts, prompt_tokens, matched_tokens, reused_tokens;
    uint64_t evaluated_tokens;
    uint64_t snapshots_kept, snapshots_refused, evictions, copied_pages;
    uint64_t misses[EBRO_N_MISSES];  /* prompts by ebro_miss */
    uint64_t host_bytes;             /* held in copies on the host */
    uint64_t host_saves, host_loads; /* snapshots that went there, and came back */
    double token_cost, depth_cost;   /* as given to the engine, or as learned so far: seconds */
    uint64_t host_budget_bytes;      /* allowed for copies on the host; 0: none are made */
} ebro_memory;
EBRO_API void ebro_engine_get_memory(const ebro_engine *engine, ebro_memory *out);
/* Gives up everything that is kept. Live sequences are not touched. */
EBRO_API void ebro_engine_forget(ebro_engine *engine);

/* The sequence's tokens, pending ones included: [*n], owned by it, valid until it changes. NULL for
 * an empty one. */
EBRO_API const int32_t *ebro_seq_tokens(const ebro_seq *seq, uint32_t *n);

/* ---- saving and moving sequences -------------------------------------------------------- */

/* A sequence as bytes: its tokens, and what the model remembers of those that are evaluated. The
 * bytes are the same for every device, block size and machine; runtime/mem/FORMAT.md describes
 * them. Any engine on the same model (same sizes, weights and tokenizer) goes on from them. */

/* Takes `bytes` bytes. Any other result than 0 ends the export with EBRO_IO. */
typedef int32_t (*ebro_write_fn)(void *user, const void *data, size_t bytes);
/* Gives up to `bytes` bytes and returns how many; 0 at the end of the stream, below 0 when it
 * failed. */
typedef int64_t (*ebro_read_fn)(void *user, void *data, size_t bytes);

typedef struct ebro_export_options {
    size_t size;
    /* Bytes of the application's own, for whoever imports the sequence (at most 256 MiB). */
    const void *application;
    size_t application_bytes;
} ebro_export_options;

/* What went over, in bytes. Set `size` before the call. */
typedef struct ebro_transfer {
    size_t size;
    uint64_t header_bytes; /* header, checksums and end mark */
    uint64_t identity_bytes, token_bytes;
    uint64_t state_bytes;  /* KDA states */
    uint64_t window_bytes; /* their convolution windows */
    uint64_t row_bytes;    /* latent cache */
    uint64_t application_bytes;
    uint64_t total_bytes;
    uint32_t n_tokens;    /* held, pending ones included */
    uint32_t n_evaluated; /* of them: no engine has to evaluate them again */
    int32_t cache_dtype;  /* of the rows in the stream */
    int32_t engine_dtype; /* of the engine's cache */
    int32_t converted;    /* 1: an import had to convert, since these differ */
} ebro_transfer;

/* Writes the sequence as a stream, part after part, in pieces of up to 4 MiB. Pending tokens stay
 * pending. options and transfer may be NULL. The sequence is not changed. */
EBRO_API int32_t ebro_seq_export(const ebro_seq *seq, ebro_write_fn write, void *user,
                                 const ebro_export_options *options, ebro_transfer *transfer,
                                 ebro_error *err);
/* Makes a sequence from such a stream and reads nothing beyond its end. All of it is checked: a
 * part that is missing, short, doubled or damaged is FORMAT and named; another model and an unknown
 * version or layout are UNSUPPORTED; no room beside the live sequences NOMEM_DEVICE with needed and
 * allowed bytes; nothing has changed then, but that taken_bytes and peak_bytes of ebro_memory may
 * have grown. Where enough memory is free the parts go straight there; else into host memory, and
 * what is kept is given up once all of it is known to be good. A cache of another dtype than the
 * engine's is converted: the log says so (WARN), and *transfer. Where the engine keeps snapshots,
 * one is kept of the sequence's last evaluated token, for later prompts that begin alike.
 * ebro_seq_get_reuse then counts the sequence's tokens as its prompt. There are no logits until the
 * next append or step. INVALID for an engine with expert_choices. transfer may be NULL. */
EBRO_API int32_t ebro_seq_import(ebro_engine *engine, ebro_read_fn read, void *user, ebro_seq **out,
                                 ebro_transfer *transfer, ebro_error *err);
/* The same bytes in a file. It is written under another name in the same folder
 * (".ebro-save-PID-N"), brought to disk, and renamed: whatever happens, PATH is the old file or the
 * new one. What a process that was killed has left there under such a name is removed, which a lock
 * (flock) tells from what is being written. A link stays a link. A process that limits the size of
 * its files must ignore SIGXFSZ. */
EBRO_API int32_t ebro_seq_save(const ebro_seq *seq, const char *path,
                               const ebro_export_options *options, ebro_transfer *transfer,
                               ebro_error *err);
/* Also FORMAT where the file has more bytes than the stream; IO where it cannot be read. */
EBRO_API int32_t ebro_seq_load(ebro_engine *engine, const char *path, ebro_seq **out,
                               ebro_transfer *transfer, ebro_error *err);
/* The application bytes that the sequence was imported with, owned by it; NULL and *bytes 0 where
 * there are none. */
EBRO_API const void *ebro_seq_application(const ebro_seq *seq, size_t *bytes);

/* ---- logits ----------------------------------------------------------------------------- */

/* Logits kept since the last append, oldest first: f32 [*rows, vocab], owned by the sequence, valid
 * until the next append, step or destroy. INVALID while tokens are pending. */
EBRO_API int32_t ebro_seq_logits(const ebro_seq *seq, const float **logits, uint32_t *rows,
                                 ebro_error *err);

/* The experts that the tokens evaluated so far use in one MoE layer (from 0, over all layers): ids
 * and weights, [*n_tokens][top_k], best first, owned by the sequence, valid until the next step or
 * destroy. INVALID without expert_choices, and for a layer without routed experts. */
EBRO_API int32_t ebro_seq_experts(const ebro_seq *seq, uint32_t layer, const int32_t **ids,
                                  const float **weights, uint32_t *n_tokens, ebro_error *err);
/* Tokens at positions 0 to n_tokens - 1 are to use these experts in the layer, whatever the router
 * would choose; their weights are still the model's. ids [n_tokens][top_k] are copied, and take the
 * place of what was given before; n_tokens 0: none. Tokens evaluated already, and later ones, are
 * not touched. INVALID as ebro_seq_experts, and for ids that are no experts or come twice. */
EBRO_API int32_t ebro_seq_force_experts(ebro_seq *seq, uint32_t layer, const int32_t *ids,
                                        uint32_t n_tokens, ebro_error *err);

/* Added to one logit. */
typedef struct ebro_logit_bias {
    int32_t id;
    float bias; /* -1e30 to 1e30; -1e9 forbids a token */
} ebro_logit_bias;

/* Logits are first adjusted: a token that is among the last penalty_last_n ones of the sequence,
 * `count` times, has its logit divided by repeat_penalty when positive, else multiplied by it, then
 * lowered by presence_penalty + frequency_penalty * count; then biases are added. */
typedef struct ebro_sampling {
    size_t size;
    float temperature;                         /* 0: greedy (ties: lower id) */
    uint32_t top_k;                            /* 0: off */
    float top_p;                               /* 0 or >= 1: off */
    float min_p;                               /* 0: off */
    uint64_t seed;                             /* the draw depends on seed and position alone */
    float repeat_penalty;                      /* 0.01 to 100; 0 or 1: off */
    float presence_penalty, frequency_penalty; /* -100 to 100; 0: off */
    uint32_t penalty_last_n; /* prompt included; 0: 64; more than there are: all */
    /* Biases of one id add up. The list is read before the call returns. */
    const ebro_logit_bias *biases;
    uint32_t n_biases;
    uint32_t reserved; /* 0 */
    /* The tokens that may be chosen at all, whatever their biases: bit id % 32 of word id / 32, for
     * the whole vocabulary. NULL: all. INVALID where none may. Read before the call returns. */
    const uint32_t *allowed;
} ebro_sampling;

/* Chooses a token from the last logits on the device. Does not append it. The logits that
 * ebro_seq_logits gives stay as they are. */
EBRO_API int32_t ebro_seq_sample(ebro_seq *seq, const ebro_sampling *sampling, int32_t *id,
                                 ebro_error *err);

/* ---- text of generated tokens ----------------------------------------------------------- */

/* Turns the bytes of tokens, as they come, into text that can be shown: never part of a character
 * that the next token completes, and nothing from the first stop string on. What may be the start
 * of a stop string is held back until it is known not to be one. However the bytes are cut, the
 * pieces joined are the same. Belongs to one thread at a time; destroy it before the runtime. */
typedef struct ebro_text_stream ebro_text_stream;

/* n_stops may be 0. The strings are copied; an empty one is INVALID. */
EBRO_API int32_t ebro_text_stream_create(ebro_runtime *runtime, const char *const *stops,
                                         size_t n_stops, ebro_text_stream **out, ebro_error *err);
EBRO_API void ebro_text_stream_destroy(ebro_text_stream **stream);
/* Takes `n` bytes. *text (not NUL-terminated, valid until the next call on the stream) is what can
 * be shown now, possibly nothing. *stopped becomes 1 once a stop string is complete; *text then
 * ends before it, and later bytes are ignored. Of stop strings that end at the same byte the
 * longest counts. After an error (out of memory) the stream is as before the call, but for *text,
 * which is lost if it was not used yet. */
EBRO_API int32_t ebro_text_stream_push(ebro_text_stream *stream, const char *bytes, size_t n,
                                       const char **text, size_t *text_bytes, int32_t *stopped,
                                       ebro_error *err);
/* Nothing more comes: hands out what is held back, once. */
EBRO_API int32_t ebro_text_stream_finish(ebro_text_stream *stream, const char **text,
                                         size_t *text_bytes, ebro_error *err);

#ifdef __cplusplus
}
#endif
#endif
