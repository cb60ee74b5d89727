#include "library/options.h"

#include <utility>

#include "chat/tuning.h"
#include "engine/cache_types.h"

namespace moeflux {
namespace {

// No version of any struct is near this: what is above was never set.
constexpr size_t kStructBytesMax = 4096;
// A Turn waits without end.
constexpr int64_t kWaitForever = -1;

std::string text_or(const char* text, const char* otherwise) {
  return text == nullptr ? otherwise : text;
}

Status check_not_negative(const char* name, int64_t value) {
  if (value >= 0) return {};
  return make_error(ErrorCode::kInvalidArgument, "{} is {}, expected 0 or more", name, value);
}

Status check_list(const char* name, const void* list, size_t count) {
  if (list != nullptr || count == 0) return {};
  return make_error(ErrorCode::kInvalidArgument, "{} is null, expected {} entries", name, count);
}

Result<EngineOptions> engine_options(const mf_model_options& options) {
  EngineOptions engine;
  engine.context_length = options.context_length;
  if (options.expert_cache_bytes == MF_EXPERT_CACHE_MINIMUM) {
    engine.expert_cache_bytes = 0;
  } else if (options.expert_cache_bytes != 0) {
    MF_RETURN_IF_ERROR(check_not_negative("expert_cache_bytes", options.expert_cache_bytes));
    engine.expert_cache_bytes = static_cast<uint64_t>(options.expert_cache_bytes);
  }
  if (options.cache_type_k != nullptr) {
    MF_ASSIGN_OR_RETURN(engine.cache_type_k, parse_cache_type(options.cache_type_k));
  }
  if (options.cache_type_v != nullptr) {
    MF_ASSIGN_OR_RETURN(engine.cache_type_v, parse_cache_type(options.cache_type_v));
  }
  engine.prefix_cache_bytes = options.prefix_cache_bytes;
  engine.prefix_cache_directory = text_or(options.prefix_cache_directory, "");
  return engine;
}

/// Null leaves those that there are by default.
Status read_dry_breakers(const mf_sampler_options& options, SamplerOptions& sampler) {
  const size_t count = options.dry_sequence_breakers_count;
  MF_RETURN_IF_ERROR(check_list("dry_sequence_breakers", options.dry_sequence_breakers, count));
  if (options.dry_sequence_breakers == nullptr) return {};
  sampler.dry_sequence_breakers.clear();
  for (size_t i = 0; i < count; ++i) {
    const char* text = options.dry_sequence_breakers[i];
    if (text == nullptr) {
      return make_error(ErrorCode::kInvalidArgument, "dry_sequence_breakers: entry {} is null", i);
    }
    sampler.dry_sequence_breakers.emplace_back(text);
  }
  return {};
}

mf_finish_reason to_c(FinishReason reason) {
  switch (reason) {
    case FinishReason::kTokensMax:
      return MF_FINISH_TOKENS_MAX;
    case FinishReason::kStopToken:
      return MF_FINISH_STOP_TOKEN;
    case FinishReason::kStopString:
      return MF_FINISH_STOP_STRING;
    case FinishReason::kContextFull:
      return MF_FINISH_CONTEXT_FULL;
    case FinishReason::kCancelled:
      return MF_FINISH_CANCELLED;
  }
  __builtin_unreachable();
}

}  // namespace

Status check_struct(const char* name, const void* data, size_t size, size_t first, size_t known) {
  if (size < first || size > kStructBytesMax) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: struct_size is {}, expected {}: set it as MF_OPTIONS does", name, size,
                      known);
  }
  const auto* bytes = static_cast<const unsigned char*>(data);
  for (size_t i = known; bytes != nullptr && i < size; ++i) {
    if (bytes[i] == 0) continue;
    return make_error(ErrorCode::kUnsupported,
                      "{}: a field at byte {} is set, which moeflux {} does not know", name, i,
                      mf_version_string());
  }
  return {};
}

Result<int64_t> turn_timeout(int64_t timeout_ms) {
  if (timeout_ms > 0) return timeout_ms;
  if (timeout_ms == 0 || timeout_ms == MF_WAIT_FOREVER) return kWaitForever;
  if (timeout_ms == MF_WAIT_NONE) return 0;
  return make_error(ErrorCode::kInvalidArgument,
                    "turn_timeout_ms is {}, expected 0 or more, MF_WAIT_FOREVER or MF_WAIT_NONE",
                    timeout_ms);
}

Result<OpenModelOptions> open_options(const mf_model_options& options) {
  MF_ASSIGN_OR_RETURN(const int64_t timeout_ms, turn_timeout(options.turn_timeout_ms));
  MF_ASSIGN_OR_RETURN(EngineOptions engine, engine_options(options));
  OpenModelOptions open{.device = {.threads = options.threads, .isa = text_or(options.cpu_isa, "")},
                        .engine = std::move(engine),
                        .turn_timeout_ms = timeout_ms};
  open.device.name = text_or(options.device, "auto");
  if (options.precision != nullptr) open.device.precision = options.precision;
  const Status tuned =
      apply_tuning(text_or(options.tuning, ""), {open.device, open.engine, open.drafts});
  if (!tuned.ok()) return tuned.error().with_context("tuning");
  if (options.on_progress != nullptr) {
    open.engine.load_progress = [&options](uint64_t done, uint64_t total) {
      return options.on_progress(options.user_data, done, total) != 0;
    };
  }
  if (options.should_abort != nullptr) {
    open.should_stop = [should_abort = options.should_abort, data = options.abort_data] {
      return should_abort(data) != 0;
    };
  }
  if (options.on_log != nullptr) {
    open.on_warning = [&options](const std::string& line) {
      options.on_log(options.user_data, MF_LOG_WARNING, line.c_str());
    };
  }
  return open;
}

