// Models of moeflux.h: open, describe, tokenize.
#include <algorithm>
#include <string_view>

#include "library/options.h"
#include "library/outcome.h"

namespace moeflux {
namespace {

// One line that names them: whether they matter, nobody here can say.
void log_unread_keys(const ModelSpec& spec, const mf_model_options& options) {
  if (spec.unread_keys.empty()) return;
  std::string line = "config.json: moeflux does not know, and ignores:";
  for (const std::string& key : spec.unread_keys) {
    line += (&key == &spec.unread_keys.front() ? " " : ", ") + key;
  }
  // A key is any text that JSON can spell.
  std::ranges::replace_if(
      line, [](char c) { return static_cast<unsigned char>(c) < ' '; }, '?');
  options.on_log(options.user_data, MF_LOG_WARNING, line.c_str());
}

Result<std::shared_ptr<OpenModel>> open_model(const char* directory,
                                              const mf_model_options& options) {
  auto open = std::make_shared<OpenModel>();
  MF_RETURN_IF_ERROR(check_model_folder(directory));
  MF_RETURN_IF_ERROR(check_turn_timeout(options.turn_timeout_ms));
  MF_ASSIGN_OR_RETURN(const DeviceOptions device, device_options(options));
  MF_ASSIGN_OR_RETURN(EngineOptions engine, engine_options(options));
  MF_ASSIGN_OR_RETURN(open->defaults, load_generation_defaults(directory));
  Result<Tokenizer> tokenizer = load_tokenizer(directory);
  if (tokenizer.ok()) {
    open->tokenizer = std::move(tokenizer).value();
  } else if (tokenizer.error().code() == ErrorCode::kNotFound) {
    open->tokenizer_error = tokenizer.error();
  } else {
    return tokenizer.error();
  }
  if (options.on_progress != nullptr) {
    engine.load_progress = [&](uint64_t done, uint64_t total) {
      return options.on_progress(options.user_data, done, total) != 0;
    };
  }
  MF_ASSIGN_OR_RETURN(open->device, open_device(device));
  MF_ASSIGN_OR_RETURN(open->engine, Engine::open(directory, *open->device, engine));
  open->device_description = open->device->description();
  open->expert_io = open->engine->expert_io();
  open->turn_timeout_ms = options.turn_timeout_ms;
  open->publish_metrics(0, 0);
  if (options.on_log != nullptr) log_unread_keys(open->engine->spec(), options);
  return open;
}

// Its own hold on what the handle has, which another thread may close meanwhile.
Result<std::shared_ptr<const OpenModel>> hold(const mf_model* model) {
  if (model == nullptr) return null_argument("model");
  return std::shared_ptr<const OpenModel>(model->open);
}

Result<const Tokenizer*> tokenizer_of(const OpenModel& open) {
  if (open.tokenizer_error) return *open.tokenizer_error;
  return &*open.tokenizer;
}

Outcome copy_tokens(const std::vector<TokenId>& from, int32_t* tokens, size_t capacity,
                    size_t* count) {
  if (count == nullptr) return null_argument("count");
  if (tokens == nullptr && capacity > 0) return null_argument("tokens");
  std::copy_n(from.begin(), std::min(capacity, from.size()), tokens);
  return fit("tokens", from.size(), capacity, count);
}

}  // namespace
}  // namespace moeflux

using moeflux::ErrorCode;
using moeflux::guarded;
using moeflux::hold;
using moeflux::make_error;
using moeflux::null_argument;
using moeflux::Outcome;

mf_code mf_model_open(const char* directory, const mf_model_options* options, mf_model** model,
                      mf_error* error) noexcept {
  return guarded(error, [&]() -> Outcome {
    if (model == nullptr) return null_argument("model");
    *model = nullptr;
    if (directory == nullptr) return null_argument("directory");
    MF_ASSIGN_OR_RETURN(const mf_model_options read,
                        moeflux::read_struct("mf_model_options", options));
    MF_ASSIGN_OR_RETURN(auto open, moeflux::open_model(directory, read));
    *model = new mf_model{std::move(open)};
    return {};
  });
}

void mf_model_close(mf_model* model) noexcept { delete model; }

