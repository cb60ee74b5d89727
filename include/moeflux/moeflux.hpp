// moeflux in C++20, in one file: the objects of moeflux.h with owners, results and lambdas. Header
// only; works with and without exceptions. That header explains the calls, and which threads may
// make them.
//
//     auto model = moeflux::Model::open("models/fable-20m", {.threads = 4});
//     if (!model) return fail(model.error().message);
//     auto prompt = model->tokenize("Once upon a time");
//     auto sequence = model->create_sequence();
//     auto done = sequence->generate(*prompt, {.tokens_max = 40}, [](std::string_view text) {
//       std::cout << text;
//       return true;
//     });
//
// An exception that leaves a callback stops the call and comes out of it.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#if defined(__cpp_exceptions)
#include <exception>
#endif

#include "moeflux/moeflux.h"

// The inline namespace keeps these names apart from those inside a static library.
namespace moeflux {
inline namespace api {

enum class Code : mf_code {
  kInvalidArgument = MF_ERROR_INVALID_ARGUMENT,
  kNotFound = MF_ERROR_NOT_FOUND,
  kCorruption = MF_ERROR_CORRUPTION,
  kUnsupported = MF_ERROR_UNSUPPORTED,
  kResourceExhausted = MF_ERROR_RESOURCE_EXHAUSTED,
  kIo = MF_ERROR_IO,
  kCancelled = MF_ERROR_CANCELLED,
  kFailedPrecondition = MF_ERROR_FAILED_PRECONDITION,
  kBufferTooSmall = MF_ERROR_BUFFER_TOO_SMALL,
  kBusy = MF_ERROR_BUSY
};

struct Error {
  Code code = Code::kInvalidArgument;
  std::string message;
};

/// A value or the reason why there is none. Taking the one that is not there aborts.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: by design
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: by design

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() & { return *checked<0>(&state_); }
  const T& value() const& { return *checked<0>(&state_); }
  T&& value() && { return std::move(*checked<0>(&state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Error& error() const { return *checked<1>(&state_); }

 private:
  template <size_t kIndex, typename State>
  static auto* checked(State* state) {
    auto* found = std::get_if<kIndex>(state);
    if (found == nullptr) std::abort();
    return found;
  }

  std::variant<T, Error> state_;
};

/// Success or an Error.
using Status = Result<std::monostate>;

/// Progress: done, total; false cancels the call.
using Progress = std::function<bool(uint64_t done, uint64_t total)>;
/// One line; see mf_log_fn.
using LogSink = std::function<void(int32_t level, std::string_view message)>;
/// Complete characters, maybe none; false ends the text.
using TextSink = std::function<bool(std::string_view text)>;
/// rows[n, vocab_size], the first that of the token at `first_position`; false stops the call.
using LogitsSink = std::function<bool(int64_t first_position, std::span<const float> rows)>;

/// The fields of mf_model_options; empty strings and zeros are its defaults.
struct ModelOptions {
  std::string device = {};
  std::string cpu_isa = {};
  std::string precision = {};
  int64_t context_length = 0;
  int64_t expert_cache_bytes = 0;
  int32_t threads = 0;
  uint64_t prefix_cache_bytes = 0;
  std::string prefix_cache_directory = {};
  std::string cache_type_k = {};
  std::string cache_type_v = {};
  int64_t turn_timeout_ms = 0;
  std::string tuning = {};             // not stable
  mf_abort_fn should_abort = nullptr;  // must outlive the model and its sequences
  void* abort_data = nullptr;
};

/// A field that is not set is the model's default; see mf_sampler_options.
struct SamplerOptions {
  std::optional<float> temperature = {};
  std::optional<int32_t> top_k = {};
  std::optional<float> top_p = {}, min_p = {};
  std::optional<float> repeat_penalty = {};
  std::optional<int32_t> repeat_last_n = {};
  std::optional<float> presence_penalty = {}, frequency_penalty = {};
  uint64_t seed = 0;
  std::vector<mf_logit_bias> logit_bias = {};
  std::optional<float> typical_p = {}, top_n_sigma = {};
  std::optional<float> xtc_probability = {}, xtc_threshold = {};
  std::optional<float> dynatemp_range = {}, dynatemp_exponent = {};
  std::optional<int32_t> mirostat = {};
  std::optional<float> mirostat_tau = {}, mirostat_eta = {};
  std::optional<float> dry_multiplier = {}, dry_base = {};
  std::optional<int32_t> dry_allowed_length = {}, dry_penalty_last_n = {};
  std::optional<std::vector<std::string>> dry_sequence_breakers = {};
  std::optional<std::string> samplers = {};
};

struct GenerateOptions {
  int64_t tokens_max = 128;  // negative: until the text or the context ends; at least 1 otherwise
  std::vector<std::string> stop_strings = {};
  std::vector<int32_t> stop_tokens = {};
  bool ignore_stop_tokens = false;
  Progress on_progress = {};
};

namespace detail {

struct Free {
  void operator()(mf_model* model) const { mf_model_close(model); }
  void operator()(mf_sequence* sequence) const { mf_sequence_free(sequence); }
  void operator()(mf_bytes* bytes) const { mf_bytes_free(bytes); }
  void operator()(mf_service* service) const { mf_service_close(service); }
  void operator()(mf_answer* answer) const { mf_answer_free(answer); }
};
template <typename T>
using Owner = std::unique_ptr<T, Free>;

/// A struct with its defaults.
template <typename T>
T sized() {
  T value{};
  value.struct_size = sizeof(T);
  return value;
}

inline const char* or_null(const std::string& text) {
  return text.empty() ? nullptr : text.c_str();
}

inline Status to_status(mf_code code, const mf_error& error) {
  if (code == MF_OK) return std::monostate();
  return Error{static_cast<Code>(code), error.message};
}

/// Carries an exception of a callback around the C frames between.
class Catcher {
 public:
  template <typename Callback, typename... Args>
  int call(const Callback& callback, Args... args) {
#if defined(__cpp_exceptions)
    try {
      return callback(args...) ? 1 : 0;
    } catch (...) {
      caught_ = std::current_exception();
      return 0;
    }
#else
    return callback(args...) ? 1 : 0;
#endif
  }
  void rethrow() const {
#if defined(__cpp_exceptions)
    if (caught_ != nullptr) std::rethrow_exception(caught_);
#endif
  }

 private:
#if defined(__cpp_exceptions)
  std::exception_ptr caught_;
#endif
};

/// The object that user_data points to.
struct Callbacks {
  const Progress* progress = nullptr;
  const LogSink* log = nullptr;
  const TextSink* text = nullptr;
  const LogitsSink* logits = nullptr;
  Catcher catcher = {};

  static int on_progress(void* self, uint64_t done, uint64_t total) {
    auto* callbacks = static_cast<Callbacks*>(self);
    return callbacks->catcher.call(*callbacks->progress, done, total);
  }
  static void on_log(void* self, int32_t level, const char* message) {
    auto* callbacks = static_cast<Callbacks*>(self);
    const auto log = [callbacks](int32_t at, const char* line) {
      (*callbacks->log)(at, line);
      return true;
    };
    callbacks->catcher.call(log, level, message);
  }
  static int on_text(void* self, const char* text, size_t bytes) {
    auto* callbacks = static_cast<Callbacks*>(self);
    return callbacks->catcher.call(*callbacks->text, std::string_view(text, bytes));
  }
  static int on_logits(void* self, int64_t first, const float* rows, size_t num_rows,
                       size_t vocab_size) {
    auto* callbacks = static_cast<Callbacks*>(self);
    return callbacks->catcher.call(*callbacks->logits, first,
                                   std::span<const float>(rows, num_rows * vocab_size));
  }
};

/// The options of a call: those that are set, over the model's. These must outlive it.
class SamplerArgument {
 public:
  SamplerArgument(const mf_sampler_options& defaults, const SamplerOptions& options)
      : c_(defaults) {
    c_.temperature = options.temperature.value_or(c_.temperature);
    c_.top_k = options.top_k.value_or(c_.top_k);
    c_.top_p = options.top_p.value_or(c_.top_p);
    c_.min_p = options.min_p.value_or(c_.min_p);
    c_.repeat_penalty = options.repeat_penalty.value_or(c_.repeat_penalty);
    c_.repeat_last_n = options.repeat_last_n.value_or(c_.repeat_last_n);
    c_.presence_penalty = options.presence_penalty.value_or(c_.presence_penalty);
    c_.frequency_penalty = options.frequency_penalty.value_or(c_.frequency_penalty);
    c_.seed = options.seed;
    c_.logit_bias = options.logit_bias.data();
    c_.logit_bias_count = options.logit_bias.size();
    c_.typical_p = options.typical_p.value_or(c_.typical_p);
    c_.top_n_sigma = options.top_n_sigma.value_or(c_.top_n_sigma);
    c_.xtc_probability = options.xtc_probability.value_or(c_.xtc_probability);
    c_.xtc_threshold = options.xtc_threshold.value_or(c_.xtc_threshold);
    c_.dynatemp_range = options.dynatemp_range.value_or(c_.dynatemp_range);
    c_.dynatemp_exponent = options.dynatemp_exponent.value_or(c_.dynatemp_exponent);
    c_.mirostat = options.mirostat.value_or(c_.mirostat);
    c_.mirostat_tau = options.mirostat_tau.value_or(c_.mirostat_tau);
    c_.mirostat_eta = options.mirostat_eta.value_or(c_.mirostat_eta);
    c_.dry_multiplier = options.dry_multiplier.value_or(c_.dry_multiplier);
    c_.dry_base = options.dry_base.value_or(c_.dry_base);
    c_.dry_allowed_length = options.dry_allowed_length.value_or(c_.dry_allowed_length);
    c_.dry_penalty_last_n = options.dry_penalty_last_n.value_or(c_.dry_penalty_last_n);
    if (options.dry_sequence_breakers) {
      for (const std::string& text : *options.dry_sequence_breakers)
        breakers_.push_back(text.c_str());
      c_.dry_sequence_breakers_count = breakers_.size();
      breakers_.push_back(nullptr);  // without any, a list all the same
      c_.dry_sequence_breakers = breakers_.data();
    }
    if (options.samplers) c_.samplers = options.samplers->c_str();
  }
  const mf_sampler_options* get() const { return &c_; }
  SamplerArgument(const SamplerArgument&) = delete;
  SamplerArgument& operator=(const SamplerArgument&) = delete;

 private:
  mf_sampler_options c_;
  std::vector<const char*> breakers_;
};

/// Calls a function whose last argument receives the error.
template <typename Call, typename... Args>
Status run(Call call, Args... args) {
  mf_error error;
  const mf_code code = call(args..., &error);
  return to_status(code, error);
}

/// The same of one that stores a number, a handle or a sized struct.
template <typename T, typename Call, typename... Args>
Result<T> stored(Call call, Args... args) {
  T value{};
  if constexpr (requires { value.struct_size; }) value = sized<T>();
  const Status done = run(call, args..., &value);
  if (!done) return done.error();
  return value;
}

/// The same of one that stores as much as fits and says how much there is: once for most, twice
/// for long.
template <typename Container, typename Call, typename... Args>
Result<Container> grow(size_t guess, Call call, Args... args) {
  Container out(guess, {});
  while (true) {
    size_t count = 0;
    mf_error error;
    const mf_code code = call(args..., out.data(), out.size(), &count, &error);
    if (code != MF_OK && code != MF_ERROR_BUFFER_TOO_SMALL) {
      return Error{static_cast<Code>(code), error.message};
    }
    out.resize(count);
    if (code == MF_OK) return out;
  }
}

}  // namespace detail

/// A state as bytes; owns them.
class Snapshot {
 public:
  explicit Snapshot(mf_bytes* bytes) : bytes_(bytes) {}
  std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(mf_bytes_data(bytes_.get())),
            mf_bytes_size(bytes_.get())};
  }

 private:
  detail::Owner<mf_bytes> bytes_;
};

/// One text being evaluated. Keeps its model alive. cancel(), position() and set_turn_timeout() are
/// for any thread; destroying it cancels what runs or waits.
class Sequence {
 public:
  mf_sequence* get() const { return sequence_.get(); }
  size_t vocab_size() const { return vocab_size_; }

  /// Stops the calls of this sequence that run or wait, on whatever thread: mf_sequence_cancel().
  void cancel() const noexcept { mf_sequence_cancel(get()); }
  /// How long later calls wait for their turn; takes the values of turn_timeout_ms.
  Status set_turn_timeout(int64_t timeout_ms) {
    return detail::run(mf_sequence_set_turn_timeout, get(), timeout_ms);
  }

  Result<int64_t> position() const { return detail::stored<int64_t>(mf_sequence_position, get()); }
  Result<std::vector<int32_t>> tokens() const {
    return detail::grow<std::vector<int32_t>>(256, mf_sequence_tokens, get());
  }

  /// Appends tokens. `logits`, if not empty, receives those of the last: [vocab_size].
  Status eval(std::span<const int32_t> tokens, std::span<float> logits = {},
              const Progress& progress = {}) {
    return eval(tokens, false, logits, progress, {});
  }
  /// Appends tokens; `logits` receives those of every one: [tokens, vocab_size].
  Status eval_all(std::span<const int32_t> tokens, std::span<float> logits,
                  const Progress& progress = {}) {
    return eval(tokens, true, logits, progress, {});
  }
  /// The same in pieces, for logits that need not all be in memory.
  Status eval_all(std::span<const int32_t> tokens, const LogitsSink& sink,
                  const Progress& progress = {}) {
    return eval(tokens, true, {}, progress, sink);
  }
  /// The logits of the last token, into [vocab_size].
  Status logits(std::span<float> logits) {
    return detail::run(mf_sequence_logits, get(), logits.data(), logits.size());
  }

  Status set_sampler(const SamplerOptions& options);
  /// See mf_sequence_set_constraint().
  Status set_constraint(mf_constraint_kind kind, std::string_view text = {}) {
    return detail::run(mf_sequence_set_constraint, get(), kind, text.data(), text.size());
  }
  /// Samples the token after the last; does not append it.
  Result<int32_t> sample() { return detail::stored<int32_t>(mf_sequence_sample, get()); }
  /// Appends the prompt and continues it; an empty prompt goes on after the last token.
  Result<mf_generate_result> generate(std::span<const int32_t> prompt,
                                      const GenerateOptions& options = {},
                                      const TextSink& sink = {});

  Result<uint64_t> checkpoint() { return detail::stored<uint64_t>(mf_sequence_checkpoint, get()); }
  Status restore(uint64_t checkpoint) {
    return detail::run(mf_sequence_restore, get(), checkpoint);
  }
  Status drop(uint64_t checkpoint) { return detail::run(mf_sequence_drop, get(), checkpoint); }
  Status truncate(int64_t position) { return detail::run(mf_sequence_truncate, get(), position); }
  Result<Sequence> fork() const {
    const Result<mf_sequence*> forked = detail::stored<mf_sequence*>(mf_sequence_fork, get());
    if (!forked) return forked.error();
    return Sequence(*forked, vocab_size_, default_sampler_);
  }

  Result<Snapshot> save() const {
    const Result<mf_bytes*> bytes = detail::stored<mf_bytes*>(mf_sequence_save, get());
    if (!bytes) return bytes.error();
    return Snapshot(*bytes);
  }
  Status load(std::span<const std::byte> snapshot) {
    return detail::run(mf_sequence_load, get(), snapshot.data(), snapshot.size());
  }
  Status save_file(const std::string& path) const {
    return detail::run(mf_sequence_save_file, get(), path.c_str());
  }
  Status load_file(const std::string& path) {
    return detail::run(mf_sequence_load_file, get(), path.c_str());
  }

  /// The number of the tokens that need no evaluation.
  Result<int64_t> reuse_prefix(std::span<const int32_t> tokens) {
    return detail::stored<int64_t>(mf_sequence_reuse_prefix, get(), tokens.data(), tokens.size());
  }
  Status keep_prefix() const { return detail::run(mf_sequence_keep_prefix, get()); }

 private:
  friend class Model;
  Sequence(mf_sequence* sequence, size_t vocab_size, const mf_sampler_options& default_sampler)
      : sequence_(sequence), vocab_size_(vocab_size), default_sampler_(default_sampler) {}
  Status eval(std::span<const int32_t> tokens, bool all, std::span<float> logits,
              const Progress& progress, const LogitsSink& sink);

  detail::Owner<mf_sequence> sequence_;
  size_t vocab_size_;
  mf_sampler_options default_sampler_;
};

/// Part of Model::eval_batch(). `logits`, unless empty, receives the last token's: [vocab_size].
struct BatchItem {
  Sequence* sequence = nullptr;
  std::span<const int32_t> tokens = {};
  std::span<float> logits = {};
  int32_t phase = MF_PHASE_AUTO;
};

/// The fields of mf_embed_options; empty strings are null.
struct EmbedOptions {
  int64_t dimensions = 0;
  std::string prompt_name = {};
  std::string pooling = {};
};

namespace detail {

inline mf_embed_options to_c(const EmbedOptions& options) {
  auto c = sized<mf_embed_options>();
  c.dimensions = options.dimensions;
  c.prompt_name = or_null(options.prompt_name);
  c.pooling = or_null(options.pooling);
  return c;
}

}  // namespace detail

/// Weights, device and cache.
class Model {
 public:
  static Result<Model> open(const std::string& path, const ModelOptions& options = {},
                            const Progress& progress = {}, const LogSink& log = {});

  mf_model* get() const { return model_.get(); }
  /// Its strings live as long as the model.
  const mf_model_info& info() const { return info_; }
  Result<mf_metrics> metrics() const {
    return detail::stored<mf_metrics>(mf_model_get_metrics, get());
  }

  Result<std::vector<int32_t>> stop_tokens() const {
    return detail::grow<std::vector<int32_t>>(8, mf_model_stop_tokens, get());
  }
  /// `flags` are of MF_TOKENIZE_*.
  Result<std::vector<int32_t>> tokenize(std::string_view text, uint32_t flags = 0) const {
    return detail::grow<std::vector<int32_t>>(text.size() + 8, mf_model_tokenize, get(),
                                              text.data(), text.size(), flags);
  }
  /// `flags` are of MF_DETOKENIZE_*.
  Result<std::string> detokenize(std::span<const int32_t> tokens, uint32_t flags = 0) const {
    return detail::grow<std::string>(tokens.size() * 8, mf_model_detokenize, get(), tokens.data(),
                                     tokens.size(), flags);
  }

  Result<Sequence> create_sequence() {
    const Result<mf_sequence*> created = detail::stored<mf_sequence*>(mf_sequence_create, get());
    if (!created) return created.error();
    return Sequence(*created, static_cast<size_t>(info_.vocab_size), default_sampler_);
  }

  /// Appends tokens to several sequences in common steps: mf_model_eval_batch(). How each item
  /// ended, in their order.
  std::vector<Status> eval_batch(std::span<const BatchItem> items);

  /// mf_model_embed(): [texts, dimensions], one vector behind the other.
  Result<std::vector<float>> embed(std::span<const std::string> texts,
                                   const EmbedOptions& options = {});
  /// How many numbers each has.
  Result<size_t> embedding_width(const EmbedOptions& options = {});

 private:
  friend class Service;
  explicit Model(mf_model* model) : model_(model) {}

  detail::Owner<mf_model> model_;
  mf_model_info info_ = detail::sized<mf_model_info>();
  mf_sampler_options default_sampler_ = detail::sized<mf_sampler_options>();
};

/// The fields of mf_service_options.
struct ServiceOptions {
  std::string model_name = {};
  std::vector<std::string> model_aliases = {};
  std::optional<std::string> chat_template = {};
  SamplerOptions sampler = {};        // of requests that say nothing
  int64_t reasoning_tokens_max = -1;  // of an answer; negative: no limit
  int32_t active_max = 0;
  int32_t queue_max = 64;
};

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Request {
  std::string method = "GET";
  std::string target = {};
  std::string body = {};
  Headers headers = {};
  /// See mf_ready_fn; must not throw.
  std::function<void()> on_ready = {};
};

/// The fields of mf_answer_piece, owned.
struct AnswerPiece {
  int32_t status = 0;
  bool ended = false;
  std::string bytes = {};
  std::string content_type = {};
  Headers headers = {};
  std::string keep_alive = {};
  int64_t keep_alive_ms = 0;
};

/// An answer to a request of a Service. Destroying it aborts what has not ended.
class Answer {
 public:
  Answer(Answer&&) noexcept = default;
  Answer& operator=(Answer&& other) noexcept {
    answer_ = std::move(other.answer_);  // frees the old one before what it calls
    on_ready_ = std::move(other.on_ready_);
    return *this;
  }
  mf_answer* get() const { return answer_.get(); }
  /// The bytes that have arrived; waits up to `timeout_ms` milliseconds while there are none.
  Result<AnswerPiece> next(int64_t timeout_ms = MF_WAIT_FOREVER);
  /// Any thread.
  void abort() const noexcept { mf_answer_abort(get()); }

 private:
  friend class Service;
  Answer() = default;

  std::unique_ptr<std::function<void()>> on_ready_;  // outlives the answer
  detail::Owner<mf_answer> answer_;
};

/// The request handling of `moeflux serve` without its sockets. Keeps what it needs of its model;
/// destroying it aborts its answers. All functions are for any thread.
class Service {
 public:
  static Result<Service> open(const Model& model, const ServiceOptions& options = {});

  mf_service* get() const { return service_.get(); }
  Result<Answer> submit(const Request& request);
  /// Its string lives as long as the service.
  Result<mf_service_health> health() const {
    return detail::stored<mf_service_health>(mf_service_get_health, get());
  }
  Result<std::string> metrics() const {
    const Result<mf_bytes*> text = detail::stored<mf_bytes*>(mf_service_metrics, get());
    if (!text) return text.error();
    const detail::Owner<mf_bytes> owner(*text);
    return std::string(static_cast<const char*>(mf_bytes_data(*text)), mf_bytes_size(*text));
  }
  /// Refuses further requests and waits for those that were submitted.
  Status drain() { return detail::run(mf_service_drain, get()); }

 private:
  explicit Service(mf_service* service) : service_(service) {}

  detail::Owner<mf_service> service_;
};

inline Result<Model> Model::open(const std::string& path, const ModelOptions& options,
                                 const Progress& progress, const LogSink& log) {
  auto c = detail::sized<mf_model_options>();
  c.device = detail::or_null(options.device);
  c.cpu_isa = detail::or_null(options.cpu_isa);
  c.precision = detail::or_null(options.precision);
  c.context_length = options.context_length;
  c.expert_cache_bytes = options.expert_cache_bytes;
  c.threads = options.threads;
  c.prefix_cache_bytes = options.prefix_cache_bytes;
  c.prefix_cache_directory = detail::or_null(options.prefix_cache_directory);
  c.cache_type_k = detail::or_null(options.cache_type_k);
  c.cache_type_v = detail::or_null(options.cache_type_v);
  c.turn_timeout_ms = options.turn_timeout_ms;
  c.tuning = detail::or_null(options.tuning);
  c.should_abort = options.should_abort;
  c.abort_data = options.abort_data;
  detail::Callbacks callbacks{.progress = &progress, .log = &log};
  if (log) c.on_log = detail::Callbacks::on_log;
  if (progress) c.on_progress = detail::Callbacks::on_progress;
  c.user_data = &callbacks;
  mf_model* opened = nullptr;
  Status done = detail::run(mf_model_open, path.c_str(), &c, &opened);
  Model model(opened);
  callbacks.catcher.rethrow();
  if (done) done = detail::run(mf_model_get_info, opened, &model.info_);
  if (done) done = detail::run(mf_model_default_sampler, opened, &model.default_sampler_);
  if (!done) return done.error();
  return model;
}

inline Status Sequence::eval(std::span<const int32_t> tokens, bool all, std::span<float> logits,
                             const Progress& progress, const LogitsSink& sink) {
  detail::Callbacks callbacks{.progress = &progress, .logits = &sink};
  auto c = detail::sized<mf_eval_options>();
  c.all_positions = all ? 1 : 0;
  c.logits = logits.data();
  c.logits_count = logits.size();
  if (sink) c.on_logits = detail::Callbacks::on_logits;
  if (progress) c.on_progress = detail::Callbacks::on_progress;
  c.user_data = &callbacks;
  Status done = detail::run(mf_sequence_eval, get(), tokens.data(), tokens.size(), &c);
  callbacks.catcher.rethrow();
  return done;
}

inline std::vector<Status> Model::eval_batch(std::span<const BatchItem> items) {
  std::vector<mf_batch_item> c;
  for (const BatchItem& item : items) {
    auto next = detail::sized<mf_batch_item>();
    next.sequence = item.sequence == nullptr ? nullptr : item.sequence->get();
    next.tokens = item.tokens.data();
    next.count = item.tokens.size();
    next.logits = item.logits.data();
    next.logits_count = item.logits.size();
    next.phase = item.phase;
    c.push_back(next);
  }
  std::vector<mf_error> results(items.size());
  (void)mf_model_eval_batch(get(), c.data(), c.size(), results.data(), nullptr);
  std::vector<Status> statuses;
  for (const mf_error& result : results) statuses.push_back(detail::to_status(result.code, result));
  return statuses;
}

inline Result<size_t> Model::embedding_width(const EmbedOptions& options) {
  const mf_embed_options given = detail::to_c(options);
  size_t width = 0;
  const Status done = detail::run(mf_model_embed, get(), nullptr, 0, &given, nullptr, 0, &width);
  if (!done) return done.error();
  return width;
}

inline Result<std::vector<float>> Model::embed(std::span<const std::string> texts,
                                               const EmbedOptions& options) {
  const Result<size_t> width = embedding_width(options);
  if (!width) return width.error();
  std::vector<mf_text> c;
  for (const std::string& text : texts) c.push_back({text.data(), text.size()});
  const mf_embed_options given = detail::to_c(options);
  std::vector<float> numbers(c.size() * *width);
  size_t dimensions = 0;
  const Status done = detail::run(mf_model_embed, get(), c.data(), c.size(), &given, numbers.data(),
                                  numbers.size(), &dimensions);
  if (!done) return done.error();
  return numbers;
}

inline Status Sequence::set_sampler(const SamplerOptions& options) {
  const detail::SamplerArgument argument(default_sampler_, options);
  return detail::run(mf_sequence_set_sampler, get(), argument.get());
}

inline Result<mf_generate_result> Sequence::generate(std::span<const int32_t> prompt,
                                                     const GenerateOptions& options,
                                                     const TextSink& sink) {
  std::vector<const char*> stop_strings;
  for (const std::string& string : options.stop_strings) stop_strings.push_back(string.c_str());
  detail::Callbacks callbacks{.progress = &options.on_progress, .text = &sink};
  auto c = detail::sized<mf_generate_options>();
  c.tokens_max = options.tokens_max;
  c.flags = options.ignore_stop_tokens ? uint32_t{MF_GENERATE_IGNORE_STOP_TOKENS} : 0;
  c.stop_strings = stop_strings.data();
  c.stop_strings_count = stop_strings.size();
  c.stop_tokens = options.stop_tokens.data();
  c.stop_tokens_count = options.stop_tokens.size();
  if (sink) c.on_text = detail::Callbacks::on_text;
  if (options.on_progress) c.on_progress = detail::Callbacks::on_progress;
  c.user_data = &callbacks;
  auto result = detail::sized<mf_generate_result>();
  const Status done =
      detail::run(mf_sequence_generate, get(), prompt.data(), prompt.size(), &c, &result);
  callbacks.catcher.rethrow();
  if (!done) return done.error();
  return result;
}

inline Result<Service> Service::open(const Model& model, const ServiceOptions& options) {
  const detail::SamplerArgument sampler(model.default_sampler_, options.sampler);
  std::vector<const char*> aliases;
  for (const std::string& alias : options.model_aliases) aliases.push_back(alias.c_str());
  auto c = detail::sized<mf_service_options>();
  c.model_name = detail::or_null(options.model_name);
  c.model_aliases = aliases.data();
  c.model_aliases_count = aliases.size();
  c.chat_template = options.chat_template ? options.chat_template->c_str() : nullptr;
  c.sampler = sampler.get();
  const int64_t reasoning = options.reasoning_tokens_max;
  c.reasoning_tokens_max = reasoning > 0 ? reasoning : reasoning == 0 ? MF_REASONING_NONE : 0;
  c.active_max = options.active_max;
  c.queue_max = options.queue_max == 0 ? MF_QUEUE_NONE : options.queue_max;
  const Result<mf_service*> opened = detail::stored<mf_service*>(mf_service_open, model.get(), &c);
  if (!opened) return opened.error();
  return Service(*opened);
}

inline Result<Answer> Service::submit(const Request& request) {
  std::vector<mf_header> headers;
  for (const auto& [name, value] : request.headers) {
    headers.push_back({name.c_str(), value.c_str()});
  }
  Answer answer;
  auto c = detail::sized<mf_request>();
  c.method = request.method.c_str();
  c.target = request.target.c_str();
  c.body = request.body.data();
  c.body_size = request.body.size();
  c.headers = headers.data();
  c.headers_count = headers.size();
  if (request.on_ready) {
    answer.on_ready_ = std::make_unique<std::function<void()>>(request.on_ready);
    c.on_ready = [](void* self) { (*static_cast<std::function<void()>*>(self))(); };
    c.user_data = answer.on_ready_.get();
  }
  const Result<mf_answer*> begun = detail::stored<mf_answer*>(mf_service_submit, get(), &c);
  if (!begun) return begun.error();
  answer.answer_.reset(*begun);
  return answer;
}

inline Result<AnswerPiece> Answer::next(int64_t timeout_ms) {
  auto c = detail::sized<mf_answer_piece>();
  const Status done = detail::run(mf_answer_next, get(), timeout_ms, &c);
  if (!done) return done.error();
  AnswerPiece piece{.status = c.status, .ended = c.ended != 0, .bytes = {c.bytes, c.size}};
  if (c.content_type != nullptr) piece.content_type = c.content_type;
  for (size_t i = 0; i < c.headers_count; ++i) {
    piece.headers.emplace_back(c.headers[i].name, c.headers[i].value);
  }
  if (c.keep_alive != nullptr) piece.keep_alive = c.keep_alive;
  piece.keep_alive_ms = c.keep_alive_ms;
  return piece;
}

}  // namespace api
}  // namespace moeflux
