// The C interface of moeflux: open a model, evaluate tokens, take logits or text, save and rewind;
// answer requests of OpenAI's clients. In one file, as a program that binds it takes it in.
//
// Objects. A model (mf_model) owns the weights, the device and the expert cache; a sequence
// (mf_sequence) is one text being evaluated on a model, with its sampler. A process may hold any
// number of both. A sequence keeps what it needs of its model alive: the two may be freed in
// either order.
//
// Errors. A function that can fail returns an mf_code, MF_OK or another, and fills `error` unless
// that is null. The mf_error is the caller's own memory, so any number of threads may use any
// number of them. Null handles, null pointers where memory is needed and buffers that are too
// small are errors, never crashes. A failed call changes nothing unless its comment says so.
//
// Threads. Functions of different models may run at the same time. One call of a model and its
// sequences may compute at a time. A call that comes while another computes waits for its turn, in
// the order in which calls came. With mf_model_options.turn_timeout_ms it waits that long and then
// fails with MF_ERROR_BUSY, having changed nothing. A call from a callback of the running call
// never waits: it would wait for itself. So would a callback that waits for another thread's call
// of the same model; do not. Functions marked "any thread" compute nothing and take no turn: they
// may be called at any time, from callbacks too.
//
// Freeing. A model may be closed at any time: its sequences and the calls that run or wait go on.
// mf_sequence_free() cancels the calls of the sequence that run or wait, on whatever thread, and
// does not wait for them: what they use is freed when they have ended. No call may begin with a
// handle that has been freed, or be about to: that a call has begun is certain in its callbacks.
//
// Growth. Every struct begins with its size, which the caller sets (MF_OPTIONS does). A library
// that knows more fields takes those that are missing as zero, which always means the default;
// one that knows fewer refuses a field it does not know, unless it is zero.
//
// Results depend on the tokens, the model, the device, the precision and the types of keys and
// values; never on threads, cache sizes, chunks or I/O.
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define MF_API __attribute__((visibility("default")))
#else
#define MF_API
#endif