Result<StepPhase> step_phase(int32_t phase, size_t tokens) {
  switch (phase) {
    case MF_PHASE_AUTO:
      return tokens == 1 ? StepPhase::kDecode : StepPhase::kPrompt;
    case MF_PHASE_PROMPT:
      return StepPhase::kPrompt;
    case MF_PHASE_DECODE:
      return StepPhase::kDecode;
    default:
      return make_error(ErrorCode::kInvalidArgument, "phase is {}, expected one of MF_PHASE_*",
                        phase);
  }
}

Result<SamplerOptions> sampler_options(const mf_sampler_options& options) {
  MF_RETURN_IF_ERROR(check_list("logit_bias", options.logit_bias, options.logit_bias_count));
  SamplerOptions sampler{.temperature = options.temperature,
                         .top_k = options.top_k,
                         .top_p = options.top_p,
                         .min_p = options.min_p,
                         .repeat_penalty = options.repeat_penalty,
                         .repeat_last_n = options.repeat_last_n,
                         .presence_penalty = options.presence_penalty,
                         .frequency_penalty = options.frequency_penalty,
                         .seed = options.seed,
                         .typical_p = options.typical_p,
                         .top_n_sigma = options.top_n_sigma,
                         .xtc_probability = options.xtc_probability,
                         .xtc_threshold = options.xtc_threshold,
                         .dynatemp_range = options.dynatemp_range,
                         .dynatemp_exponent = options.dynatemp_exponent,
                         .mirostat = options.mirostat,
                         .mirostat_tau = options.mirostat_tau,
                         .mirostat_eta = options.mirostat_eta,
                         .dry_multiplier = options.dry_multiplier,
                         .dry_base = options.dry_base,
                         .dry_allowed_length = options.dry_allowed_length,
                         .dry_penalty_last_n = options.dry_penalty_last_n};
  MF_RETURN_IF_ERROR(read_dry_breakers(options, sampler));
  if (options.samplers != nullptr) {
    MF_ASSIGN_OR_RETURN(sampler.samplers, parse_sampler_order(options.samplers));
  }
  for (size_t i = 0; i < options.logit_bias_count; ++i) {
    sampler.logit_bias.push_back({options.logit_bias[i].token, options.logit_bias[i].bias});
  }
  return sampler;
}

mf_sampler_options to_c(const SamplerOptions& options) {
  mf_sampler_options c = MF_OPTIONS(c);
  c.temperature = options.temperature;
  c.top_k = options.top_k;
  c.top_p = options.top_p;
  c.min_p = options.min_p;
  c.repeat_penalty = options.repeat_penalty;
  c.repeat_last_n = options.repeat_last_n;
  c.presence_penalty = options.presence_penalty;
  c.frequency_penalty = options.frequency_penalty;
  c.seed = options.seed;
  c.typical_p = options.typical_p;
  c.top_n_sigma = options.top_n_sigma;
  c.xtc_probability = options.xtc_probability;
  c.xtc_threshold = options.xtc_threshold;
  c.dynatemp_range = options.dynatemp_range;
  c.dynatemp_exponent = options.dynatemp_exponent;
  c.mirostat = options.mirostat;
  c.mirostat_tau = options.mirostat_tau;
  c.mirostat_eta = options.mirostat_eta;
  c.dry_multiplier = options.dry_multiplier;
  c.dry_base = options.dry_base;
  c.dry_allowed_length = options.dry_allowed_length;
  c.dry_penalty_last_n = options.dry_penalty_last_n;
  return c;
}

Result<GenerateOptions> generate_options(const mf_generate_options& options) {
  MF_RETURN_IF_ERROR(check_list("stop_strings", options.stop_strings, options.stop_strings_count));
  MF_RETURN_IF_ERROR(check_list("stop_tokens", options.stop_tokens, options.stop_tokens_count));
  if ((options.flags & ~uint32_t{MF_GENERATE_IGNORE_STOP_TOKENS}) != 0) {
    return make_error(ErrorCode::kUnsupported, "flags {:#x}: unknown to moeflux {}", options.flags,
                      mf_version_string());
  }
  GenerateOptions generate;
  if (options.tokens_max != 0) generate.tokens_max = options.tokens_max;
  generate.ignore_model_stop_tokens = (options.flags & MF_GENERATE_IGNORE_STOP_TOKENS) != 0;
  generate.stop_tokens.assign(options.stop_tokens, options.stop_tokens + options.stop_tokens_count);
  for (size_t i = 0; i < options.stop_strings_count; ++i) {
    const char* string = options.stop_strings[i];
    if (string == nullptr || *string == '\0') {
      return make_error(ErrorCode::kInvalidArgument, "stop string {} is {}", i,
                        string == nullptr ? "null" : "empty");
    }
    generate.stop_strings.emplace_back(string);
  }
  return generate;
}

mf_generate_result to_c(const GenerateResult& result) {
  mf_generate_result c = MF_OPTIONS(c);
  c.finish_reason = to_c(result.reason);
  c.prompt_tokens = result.prompt_tokens;
  c.generated_tokens = result.generated_tokens;
  c.prefill_us = static_cast<uint64_t>(result.prefill_seconds * 1e6);
  c.decode_us = static_cast<uint64_t>(result.decode_seconds * 1e6);
  return c;
}

}  // namespace moeflux