mf_code mf_model_get_info(const mf_model* model, mf_model_info* info, mf_error* error) noexcept {
  return guarded(error, [&]() -> Outcome {
    MF_ASSIGN_OR_RETURN(const auto open, hold(model));
    mf_model_info known = MF_OPTIONS(known);
    known.vocab_size = open->engine->spec().vocab_size;
    known.context_length = open->engine->context_length();
    known.num_layers = open->engine->spec().num_layers();
    known.tokenizer_vocab_size = open->tokenizer ? open->tokenizer->vocab_size() : 0;
    known.model_type = open->engine->spec().model_type.c_str();
    known.device = open->device_description.c_str();
    known.expert_io = open->expert_io.c_str();
    return moeflux::write_struct("mf_model_info", known, info);
  });
}

mf_code mf_model_get_metrics(const mf_model* model, mf_metrics* metrics, mf_error* error) noexcept {
  return guarded(error, [&]() -> Outcome {
    MF_ASSIGN_OR_RETURN(const auto open, hold(model));
    return moeflux::write_struct("mf_metrics", open->metrics(), metrics);
  });
}

mf_code mf_model_stop_tokens(const mf_model* model, int32_t* tokens, size_t capacity, size_t* count,
                             mf_error* error) noexcept {
  return guarded(error, [&]() -> Outcome {
    MF_ASSIGN_OR_RETURN(const auto open, hold(model));
    return moeflux::copy_tokens(open->defaults.stop_tokens, tokens, capacity, count);
  });
}

mf_code mf_model_tokenize(const mf_model* model, const char* text, size_t bytes, uint32_t flags,
                          int32_t* tokens, size_t capacity, size_t* count,
                          mf_error* error) noexcept {
  return guarded(error, [&]() -> Outcome {
    MF_ASSIGN_OR_RETURN(const auto open, hold(model));
    if (text == nullptr && bytes > 0) return null_argument("text");
    if ((flags & ~uint32_t{MF_TOKENIZE_ADD_SPECIAL | MF_TOKENIZE_INERT}) != 0) {
      return make_error(ErrorCode::kUnsupported, "flags {:#x} of mf_model_tokenize", flags);
    }
    MF_ASSIGN_OR_RETURN(const auto* tokenizer, moeflux::tokenizer_of(*open));
    MF_ASSIGN_OR_RETURN(
        const std::vector<moeflux::TokenId> ids,
        tokenizer->encode(bytes == 0 ? "" : std::string_view(text, bytes),
                          {.add_special_tokens = (flags & MF_TOKENIZE_ADD_SPECIAL) != 0,
                           .match_added_tokens = (flags & MF_TOKENIZE_INERT) == 0}));
    return moeflux::copy_tokens(ids, tokens, capacity, count);
  });
}

mf_code mf_model_detokenize(const mf_model* model, const int32_t* tokens, size_t count,
                            uint32_t flags, char* text, size_t capacity, size_t* bytes,
                            mf_error* error) noexcept {
  return guarded(error, [&]() -> Outcome {
    MF_ASSIGN_OR_RETURN(const auto open, hold(model));
    if (tokens == nullptr && count > 0) return null_argument("tokens");
    if (bytes == nullptr) return null_argument("bytes");
    if (text == nullptr && capacity > 0) return null_argument("text");
    if ((flags & ~uint32_t{MF_DETOKENIZE_SKIP_SPECIAL}) != 0) {
      return make_error(ErrorCode::kUnsupported, "flags {:#x} of mf_model_detokenize", flags);
    }
    MF_ASSIGN_OR_RETURN(const auto* tokenizer, moeflux::tokenizer_of(*open));
    const std::string decoded = tokenizer->decode(
        {tokens, count}, {.skip_special = (flags & MF_DETOKENIZE_SKIP_SPECIAL) != 0});
    std::copy_n(decoded.begin(), std::min(capacity, decoded.size()), text);
    return moeflux::fit("bytes of text", decoded.size(), capacity, bytes);
  });
}

mf_code mf_model_default_sampler(const mf_model* model, mf_sampler_options* options,
                                 mf_error* error) noexcept {
  return guarded(error, [&]() -> Outcome {
    MF_ASSIGN_OR_RETURN(const auto open, hold(model));
    return moeflux::write_struct("mf_sampler_options", moeflux::to_c(open->defaults.sampler),
                                 options);
  });
}