#ifdef __cplusplus
#define MF_NOEXCEPT noexcept
extern "C" {
#else
#define MF_NOEXCEPT
#endif

#define MF_VERSION_MAJOR 0
#define MF_VERSION_MINOR 2
#define MF_VERSION_PATCH 0
#define MF_VERSION (MF_VERSION_MAJOR * 10000 + MF_VERSION_MINOR * 100 + MF_VERSION_PATCH)

/// The library's MF_VERSION: compare it with the header's. Any thread.
MF_API uint32_t mf_version(void) MF_NOEXCEPT;
/// "0.2.0". Any thread.
MF_API const char* mf_version_string(void) MF_NOEXCEPT;

// --- Errors ---

typedef int32_t mf_code;
enum {
  MF_OK = 0,
  MF_ERROR_INVALID_ARGUMENT = 1,     // an argument, option or token that cannot be right
  MF_ERROR_NOT_FOUND = 2,            // a file, tensor, device or checkpoint that is not there
  MF_ERROR_CORRUPTION = 3,           // bytes that contradict their own format
  MF_ERROR_UNSUPPORTED = 4,          // well-formed, but this build or device cannot do it
  MF_ERROR_RESOURCE_EXHAUSTED = 5,   // memory, context or cache too small
  MF_ERROR_IO = 6,                   // the operating system failed a read or a write
  MF_ERROR_CANCELLED = 7,            // stopped by a callback or mf_sequence_cancel()
  MF_ERROR_FAILED_PRECONDITION = 8,  // the object is in a state that forbids the call
  MF_ERROR_BUFFER_TOO_SMALL = 9,     // the size needed was stored
  MF_ERROR_BUSY = 10                 // the wait for other calls of the same model timed out
};

/// "buffer too small"; "unknown" for a number that is not an mf_code. Any thread.
MF_API const char* mf_code_name(mf_code code) MF_NOEXCEPT;

typedef struct mf_error {
  mf_code code;
  char message[1020];  // one line of UTF-8, cut where it is longer; empty when the call succeeded
} mf_error;

// --- Models ---

typedef struct mf_model mf_model;

/// Sets a struct to its defaults: `mf_model_options options = MF_OPTIONS(options);`
#define MF_OPTIONS(variable) \
  { .struct_size = sizeof(variable) }

/// Progress, on the calling thread: `done` of `total`. Returning 0 cancels the call.
typedef int (*mf_progress_fn)(void* user_data, uint64_t done, uint64_t total);

/// Whether to end the call at hand: asked between its steps and, while it waits for its turn, every
/// 50 ms, on its thread. Where this returns 1 the call ends as by mf_sequence_cancel(); others than
/// a sequence's end with MF_ERROR_CANCELLED. Requests of a service do not ask.
typedef int (*mf_abort_fn)(void* abort_data);

/// Called from the thread of the call. `level` is one of MF_LOG_*, more of which may come;
/// `message` is a line of UTF-8 without its end, which lives until it returns.
typedef void (*mf_log_fn)(void* user_data, int32_t level, const char* message);

enum { MF_LOG_WARNING = 1 };
enum { MF_EXPERT_CACHE_MINIMUM = -1 };
enum { MF_WAIT_FOREVER = -1, MF_WAIT_NONE = -2 };

typedef struct mf_model_options {
  size_t struct_size;
  const char* device;     // "auto" (null), "cpu", "cuda:0" or another number, "metal", "reference",
                          // "emulator"
  const char* cpu_isa;    // null: the best; "portable": every CPU's bits; or "avx2", "neon", ...
  const char* precision;  // of the CPU: "f32", "int8", "q16", or "auto" (null): the faster of two
  int64_t context_length;              // tokens of a sequence; 0: what memory allows
  int64_t expert_cache_bytes;          // 0: what is free; MF_EXPERT_CACHE_MINIMUM; else bytes
  int32_t threads;                     // that compute; 0: as many as are fastest
  uint64_t prefix_cache_bytes;         // for mf_sequence_keep_prefix; 0: no prefix cache
  const char* prefix_cache_directory;  // keeps prefixes across processes; null: in memory alone
  const char* cache_type_k;  // of keys in memory: "f32", "f16", "q8_0"; null: as the device prefers
  const char* cache_type_v;  // of values; on a GPU the same
  int64_t turn_timeout_ms;   // how long calls wait for their turn, in milliseconds;
                             // 0: MF_WAIT_FOREVER; MF_WAIT_NONE: not at all
  mf_progress_fn on_progress;  // bytes of the weights that stay in memory; or null
  mf_log_fn on_log;            // of mf_model_open() alone: keys of config.json that are not known
                               // and are ignored, in one line, and memory that could not be
                               // allocated; or null
  void* user_data;             // for both
  const char* tuning;  // "prefill-chunk=512,expert-io=direct": what --tune takes, for those who
                       // measure. Keys and values are not stable: those of one version may be
                       // refused by another, with MF_ERROR_INVALID_ARGUMENT. Null: none
  mf_abort_fn should_abort;  // asked for as long as the model or a sequence of it lives; or null
  void* abort_data;          // for it
} mf_model_options;

/// Opens a GGUF file, any part of a split one, or a folder: with config.json, *.safetensors and,
/// for functions of text, tokenizer.json or tiktoken.model; or with one GGUF model. `options` may
/// be null. *model is the caller's, to mf_model_close(). Any thread.
MF_API mf_code mf_model_open(const char* path, const mf_model_options* options, mf_model** model,
                             mf_error* error) MF_NOEXCEPT;

/// Null is ignored. Memory is freed with the last sequence. Any thread.
MF_API void mf_model_close(mf_model* model) MF_NOEXCEPT;

typedef struct mf_model_info {
  size_t struct_size;
  int64_t vocab_size;      // floats in a row of logits
  int64_t context_length;  // tokens that fit a sequence
  int64_t num_layers;
  int64_t tokenizer_vocab_size;  // 0: the folder has no tokenizer
  const char* model_type;        // these three live as long as the model
  const char* device;            // "cpu (avx512, 2 threads)"
  const char* expert_io;         // what "auto" became
} mf_model_info;

/// Any thread.
MF_API mf_code mf_model_get_info(const mf_model* model, mf_model_info* info,
                                 mf_error* error) MF_NOEXCEPT;

typedef struct mf_metrics {
  size_t struct_size;
  uint64_t dense_bytes;           // weights that stay in memory
  uint64_t experts_bytes;         // all routed experts, were they in memory
  uint64_t expert_cache_bytes;    // the limit of their cache
  uint64_t sequence_bytes;        // state of one sequence at full context
  uint64_t cold_bytes_per_token;  // read per decoded token when nothing is cached
  uint64_t expert_hits;           // these count from mf_model_open() on
  uint64_t expert_misses;
  uint64_t expert_bytes_read;
  uint64_t expert_evictions;
  uint64_t expert_stall_us;  // time that compute waited for reads
  uint64_t evaluated_tokens;
  uint64_t evaluate_us;    // in calls that evaluated tokens, callbacks left out
  uint64_t waiting_calls;  // that wait for their turn at this moment
  uint64_t near_hits;      // experts of decoded tokens found in GPU memory,
  uint64_t far_hits;       // and in host memory, read by the GPU
  uint64_t promotions;     // experts copied from host memory to GPU memory
  uint64_t bus_bytes;      // over the bus for all of these, and for prompts
  uint64_t helped_steps;   // in which the CPU computed experts beside a GPU
} mf_metrics;

/// As the last step of any call left them: a running call counts between chunks and after each
/// token. Any thread.
MF_API mf_code mf_model_get_metrics(const mf_model* model, mf_metrics* metrics,
                                    mf_error* error) MF_NOEXCEPT;

/// The tokens that end a text, as generation_config.json and config.json name them. Stores how many
/// there are in *count and as many as fit in tokens[capacity]; MF_ERROR_BUFFER_TOO_SMALL when they
/// do not fit. `tokens` may be null when capacity is 0. Any thread.
MF_API mf_code mf_model_stop_tokens(const mf_model* model, int32_t* tokens, size_t capacity,
                                    size_t* count, mf_error* error) MF_NOEXCEPT;

enum {
  MF_TOKENIZE_ADD_SPECIAL = 1,  // what the tokenizer's template puts around a text, as a BOS
  MF_TOKENIZE_INERT = 2         // text that spells a special token stays text
};
enum { MF_DETOKENIZE_SKIP_SPECIAL = 1 };

/// Tokens of text[bytes], which need not end in a zero. *count and the buffer as in
/// mf_model_stop_tokens(). Any thread.
MF_API mf_code mf_model_tokenize(const mf_model* model, const char* text, size_t bytes,
                                 uint32_t flags, int32_t* tokens, size_t capacity, size_t* count,
                                 mf_error* error) MF_NOEXCEPT;

/// The text of the tokens, well-formed UTF-8 without a zero at the end; *bytes is its length, and
/// the buffer as in mf_model_stop_tokens(). Any thread.
MF_API mf_code mf_model_detokenize(const mf_model* model, const int32_t* tokens, size_t count,
                                   uint32_t flags, char* text, size_t capacity, size_t* bytes,
                                   mf_error* error) MF_NOEXCEPT;

// --- Embeddings ---

typedef struct mf_text {
  const char* text;  // [bytes], which need not end in a zero
  size_t bytes;
} mf_text;

typedef struct mf_embed_options {
  size_t struct_size;
  int64_t dimensions;       // the first numbers of each, normalised again; 0: all
  const char* prompt_name;  // of the prompts in the model's files, put before each text;
                            // null: the default one, if they have one
  const char* pooling;      // "last", "mean", "cls": hidden states that count; null: as the model's
                            // files say, otherwise "last"
} mf_embed_options;

/// Embeddings of texts[count]. Stores how many numbers each has in *dimensions, without texts too,
/// and all of them in embeddings[count, *dimensions]; `capacity` counts floats.
/// MF_ERROR_BUFFER_TOO_SMALL, before anything is evaluated, when they do not fit; `embeddings` may
/// be null when capacity is 0.
/// Steps are common, and the bits of an embedding depend on its text alone. Fails with
/// MF_ERROR_RESOURCE_EXHAUSTED for a text that exceeds the context, and MF_ERROR_UNSUPPORTED for
/// models whose files ask for modules that are not computed here. `options` may be null. The call
/// takes one turn, for which it waits as the model's option says.
MF_API mf_code mf_model_embed(mf_model* model, const mf_text* texts, size_t count,
                              const mf_embed_options* options, float* embeddings, size_t capacity,
                              size_t* dimensions, mf_error* error) MF_NOEXCEPT;

// --- Sampling ---

typedef struct mf_logit_bias {
  int32_t token;
  float bias;  // added to the logit; minus infinity bans the token
} mf_logit_bias;

/// Unlike other structs, zero is a value here: start from mf_model_default_sampler().
typedef struct mf_sampler_options {
  size_t struct_size;
  float temperature;        // divides the logits; 0 or less: the highest logit
  int32_t top_k;            // keeps the k highest; 0 or less: all
  float top_p;              // keeps the fewest whose probabilities reach p; 1 or more: all
  float min_p;              // keeps those of at least min_p times the highest; 0: all
  float repeat_penalty;     // divides positive and multiplies other logits of seen tokens; 1: none
  int32_t repeat_last_n;    // how many tokens count as seen; 0: none, -1: all
  float presence_penalty;   // subtracted from seen tokens once
  float frequency_penalty;  // subtracted from seen tokens for each time
  uint64_t seed;            // same seed, same tokens, on every platform
  const mf_logit_bias* logit_bias;  // [logit_bias_count]; copied
  size_t logit_bias_count;
  float typical_p;        // keeps the fewest, most typical first, with more than p; 1 or more: all
  float top_n_sigma;      // keeps those of the highest less n deviations; 0 or less: all
  float xtc_probability;  // chance that XTC removes top candidates but the last; 0: off
  float xtc_threshold;    // the least probability of such a candidate; above 0.5: off
  float dynatemp_range;   // how far entropy moves the temperature to either side; 0: not
  float dynatemp_exponent;  // of entropy as a share of the largest
  int32_t mirostat;         // 1, 2: that version in place of all steps but bias and temperature
  float mirostat_tau;       // the surprise wanted, in bits
  float mirostat_eta;       // how fast it is learned
  float dry_multiplier;     // subtracted from a token that would repeat n tokens, times
  float dry_base;           // this to the power of n minus the allowed length; below 1: off
  int32_t dry_allowed_length;
  int32_t dry_penalty_last_n;                // how many tokens are searched; 0: none, -1: all
  const char* const* dry_sequence_breakers;  // [count], copied, of 1 to 40 bytes; null: default
  size_t dry_sequence_breakers_count;        // repetitions do not reach across these
  const char* samplers;  // the steps, in order, by llama.cpp's names and semicolons; null: default
} mf_sampler_options;

/// The model's generation_config.json over llama.cpp's defaults. Any thread.
MF_API mf_code mf_model_default_sampler(const mf_model* model, mf_sampler_options* options,
                                        mf_error* error) MF_NOEXCEPT;

// --- Sequences ---

typedef struct mf_sequence mf_sequence;

/// An empty sequence with the model's default sampler; the caller's, to mf_sequence_free(). Takes a
/// turn, for which it waits as the model's option says.
MF_API mf_code mf_sequence_create(mf_model* model, mf_sequence** sequence,
                                  mf_error* error) MF_NOEXCEPT;
/// Null is ignored. Cancels what runs or waits (see "Freeing"). Any thread.
MF_API void mf_sequence_free(mf_sequence* sequence) MF_NOEXCEPT;

/// Stops the calls of this sequence that run or wait for their turn; does not wait until they have
/// ended. A waiting call changes nothing. A running one that evaluates tokens ends after the chunk
/// or token at hand, and keeps what it has evaluated. mf_sequence_eval() ends at its last whole
/// chunk, with MF_ERROR_CANCELLED unless nothing was left to do; mf_sequence_generate() ends as
/// MF_FINISH_CANCELLED, while it waits too. mf_sequence_truncate(), mf_sequence_logits() and
/// mf_sequence_sample() end with MF_ERROR_CANCELLED and leave the sequence as it was, if they have
/// to evaluate tokens again. Other calls run to their end. Calls that begin later are not affected,
/// so without a call it does nothing. Null is ignored. Any thread, but no signal handler.
MF_API void mf_sequence_cancel(mf_sequence* sequence) MF_NOEXCEPT;
/// How long later calls of this sequence wait for their turn, in place of the model's
/// turn_timeout_ms, whose values it takes. A fork begins with that of its origin. Any thread.
MF_API mf_code mf_sequence_set_turn_timeout(mf_sequence* sequence, int64_t timeout_ms,
                                            mf_error* error) MF_NOEXCEPT;

/// The number of evaluated tokens. While a call runs: at its last whole chunk or token. Any
/// thread.
MF_API mf_code mf_sequence_position(const mf_sequence* sequence, int64_t* position,
                                    mf_error* error) MF_NOEXCEPT;
/// The evaluated tokens. *count and the buffer as in mf_model_stop_tokens().
MF_API mf_code mf_sequence_tokens(const mf_sequence* sequence, int32_t* tokens, size_t capacity,
                                  size_t* count, mf_error* error) MF_NOEXCEPT;

/// Receives rows[num_rows, vocab_size], the first row that of the token at `first_position`; they
/// live until it returns. Zero stops the evaluation.
typedef int (*mf_logits_fn)(void* user_data, int64_t first_position, const float* rows,
                            size_t num_rows, size_t vocab_size);

/// The phase of tokens. It decides which experts stay in the cache and are read ahead, never a
/// result. MF_PHASE_AUTO: a single token is decode, several are a prompt.
enum { MF_PHASE_AUTO = 0, MF_PHASE_PROMPT = 1, MF_PHASE_DECODE = 2 };

typedef struct mf_eval_options {
  size_t struct_size;
  int32_t all_positions;       // not 0: logits of every token, otherwise of the last
  float* logits;               // [1 or count, vocab_size], or null
  size_t logits_count;         // floats in `logits`: exactly that many
  mf_logits_fn on_logits;      // or null
  mf_progress_fn on_progress;  // between chunks: tokens of this call; or null
  void* user_data;             // for both
  int32_t phase;               // one of MF_PHASE_*
} mf_eval_options;

/// Appends tokens[count], of which there is at least one. `options` may be null. A call that was
/// cancelled, by a callback too, fails with MF_ERROR_CANCELLED; it and MF_ERROR_RESOURCE_EXHAUSTED
/// leave the sequence at its last whole chunk. After MF_ERROR_IO or MF_ERROR_CORRUPTION the
/// sequence may be broken: calls then fail with MF_ERROR_FAILED_PRECONDITION until it is restored
/// or loaded.
MF_API mf_code mf_sequence_eval(mf_sequence* sequence, const int32_t* tokens, size_t count,
                                const mf_eval_options* options, mf_error* error) MF_NOEXCEPT;

/// The work of mf_model_eval_batch() for one sequence.
typedef struct mf_batch_item {
  size_t struct_size;
  mf_sequence* sequence;  // of the model, each once
  const int32_t* tokens;  // [count], at least one
  size_t count;
  float* logits;        // [vocab_size], of the last token; or null
  size_t logits_count;  // floats in `logits`: vocab_size
  int32_t phase;        // one of MF_PHASE_*
} mf_batch_item;

/// Appends tokens to several sequences, items[count], in common steps, which takes less time than
/// one call for each. Every sequence gets the logits, bit for bit, that it would get alone. All
/// items have one struct_size. The call takes one turn, for which it waits as the model's option
/// says. results[count], unless null, receives how each item ended; the call itself returns the
/// first item's code that is not MF_OK, and its message. An item that cannot be evaluated fails
/// alone, and so does one that mf_sequence_cancel() stops, at its last whole step: the others run.
/// After MF_ERROR_IO or MF_ERROR_CORRUPTION all items that had tokens in the failed step may be
/// broken, as mf_sequence_eval() says. Where the call gets no turn, every item ends as it does.
MF_API mf_code mf_model_eval_batch(mf_model* model, const mf_batch_item* items, size_t count,
                                   mf_error* results, mf_error* error) MF_NOEXCEPT;

/// The logits of the last token into logits[count], count being vocab_size. After
/// mf_sequence_truncate() they are computed anew. MF_ERROR_FAILED_PRECONDITION when it is empty.
MF_API mf_code mf_sequence_logits(mf_sequence* sequence, float* logits, size_t count,
                                  mf_error* error) MF_NOEXCEPT;

/// Replaces the sampler and starts its generator anew; null: the model's default.
MF_API mf_code mf_sequence_set_sampler(mf_sequence* sequence, const mf_sampler_options* options,
                                       mf_error* error) MF_NOEXCEPT;

/// Constraints on generated text; see mf_sequence_set_constraint().
typedef enum mf_constraint_kind {
  MF_CONSTRAINT_NONE = 0,
  MF_CONSTRAINT_JSON_OBJECT = 1, /* any JSON object; the text is ignored */
  MF_CONSTRAINT_JSON_SCHEMA = 2, /* a document of this JSON schema */
  MF_CONSTRAINT_REGEX = 3,       /* a text that this regular expression matches */
  MF_CONSTRAINT_LARK = 4         /* a text of this grammar, in llguidance's Lark; no GBNF */
} mf_constraint_kind;
/// Constrains the tokens sampled from here on, or after the prompt of mf_sequence_generate(), by
/// text[bytes] of a kind. The end-of-text token is allowed where the text may end and nowhere else;
/// a text cut by tokens_max may be incomplete. Goes with checkpoints, forks and snapshots. Fails
/// with MF_ERROR_UNSUPPORTED, with a JSON pointer, for what cannot be enforced, and in a build
/// without Rust 1.87; with MF_ERROR_INVALID_ARGUMENT for a malformed text.
MF_API mf_code mf_sequence_set_constraint(mf_sequence* sequence, int32_t kind, const char* text,
                                          size_t bytes, mf_error* error) MF_NOEXCEPT;
/// Samples the token after the last; does not append it.
MF_API mf_code mf_sequence_sample(mf_sequence* sequence, int32_t* token,
                                  mf_error* error) MF_NOEXCEPT;

/// Receives text[bytes], complete characters in UTF-8 that may be empty, once a token and once at
/// the end. Zero ends the text as MF_FINISH_CANCELLED.
typedef int (*mf_text_fn)(void* user_data, const char* text, size_t bytes);

enum { MF_GENERATE_IGNORE_STOP_TOKENS = 1 };  // never samples the model's stop tokens

typedef struct mf_generate_options {
  size_t struct_size;
  int64_t tokens_max;  // 0: 128; negative: until the text or the context ends
  uint32_t flags;
  const char* const* stop_strings;  // [stop_strings_count] end the text and are not part of it
  size_t stop_strings_count;
  const int32_t* stop_tokens;  // [stop_tokens_count], beside the model's own
  size_t stop_tokens_count;
  mf_text_fn on_text;          // or null
  mf_progress_fn on_progress;  // of the prompt, between chunks; or null
  void* user_data;             // for both
} mf_generate_options;

typedef enum mf_finish_reason {
  MF_FINISH_TOKENS_MAX = 0,
  MF_FINISH_STOP_TOKEN = 1,
  MF_FINISH_STOP_STRING = 2,
  MF_FINISH_CONTEXT_FULL = 3,
  MF_FINISH_CANCELLED = 4
} mf_finish_reason;

typedef struct mf_generate_result {
  size_t struct_size;
  int32_t finish_reason;  // an mf_finish_reason
  int64_t prompt_tokens;
  int64_t generated_tokens;  // without a stop token
  uint64_t prefill_us;
  uint64_t decode_us;
} mf_generate_result;

/// Appends prompt[count] and continues the text; without a prompt it goes on after the last token,
/// so that two calls of n tokens give the text of one of 2n. Sampled tokens are part of the
/// sequence afterwards, except the last one when the context is full. `options` and `result` may be
/// null. A prompt stopped by on_progress or mf_sequence_cancel() is MF_FINISH_CANCELLED. Fails as
/// mf_sequence_eval() does; text already delivered stays.
MF_API mf_code mf_sequence_generate(mf_sequence* sequence, const int32_t* prompt, size_t count,
                                    const mf_generate_options* options, mf_generate_result* result,
                                    mf_error* error) MF_NOEXCEPT;

// --- State ---

/// Remembers the sequence as it is now, sampler included, for mf_sequence_restore(). Costs a copy
/// of the recurrent state; keys and values are shared.
MF_API mf_code mf_sequence_checkpoint(mf_sequence* sequence, uint64_t* checkpoint,
                                      mf_error* error) MF_NOEXCEPT;
/// Back to a checkpoint, which stays. MF_ERROR_NOT_FOUND for one that was dropped or is of another
/// sequence.
MF_API mf_code mf_sequence_restore(mf_sequence* sequence, uint64_t checkpoint,
                                   mf_error* error) MF_NOEXCEPT;
MF_API mf_code mf_sequence_drop(mf_sequence* sequence, uint64_t checkpoint,
                                mf_error* error) MF_NOEXCEPT;

/// Forgets the tokens from `position` on; exact: what cannot be cut is evaluated again from the
/// last checkpoint before it, which takes as long as a prompt of that length and can be cancelled.
/// The sampler's generator and mirostat go on where they were.
MF_API mf_code mf_sequence_truncate(mf_sequence* sequence, int64_t position,
                                    mf_error* error) MF_NOEXCEPT;

/// A sequence of its own that begins as a copy of this one, sampler included; checkpoints are not
/// copied. The caller's, to mf_sequence_free().
MF_API mf_code mf_sequence_fork(const mf_sequence* sequence, mf_sequence** fork,
                                mf_error* error) MF_NOEXCEPT;

typedef struct mf_bytes mf_bytes;
/// Null for null and for none; lives as long as `bytes`, which no other thread may free before the
/// call has returned. Any thread.
MF_API const void* mf_bytes_data(const mf_bytes* bytes) MF_NOEXCEPT;
MF_API size_t mf_bytes_size(const mf_bytes* bytes) MF_NOEXCEPT;
/// Null is ignored. Any thread.
MF_API void mf_bytes_free(mf_bytes* bytes) MF_NOEXCEPT;

/// The sequence with its sampler as bytes, the caller's, to mf_bytes_free().
MF_API mf_code mf_sequence_save(const mf_sequence* sequence, mf_bytes** bytes,
                                mf_error* error) MF_NOEXCEPT;
/// Replaces the sequence by a saved one of the same model. Bytes that are of another model or
/// version, cut or changed are refused and leave the sequence as it was. Its checkpoints stay.
MF_API mf_code mf_sequence_load(mf_sequence* sequence, const void* data, size_t size,
                                mf_error* error) MF_NOEXCEPT;
/// The same with a file, which is replaced as a whole or not at all.
MF_API mf_code mf_sequence_save_file(const mf_sequence* sequence, const char* path,
                                     mf_error* error) MF_NOEXCEPT;
MF_API mf_code mf_sequence_load_file(mf_sequence* sequence, const char* path,
                                     mf_error* error) MF_NOEXCEPT;

/// Starts an empty sequence from the longest cached prefix of tokens[count]; *reused is its length,
/// maybe 0 and always below count: evaluate tokens[*reused, count) next.
MF_API mf_code mf_sequence_reuse_prefix(mf_sequence* sequence, const int32_t* tokens, size_t count,
                                        int64_t* reused, mf_error* error) MF_NOEXCEPT;
/// Caches the sequence's tokens for later ones. Does nothing without prefix_cache_bytes.
MF_API mf_code mf_sequence_keep_prefix(const mf_sequence* sequence, mf_error* error) MF_NOEXCEPT;

// --- Service ---
//
// The request handling of `moeflux serve` without its sockets: for a host that has an HTTP server,
// a queue or a test of its own. Requests name methods and paths of docs/server.md and come with
// bodies of JSON; answers are the bytes that the HTTP server sends. Keys, hosts, origins and the
// sizes of bodies are the host's to check.
//
// A service evaluates on a thread of its own, in turns with other calls of its model. Its functions
// wait for no evaluation but where they say so.

typedef struct mf_service mf_service;

enum { MF_REASONING_NONE = -1 };
enum { MF_QUEUE_NONE = -1 };

typedef struct mf_service_options {
  size_t struct_size;
  const char* model_name;            // the model's name in requests; null: its folder's name
  const char* const* model_aliases;  // [model_aliases_count], further names; "*" is any
  size_t model_aliases_count;
  const char* chat_template;          // Jinja text in place of the model's own, or null
  const mf_sampler_options* sampler;  // of requests that say nothing; null: the model's default
  int64_t reasoning_tokens_max;       // of an answer; 0: no limit; MF_REASONING_NONE
  /// Completions generated at the same time. 0: as many as fit, up to 256, where a GPU holds all of
  /// the model, else 4.
  int32_t active_max;
  int32_t queue_max;  // requests that may wait in line; 0: 64; MF_QUEUE_NONE
} mf_service_options;

/// A service over a model with a tokenizer; where the model's own chat template is missing or
/// broken, chat requests are answered with the reason. A chat_template of `options` that does not
/// compile is MF_ERROR_INVALID_ARGUMENT. States of conversations outlive the process where the
/// model has a prefix_cache_directory. `options` may be null. *service is the caller's, to
/// mf_service_close(), and keeps what it needs of the model. Waits for the model's turn without a
/// limit: never call it from a callback of the model's calls. Any thread.
MF_API mf_code mf_service_open(mf_model* model, const mf_service_options* options,
                               mf_service** service, mf_error* error) MF_NOEXCEPT;

/// Aborts the answers that have not ended, as mf_answer_abort() does. Null is ignored. With the
/// last of its answers to be freed it waits for the step at hand. Any thread.
MF_API void mf_service_close(mf_service* service) MF_NOEXCEPT;

typedef struct mf_header {
  const char* name;
  const char* value;
} mf_header;

/// Called when mf_answer_next() has something to return, or the answer has ended: once, and again
/// when more arrives after a call of mf_answer_next(). Runs on threads of the service and inside
/// calls that submit, abort or close, with locks held: it must not wait, and must not call any
/// function of this header.
typedef void (*mf_ready_fn)(void* user_data);

typedef struct mf_request {
  size_t struct_size;
  const char* method;  // "GET", "POST", ...
  const char* target;  // as in HTTP: "/v1/chat/completions", a query behind '?'
  const char* body;    // [body_size] of JSON, or null
  size_t body_size;
  const mf_header* headers;  // [headers_count]
  size_t headers_count;
  mf_ready_fn on_ready;  // or null, for mf_answer_next() to wait
  void* user_data;       // for it, until mf_answer_free()
} mf_request;

typedef struct mf_answer mf_answer;

/// Begins to answer. A faulty request gets an answer too: MF_OK, and a status of 4xx with OpenAI's
/// error as its body. Templates and tokens are made in the call. *answer is the caller's, to
/// mf_answer_free(). Any thread.
MF_API mf_code mf_service_submit(mf_service* service, const mf_request* request, mf_answer** answer,
                                 mf_error* error) MF_NOEXCEPT;

typedef struct mf_answer_piece {
  size_t struct_size;
  int32_t status;            // of HTTP; 0: the answer has not begun
  int32_t ended;             // not 0: this is the last piece
  const char* bytes;         // [size], may be none; of a stream: whole events
  size_t size;               //
  const char* content_type;  // null before the answer has begun
  const mf_header* headers;  // [headers_count], Content-Type among them
  size_t headers_count;      //
  const char* keep_alive;    // a host whose client waits sends this text whenever nothing else
  int64_t keep_alive_ms;     // was sent for so long, so that no proxy gives up; null: no need
} mf_answer_piece;

/// Takes the bytes of the answer that have arrived. Waits up to `timeout_ms`, or MF_WAIT_FOREVER,
/// while there are none; then the piece has no bytes. Pointers in it live until the next call with
/// this answer or until it is freed. An answer with a mebibyte not yet taken is paused until it is.
/// MF_ERROR_CANCELLED after mf_answer_abort() and mf_service_close(). One thread at a time for an
/// answer.
MF_API mf_code mf_answer_next(mf_answer* answer, int64_t timeout_ms, mf_answer_piece* piece,
                              mf_error* error) MF_NOEXCEPT;
/// Cancels the answer: its waiting completions end at once, running ones after the step at hand,
/// for which this does not wait. Null is ignored. Any thread.
MF_API void mf_answer_abort(mf_answer* answer) MF_NOEXCEPT;
/// Aborts what has not ended. No call of on_ready runs or comes afterwards. Null is ignored. Any
/// thread.
MF_API void mf_answer_free(mf_answer* answer) MF_NOEXCEPT;

enum { MF_SERVICE_READY = 1, MF_SERVICE_DRAINING = 2 };

typedef struct mf_service_health {
  size_t struct_size;
  int32_t state;      // one of MF_SERVICE_*
  int64_t waiting;    // requests in the queue at this moment
  int64_t running;    // completions that have begun
  int64_t parked;     // of these, paused as their answers are not taken
  uint64_t finished;  // these count from mf_service_open() on
  uint64_t cancelled;
  uint64_t failed;
  const char* model_name;  // lives as long as the service
} mf_service_health;

/// Any thread.
MF_API mf_code mf_service_get_health(const mf_service* service, mf_service_health* health,
                                     mf_error* error) MF_NOEXCEPT;
/// The text of GET /metrics, for Prometheus; the caller's, to mf_bytes_free(). Any thread.
MF_API mf_code mf_service_metrics(const mf_service* service, mf_bytes** text,
                                  mf_error* error) MF_NOEXCEPT;
/// Refuses further requests with 503, and returns when all that were submitted have ended and
/// states that are to outlive the process are written: answers have to be taken or aborted
/// meanwhile. Any thread.
MF_API mf_code mf_service_drain(mf_service* service, mf_error* error) MF_NOEXCEPT;

// --- Chat ---
//
// Conversations in the model's chat template, by a service: what POST /v1/chat/completions of
// docs/server.md does, in structs. All strings are UTF-8 and end in a zero.

typedef struct mf_tool_call {
  const char* id;         // which the message of a tool names
  const char* name;       // of the tool
  const char* arguments;  // a JSON object
} mf_tool_call;

typedef struct mf_message {
  size_t struct_size;
  const char* role;                // "system", "user", "assistant", "tool"
  const char* content;             // its text; null: none
  const char* reasoning;           // of the assistant, before its text; null: none
  const mf_tool_call* tool_calls;  // [tool_calls_count], of the assistant
  size_t tool_calls_count;
  const char* tool_call_id;  // of a tool: the call whose result `content` is; else null
} mf_message;

typedef struct mf_tool {
  size_t struct_size;
  const char* name;
  const char* description;  // or null
  const char* parameters;   // a JSON schema of the arguments; null: there are none
} mf_tool;

enum { MF_TOOL_CHOICE_AUTO = 0, MF_TOOL_CHOICE_NONE = 1, MF_TOOL_CHOICE_REQUIRED = 2 };

typedef struct mf_chat_request {
  size_t struct_size;
  const mf_message* messages;  // [messages_count], the oldest first
  size_t messages_count;
  const mf_tool* tools;  // [tools_count], that may be called
  size_t tools_count;
  int32_t tool_choice;                // one of MF_TOOL_CHOICE_*
  int32_t one_tool_call;              // not 0: an answer has at most one call
  const char* schema;                 // a JSON schema that the text has to follow; null: none
  int64_t tokens_max;                 // 0: until the answer or the context ends
  const mf_sampler_options* sampler;  // null: the service's default, with a random seed unless that
                                      // has one
  const char* const* stop_strings;    // [stop_strings_count] end the text and are not part of it
  size_t stop_strings_count;
  mf_ready_fn on_ready;  // or null, for mf_answer_next_chat() to wait
  void* user_data;       // for it, until mf_answer_free()
} mf_chat_request;

/// Begins to answer a conversation; everything of `request` is copied. All messages have one
/// struct_size, and so have all tools. MF_ERROR_INVALID_ARGUMENT for a schema or arguments that are
/// not JSON; what the service refuses is told by mf_answer_next_chat(). *answer is the caller's, to
/// mf_answer_free(), and is read by mf_answer_next_chat() alone. Any thread.
MF_API mf_code mf_service_chat(mf_service* service, const mf_chat_request* request,
                               mf_answer** answer, mf_error* error) MF_NOEXCEPT;

enum { MF_CHAT_STOP = 1, MF_CHAT_LENGTH = 2, MF_CHAT_TOOL_CALLS = 3 };

typedef struct mf_chat_piece {
  size_t struct_size;
  int32_t ended;          // not 0: this is the last piece, and what follows its texts is filled
  int32_t finish_reason;  // one of MF_CHAT_*: it was complete, was cut, or calls tools
  const char* text;       // [text_bytes] since the piece before, maybe none
  size_t text_bytes;
  const char* reasoning;  // [reasoning_bytes] since the piece before, that came before the text
  size_t reasoning_bytes;
  const mf_tool_call* tool_calls;  // [tool_calls_count], for a message of the assistant
  size_t tool_calls_count;
  int64_t prompt_tokens;
  int64_t generated_tokens;
} mf_chat_piece;

/// Takes what has arrived of an answer of mf_service_chat(); waits, pauses and ends as
/// mf_answer_next() does. Pointers in the piece live until the next call with this answer or until
/// it is freed. A request that the service refuses fails here: MF_ERROR_INVALID_ARGUMENT names the
/// field as docs/server.md does, MF_ERROR_RESOURCE_EXHAUSTED says that the queue is full or that
/// the messages exceed the context. One thread at a time for an answer.
MF_API mf_code mf_answer_next_chat(mf_answer* answer, int64_t timeout_ms, mf_chat_piece* piece,
                                   mf_error* error) MF_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif
