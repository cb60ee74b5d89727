#include "serve/request/generation_fields.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <random>
#include <string_view>
#include <utility>

#include "base/format.h"

namespace moeflux::serve {
namespace {

constexpr double kAny = std::numeric_limits<float>::max();
constexpr int64_t kIntegerMax = std::numeric_limits<int32_t>::max();

void read_number(Fields& fields, const char* name, Range<double> range, float& value) {
  if (const auto number = fields.number(name, range)) value = static_cast<float>(*number);
}

void read_integer(Fields& fields, const char* name, Range<int64_t> range, int32_t& value) {
  if (const auto number = fields.integer(name, range)) value = static_cast<int32_t>(*number);
}

void read_samplers(Fields& fields, SamplerOptions& sampler) {
  read_number(fields, "temperature", {0.0, 100.0}, sampler.temperature);
  read_number(fields, "top_p", {0.0, 1.0}, sampler.top_p);
  read_integer(fields, "top_k", {-1, kIntegerMax}, sampler.top_k);
  read_number(fields, "min_p", {0.0, 1.0}, sampler.min_p);
  read_number(fields, "typical_p", {0.0, 1.0}, sampler.typical_p);
  read_number(fields, "top_n_sigma", {-1.0, kAny}, sampler.top_n_sigma);
  read_number(fields, "xtc_probability", {0.0, 1.0}, sampler.xtc_probability);
  read_number(fields, "xtc_threshold", {0.0, 1.0}, sampler.xtc_threshold);
  read_number(fields, "dynatemp_range", {0.0, kAny}, sampler.dynatemp_range);
  read_number(fields, "dynatemp_exponent", {0.0, kAny}, sampler.dynatemp_exponent);
  read_integer(fields, "mirostat", {0, 2}, sampler.mirostat);
  read_number(fields, "mirostat_tau", {0.0, kAny}, sampler.mirostat_tau);
  read_number(fields, "mirostat_eta", {0.0, kAny}, sampler.mirostat_eta);
  read_number(fields, "dry_multiplier", {0.0, kAny}, sampler.dry_multiplier);
  read_number(fields, "dry_base", {0.0, kAny}, sampler.dry_base);
  read_integer(fields, "dry_allowed_length", {0, kIntegerMax}, sampler.dry_allowed_length);
  read_integer(fields, "dry_penalty_last_n", {-1, kIntegerMax}, sampler.dry_penalty_last_n);
  if (auto breakers = fields.texts("dry_sequence_breakers", 64)) {
    sampler.dry_sequence_breakers = std::move(*breakers);
  }
}

// false bans a token, as -100 and less do, which OpenAI says.
std::optional<float> read_bias(const Json& bias) {
  if (!bias.is_number() && bias != false) return std::nullopt;
  const double value = bias == false ? -100.0 : bias.get<double>();
  if (value <= -100.0) return -std::numeric_limits<float>::infinity();
  if (!(value <= kAny)) return std::nullopt;  // no float, and plus infinity has no probability
  return static_cast<float>(value);
}

// {"id": bias}, or llama.cpp's [[id, bias]]; words stand for their tokens.
void read_biases(Fields& fields, GenerationFields& read) {
  const Json* biases = fields.find("logit_bias");
  if (biases == nullptr) return;
  const std::string param = fields.full_name("logit_bias");
  const auto add = [&](const Json& token, const Json& bias, const Json& found) {
    const auto value = read_bias(bias);
    const Result<int64_t> id = json_int(token, "logit_bias");
    if (value && token.is_string()) {
      read.word_biases.emplace_back(token.get<std::string>(), *value);
    } else if (value && id.ok() && *id >= 0 && *id < kTokenEnd) {
      read.sampler.logit_bias.push_back({static_cast<TokenId>(*id), *value});
    } else {
      fields.fail(bad_field(
          param, formatted("{}: {}, expected a token and a number", param, json_excerpt(found))));
    }
  };
  if (biases->is_array()) {
    for (const Json& pair : *biases) {
      const bool is_pair = pair.is_array() && pair.size() == 2;
      add(is_pair ? pair[0] : Json(), is_pair ? pair[1] : Json(), pair);
    }
    return;
  }
  if (fields.object("logit_bias") == nullptr) return;
  for (const auto& [name, bias] : biases->items()) {
    int64_t token = 0;
    const char* end = name.data() + name.size();
    const auto parsed = std::from_chars(name.data(), end, token);
    const bool is_token = parsed.ec == std::errc() && parsed.ptr == end;
    add(is_token ? Json(token) : Json(name), bias, Json{{name, bias}});
  }
}

void read_penalties(Fields& fields, SamplerOptions& sampler) {
  // vLLM's name, whose penalty looks at the whole text.
  if (fields.has("repetition_penalty") && !fields.has("repeat_penalty")) {
    read_number(fields, "repetition_penalty", {0.0, 10.0}, sampler.repeat_penalty);
    sampler.repeat_last_n = -1;
  }
  read_number(fields, "repeat_penalty", {0.0, 10.0}, sampler.repeat_penalty);
  read_integer(fields, "repeat_last_n", {-1, kIntegerMax}, sampler.repeat_last_n);
  read_number(fields, "presence_penalty", {-2.0, 2.0}, sampler.presence_penalty);
  read_number(fields, "frequency_penalty", {-2.0, 2.0}, sampler.frequency_penalty);
  const bool penalised = fields.has("presence_penalty") || fields.has("frequency_penalty");
  // OpenAI's penalties look at the whole text.
  if (penalised && !fields.has("repeat_last_n")) sampler.repeat_last_n = -1;
}

// llama.vim and SillyTavern name these in every request. No step here joins tokens of one
// beginning, and the other two do nothing unless another field asks for them.
constexpr std::array<std::string_view, 3> kNoSteps = {"infill", "adaptive_p", "tfs_z"};

// Names or letters, as llama.cpp has them.
void read_order(Fields& fields, SamplerOptions& sampler) {
  const Json* given = fields.find("samplers");
  if (given == nullptr) return;
  const std::string name = fields.full_name("samplers");
  Result<std::vector<SamplerStep>> order = std::vector<SamplerStep>();
  if (given->is_string()) {
    order = parse_sampler_letters(given->get_ref<const std::string&>());
  } else {
    const auto names = fields.texts("samplers", 64);
    if (!names) return;
    std::string joined;
    for (const std::string& one : *names) {
      if (std::ranges::find(kNoSteps, one) != kNoSteps.end()) continue;
      joined += (joined.empty() ? "" : ";") + (one == "typical_p" ? "typ_p" : one);
    }
    order = parse_sampler_order(joined);
  }
  if (order.ok()) {
    sampler.samplers = std::move(order).value();
  } else {
    fields.fail(bad_field(name, formatted("{}: {}", name, order.error().message())));
  }
}

std::vector<TokenId> read_tokens(Fields& fields, std::string_view name) {
  std::vector<TokenId> tokens;
  const Json* list = fields.array(name);
  for (size_t i = 0; list != nullptr && i < list->size(); ++i) {
    const Result<int64_t> id = json_int((*list)[i], name);
    if (!id.ok() || *id < 0 || *id >= kTokenEnd) {
      const std::string param = formatted("{}[{}]", fields.full_name(name), i);
      fields.fail(bad_field(param, formatted("{} is {}, expected the id of a token", param,
                                             json_excerpt((*list)[i]))));
      return {};
    }
    tokens.push_back(static_cast<TokenId>(*id));
  }
  return tokens;
}

}  // namespace

SamplerOptions read_sampler(Fields& fields, const SamplerOptions& defaults) {
  SamplerOptions sampler = defaults;
  read_samplers(fields, sampler);
  read_penalties(fields, sampler);
  read_order(fields, sampler);
  if (defaults.seed == 0) {
    // 53 bits, which JSON numbers carry through any client.
    std::random_device random;
    sampler.seed = (uint64_t{random()} << 21) ^ random();
  }
  using Limits = std::numeric_limits<int64_t>;
  if (const auto seed = fields.integer("seed", {Limits::min(), Limits::max()})) {
    if (*seed != -1) sampler.seed = static_cast<uint64_t>(*seed);
  }
  const Status valid = validate(sampler);
  if (!valid.ok()) {
    // It begins with the field's name, but for one that counts breakers.
    std::string message = valid.error().message();
    if (message.starts_with("repeat_penalty") && !fields.has("repeat_penalty")) {
      message.replace(0, std::string_view("repeat_penalty").size(), "repetition_penalty");
    }
    const std::string name = message.substr(0, message.find_first_of(" :"));
    const bool is_name = name.find_first_of("0123456789") != 0;
    fields.fail(is_name ? bad_field(fields.full_name(name), fields.full_name(message))
                        : api_error(valid.error()));
  }
  return sampler;
}

GenerationFields read_shared_generation(Fields& fields, const SamplerOptions& defaults) {
  GenerationFields read{.sampler = read_sampler(fields, defaults)};
  read_biases(fields, read);
  read.reuse_states = fields.boolean("cache_prompt").value_or(true);
  read.return_progress = fields.boolean("return_progress").value_or(false);
  read.timings_per_token = fields.boolean("timings_per_token").value_or(false);
  read.ignore_stop_tokens = fields.boolean("ignore_eos").value_or(false);
  read.tokens_min = fields.integer("min_tokens", {0, kIntegerMax}).value_or(0);
  read.stop_tokens = read_tokens(fields, "stop_token_ids");
  read.allowed_tokens = read_tokens(fields, "allowed_token_ids");
  if (fields.has("allowed_token_ids") && read.allowed_tokens.empty()) {
    fields.fail(bad_field(fields.full_name("allowed_token_ids"),
                          fields.full_name("allowed_token_ids") + " is empty: nothing can follow"));
  }
  read.includes_stop = fields.boolean("include_stop_str_in_output").value_or(false);
  return read;
}

GenerationFields read_generation_fields(Fields& fields, const SamplerOptions& defaults) {
  GenerationFields read = read_shared_generation(fields, defaults);
  if (auto stop = fields.texts("stop", kStopsMax)) read.stop = std::move(*stop);
  const char* choices = fields.has("n_cmpl") && !fields.has("n") ? "n_cmpl" : "n";
  read.choices = fields.integer(choices, {1, kChoicesMax}).value_or(1);
  read.stream = fields.boolean("stream").value_or(false);
  if (const Json* options = fields.object("stream_options")) {
    Fields inner(*options, "stream_options");
    read.include_usage = inner.boolean("include_usage").value_or(false);
    if (inner.problem()) fields.fail(*inner.problem());
  }
  return read;
}

std::vector<LogitBias> logit_biases(const GenerationFields& generation,
                                    const Tokenizer& tokenizer) {
  std::vector<LogitBias> biases = generation.sampler.logit_bias;
  for (const auto& [word, bias] : generation.word_biases) {
    const Result<std::vector<TokenId>> ids = tokenizer.encode(word, {});
    if (!ids.ok()) continue;  // a word that is no text is in no answer
    for (const TokenId id : *ids) biases.push_back({id, bias});
  }
  return biases;
}

SamplerOptions sampler_of_choice(const SamplerOptions& first, int64_t choice) {
  SamplerOptions sampler = first;
  sampler.seed += static_cast<uint64_t>(choice);
  return sampler;
}

}  // namespace moeflux::serve
