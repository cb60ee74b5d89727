// Models of moeflux.h: open, describe, tokenize.
#include <algorithm>
#include <string_view>

#include "library/options.h"
#include "library/outcome.h"

namespace moeflux {
namespace {

// Its own hold on what the handle has, which another thread may close meanwhile.
Result<std::shared_ptr<const OpenModel>> hold(const mf_model* model) {
  if (model == nullptr) return null_argument("model");
  return std::shared_ptr<const OpenModel>(model->open);
}

mf_metrics metrics_of(const OpenModel& open) {
  const MemoryPlan& plan = open.engine->memory_plan();
  const ModelCounters counters = open.counters();
  mf_metrics c = MF_OPTIONS(c);
  c.dense_bytes = plan.dense_bytes;
  c.experts_bytes = plan.experts_bytes;
  c.expert_cache_bytes = counters.expert_capacity_bytes;
  c.sequence_bytes = plan.context_bytes;
  c.cold_bytes_per_token = plan.cold_bytes_per_token;
  c.expert_hits = counters.experts.hits;
  c.expert_misses = counters.experts.misses;
  c.expert_bytes_read = counters.experts.bytes_read;
  c.expert_evictions = counters.experts.evictions;
  c.expert_stall_us = counters.experts.stall_us;
  c.evaluated_tokens = counters.evaluated_tokens;
  c.evaluate_us = counters.evaluate_us;
  c.waiting_calls = open.turns.num_waiting();
  c.near_hits = counters.experts.near_hits;
  c.far_hits = counters.experts.far_hits;
  c.promotions = counters.experts.promotions;
  c.bus_bytes = counters.experts.bus_bytes;
  c.helped_steps = counters.experts.helped_steps;
  return c;
}

}  // namespace
}  // namespace moeflux

using moeflux::ErrorCode;
using moeflux::guarded;
using moeflux::hold;
using moeflux::make_error;
using moeflux::null_argument;
using moeflux::Outcome;

mf_code mf_model_open(const char* path, const mf_model_options* options, mf_model** model,
                      mf_error* error) noexcept {
  return guarded(error, [&]() -> Outcome {
    if (model == nullptr) return null_argument("model");
    *model = nullptr;
    if (path == nullptr) return null_argument("path");
    MF_ASSIGN_OR_RETURN(const mf_model_options read,
                        moeflux::read_struct("mf_model_options", options));
    MF_RETURN_IF_ERROR(moeflux::check_model_folder(path));
    MF_ASSIGN_OR_RETURN(const moeflux::OpenModelOptions open_options, moeflux::open_options(read));
    MF_ASSIGN_OR_RETURN(moeflux::ModelText text, moeflux::load_model_text(path));
    MF_ASSIGN_OR_RETURN(auto open, moeflux::open_model(path, open_options, std::move(text)));
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
    known.context_length = open->engine->memory_plan().context_length;
    known.num_layers = open->engine->spec().num_layers();
    const auto& tokenizer = open->text.tokenizer;
    known.tokenizer_vocab_size = tokenizer.ok() ? tokenizer->vocab_size() : 0;
    known.model_type = open->engine->spec().model_type.c_str();
    known.device = open->device_description.c_str();
    known.expert_io = open->expert_io.c_str();
    return moeflux::write_struct("mf_model_info", known, info);
  });
}

mf_code mf_model_get_metrics(const mf_model* model, mf_metrics* metrics, mf_error* error) noexcept {
  return guarded(error, [&]() -> Outcome {
    MF_ASSIGN_OR_RETURN(const auto open, hold(model));
    return moeflux::write_struct("mf_metrics", moeflux::metrics_of(*open), metrics);
  });
}

mf_code mf_model_stop_tokens(const mf_model* model, int32_t* tokens, size_t capacity, size_t* count,
                             mf_error* error) noexcept {
  return guarded(error, [&]() -> Outcome {
    MF_ASSIGN_OR_RETURN(const auto open, hold(model));
    return moeflux::copy_tokens(open->text.defaults.stop_tokens, tokens, capacity, count);
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
    const auto& tokenizer = open->text.tokenizer;
    if (!tokenizer.ok()) return tokenizer.error();
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
    const auto& tokenizer = open->text.tokenizer;
    if (!tokenizer.ok()) return tokenizer.error();
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
    return moeflux::write_struct("mf_sampler_options", moeflux::to_c(open->text.defaults.sampler),
                                 options);
  });
}
