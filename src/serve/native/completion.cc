#include "serve/native/completion.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <optional>
#include <utility>

#include "base/format.h"
#include "serve/openai/completions.h"
#include "serve/openai/constraint_fields.h"
#include "serve/request/chat_request.h"
#include "serve/request/fill_in.h"
#include "serve/wire/wire_json.h"

namespace moeflux::serve {
namespace {

constexpr size_t kResponseFieldsMax = 64;

constexpr std::array kNative = {
    served("model"),
    served("prompt"),
    served("n"),
    served("n_cmpl"),
    served("stop"),
    served("stream"),
    served("stream_options"),
    served("n_predict"),
    served("max_new_tokens", "as n_predict"),
    served("n_indent"),
    served("max_tokens"),
    served("max_completion_tokens"),
    served("n_probs"),
    served("logprobs", "as n_probs"),
    served("post_sampling_probs"),
    served("return_tokens"),
    served("response_fields"),
    served("response_format"),
    served("parse_special"),
    served("add_special_tokens"),
    refused("chat_format", "no calls are read here"),
    refused("echo", "`prompt` of the answer repeats it", "[false]"),
    refused("multimodal_data", "models here read text", "[[]]"),
    harmless("reasoning_format"),
    harmless("verbose"),
    served("return_progress"),
    served("timings_per_token"),
};

constexpr std::array kInfill = {
    served("input_prefix"),
    served("input_suffix"),
    served("input_extra"),
};

// The first of these that the vocabulary has.
std::optional<TokenId> find_first(const Tokenizer& tokenizer,
                                  std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    if (const auto id = tokenizer.find(name)) return id;
  }
  return std::nullopt;
}

void read_common(Fields& fields, NativeCompletionRequest& request) {
  RawRequest& text = request.text;
  for (const char* name : {"max_new_tokens", "max_tokens", "max_completion_tokens", "n_predict"}) {
    if (const auto most = fields.integer(name, {-2, kTokenCountMax})) {
      text.generation.tokens_max = std::max<int64_t>(*most, -1);
    }
  }
  text.indent_min = fields.integer("n_indent", {0, kTokenCountMax}).value_or(0);
  const char* scores = fields.has("n_probs") ? "n_probs" : "logprobs";
  const int64_t count = fields.integer(scores, {0, kTopLogprobsMax}).value_or(0);
  text.logprobs = count > 0 ? static_cast<int32_t>(count) : -1;
  text.sampled_scores = fields.boolean("post_sampling_probs").value_or(false);
  request.return_tokens = fields.boolean("return_tokens").value_or(false);
  text.tells_tokens = text.generation.stream || request.return_tokens;
  if (auto names = fields.texts("response_fields", kResponseFieldsMax)) {
    request.response_fields = std::move(*names);
  }
  text.constraint = read_constraint(fields, read_response_format(fields));
  (void)fields.has("model");  // read by who asks for the answer
  text.generation.ignored = fields.ignored();
}

class InfillPrompt {
 public:
  InfillPrompt(Fields& fields, const Tokenizer& tokenizer)
      : fields_(fields), tokenizer_(tokenizer) {}

  std::vector<TokenId> read() {
    const std::string before = required("input_prefix");
    const std::string behind = required("input_suffix");
    const std::string prompt = fields_.text("prompt").value_or("");
    const Json* extra = fields_.array("input_extra");
    if (extra != nullptr && !extra->empty()) add_files(*extra);
    if (fields_.problem()) return {};
    const auto marks = find_fill_in_tokens(tokenizer_);
    if (!marks) {
      fields_.fail({.status = 501,
                    .type = "not_supported_error",
                    .message = "/infill needs a model whose vocabulary has tokens for the text "
                               "before, behind and in a gap, as <|fim_prefix|>"});
      return {};
    }
    const auto ids = fill_in_prompt(tokenizer_, *marks, before + prompt, behind);
    if (!ids.ok()) fields_.fail(api_error(ids.error()));
    if (fields_.problem()) return {};
    // Other files come behind what stands before any text.
    const auto first = static_cast<ptrdiff_t>(tokenizer_.prefix().size());
    files_.insert(files_.begin(), ids->begin(), ids->begin() + first);
    files_.insert(files_.end(), ids->begin() + first, ids->end());
    return std::move(files_);
  }

 private:
  std::string required(const char* name) {
    auto text = fields_.text(name);
    if (!text) fields_.fail(bad_field(name, formatted("{} is absent, expected a string", name)));
    return text.value_or("");
  }

  // Other files of the repository, as models with tokens for that have them.
  void add_files(const Json& files) {
    const auto repository =
        find_first(tokenizer_, {"<|repo_name|>", "<|fim_repo|>", "<reponame>", "<repo_name>"});
    const auto separator = find_first(tokenizer_, {"<|file_sep|>", "<file_sep>"});
    const auto begin_file = [&](const std::string& name) {
      if (separator) files_.push_back(*separator);
      add(name + "\n");
    };
    if (repository) {
      files_.push_back(*repository);
      add("repository\n");
    }
    for (size_t i = 0; i < files.size() && !fields_.problem(); ++i) {
      Fields file(files[i], formatted("input_extra[{}]", i));
      const std::string name = file.text("filename").value_or("file");
      const auto text = file.text("text");
      const std::string param = file.full_name("text");
      if (!text) file.fail(bad_field(param, param + " is absent, expected a string"));
      if (file.problem()) return fields_.fail(*file.problem());
      begin_file(name);
      add(*text + "\n");
    }
    if (separator) begin_file("file");
  }

  void add(const std::string& text) {
    const auto ids = tokenizer_.encode(text, {.match_added_tokens = false});
    if (!ids.ok()) return fields_.fail(api_error(ids.error()));
    files_.insert(files_.end(), ids->begin(), ids->end());
  }

  Fields& fields_;
  const Tokenizer& tokenizer_;
  std::vector<TokenId> files_;
};

std::string_view stop_type(const AnswerPart& part) {
  if (!part.stopped_by.empty()) return "word";
  return part.statistics.reason == FinishReason::kStopToken ? "eos" : "limit";
}

Json ids_json(const std::vector<ScoredToken>& tokens) {
  Json ids = Json::array();
  for (const ScoredToken& token : tokens) ids.push_back(token.token);
  return ids;
}

// They are the model's own, or those of what was drawn from, which are told as they are.
Json probabilities_json(const std::vector<ScoredToken>& tokens, const TokenSpelling& spelling,
                        bool sampled) {
  const auto entry = [&](TokenId id, float logprob) {
    Json one = {{"id", id}, {"token", spelling.text(id)}, {"bytes", spelling.bytes(id)}};
    if (sampled) {
      one["prob"] = std::exp(logprob);
    } else {
      one["logprob"] = std::max(logprob, std::numeric_limits<float>::lowest());
    }
    return one;
  };
  const char* tops = sampled ? "top_probs" : "top_logprobs";
  Json all = Json::array();
  for (const ScoredToken& token : tokens) {
    Json one = entry(token.token, token.logprobs.logprob);
    one[tops] = Json::array();
    for (const TokenLogit& top : token.logprobs.top) {
      one[tops].push_back(entry(top.id, top.logit));
    }
    all.push_back(std::move(one));
  }
  return all;
}

// "timings/prompt_n": a member of a member, under that name.
Json picked(const Json& answer, const std::vector<std::string>& names) {
  if (names.empty()) return answer;
  Json some = Json::object();
  for (const std::string& name : names) {
    const Json* at = &answer;
    for (size_t begin = 0; at != nullptr && begin <= name.size();) {
      const size_t end = std::min(name.find('/', begin), name.size());
      const auto found = at->is_object() ? at->find(name.substr(begin, end - begin)) : at->end();
      at = at->is_object() && found != at->end() ? &*found : nullptr;
      begin = end + 1;
    }
    if (at != nullptr) some[name] = *at;
  }
  return some;
}

}  // namespace

const FieldList& native_completion_field_list() {
  static const FieldList kList("/completion",
                               {kNative, generation_rows(), constraint_rows(), other_rows()});
  return kList;
}

const FieldList& infill_field_list() {
  static const FieldList kList(
      "/infill", {kInfill, kNative, generation_rows(), constraint_rows(), other_rows()});
  return kList;
}

DecodedNativeCompletion decode_native_completion(const Json& body, const SamplerOptions& defaults,
                                                 const Tokenizer& tokenizer) {
  Fields fields(body, native_completion_field_list());
  NativeCompletionRequest request;
  request.text.generation = read_generation_fields(fields, defaults);
  request.is_batch = read_prompts(fields, tokenizer, request.text);
  read_common(fields, request);
  if (fields.problem()) return *fields.problem();
  return request;
}

DecodedNativeCompletion decode_infill(const Json& body, const SamplerOptions& defaults,
                                      const Tokenizer& tokenizer) {
  Fields fields(body, infill_field_list());
  NativeCompletionRequest request;
  request.text.generation = read_generation_fields(fields, defaults);
  for (const char* name : {"parse_special", "add_special_tokens"}) (void)fields.has(name);
  request.text.prompts.push_back(InfillPrompt(fields, tokenizer).read());
  read_common(fields, request);
  if (fields.problem()) return *fields.problem();
  return request;
}

NativeEncoder::NativeEncoder(AnswerIdentity identity, NativeCompletionRequest request,
                             const Tokenizer& tokenizer)
    : identity_(std::move(identity)),
      request_(std::move(request)),
      tokenizer_(tokenizer),
      spelling_(tokenizer),
      told_(request_.text.prompts.size() * static_cast<size_t>(request_.text.generation.choices)) {}

const std::vector<TokenId>& NativeEncoder::prompt_of(size_t choice) const {
  const auto& prompts = request_.text.prompts;
  return prompts[choice / (told_.size() / prompts.size())];
}

Json NativeEncoder::piece(size_t choice, const std::string& text,
                          const std::vector<ScoredToken>& scores) const {
  return {{"index", choice},
          {"content", text},
          {"tokens", ids_json(scores)},
          {"stop", false},
          {"id_slot", -1},
          {"tokens_predicted", told_[choice].tokens},
          {"tokens_evaluated", prompt_of(choice).size()}};
}

std::string NativeEncoder::progress(size_t choice, const PromptProgress& progress) {
  RunningTimings& timings = told_[choice].timings;
  timings.on_progress(progress);
  const GenerationFields& asked = request_.text.generation;
  if (!asked.return_progress) return {};
  Json frame = piece(choice, "", {});
  frame["prompt_progress"] = progress_json(progress);
  if (asked.timings_per_token) frame["timings"] = timings.so_far();
  return data_frame(frame);
}

std::string NativeEncoder::delta(const AnswerDelta& delta) {
  Told& told = told_[delta.choice];
  told.tokens += static_cast<int64_t>(delta.scores.size());
  if (!streams()) return {};
  if (delta.scores.empty()) {
    told.rest += delta.text;
    return {};
  }
  Json frame = piece(delta.choice, delta.text, delta.scores);
  if (request_.text.generation.timings_per_token) frame["timings"] = told.timings.on_delta();
  if (request_.text.logprobs > 0) {
    frame["completion_probabilities"] =
        probabilities_json(delta.scores, spelling_, request_.text.sampled_scores);
  }
  return data_frame(frame);
}

// In llama.cpp's words, with the values in force.
Json NativeEncoder::settings() const {
  const GenerationFields& generation = request_.text.generation;
  const SamplerOptions& sampler = generation.sampler;
  Json samplers = Json::array();
  for (const SamplerStep step : sampler.samplers) samplers.push_back(sampler_order_names({step}));
  // JSON has no word for a token that is never drawn but null.
  Json biases = Json::array();
  for (const LogitBias& bias : logit_biases(generation, tokenizer_)) {
    biases.push_back(
        {{"token", bias.token}, {"bias", std::isfinite(bias.bias) ? Json(bias.bias) : Json()}});
  }
  for (const TokenId token : request_.never_drawn) {
    biases.push_back({{"token", token}, {"bias", nullptr}});
  }
  return {{"seed", sampler.seed},
          {"temperature", sampler.temperature},
          {"dynatemp_range", sampler.dynatemp_range},
          {"dynatemp_exponent", sampler.dynatemp_exponent},
          {"top_k", sampler.top_k},
          {"top_p", sampler.top_p},
          {"min_p", sampler.min_p},
          {"top_n_sigma", sampler.top_n_sigma},
          {"xtc_probability", sampler.xtc_probability},
          {"xtc_threshold", sampler.xtc_threshold},
          {"typical_p", sampler.typical_p},
          {"repeat_last_n", sampler.repeat_last_n},
          {"repeat_penalty", sampler.repeat_penalty},
          {"presence_penalty", sampler.presence_penalty},
          {"frequency_penalty", sampler.frequency_penalty},
          {"dry_multiplier", sampler.dry_multiplier},
          {"dry_base", sampler.dry_base},
          {"dry_allowed_length", sampler.dry_allowed_length},
          {"dry_penalty_last_n", sampler.dry_penalty_last_n},
          {"dry_sequence_breakers", sampler.dry_sequence_breakers},
          {"mirostat", sampler.mirostat},
          {"mirostat_tau", sampler.mirostat_tau},
          {"mirostat_eta", sampler.mirostat_eta},
          // llama.cpp's words for a sampler that is off.
          {"adaptive_target", -1.0},
          {"adaptive_decay", 0.9},
          {"stop", generation.stop},
          {"max_tokens", generation.tokens_max},
          {"n_predict", generation.tokens_max},
          {"n_indent", request_.text.indent_min},
          {"ignore_eos", generation.ignore_stop_tokens},
          {"stream", generation.stream},
          {"logit_bias", std::move(biases)},
          {"n_probs", std::max(request_.text.logprobs, 0)},
          {"samplers", std::move(samplers)}};
}

Json NativeEncoder::final_answer(size_t choice, const AnswerPart& part) const {
  const bool with_tokens = !streams() && request_.return_tokens;
  const TextStatistics& statistics = part.statistics;
  Json answer = {{"index", choice},
                 {"content", streams() ? told_[choice].rest : part.content},
                 {"tokens", with_tokens ? ids_json(part.scores) : Json::array()},
                 {"id_slot", -1},
                 {"stop", true},
                 {"model", identity_.model},
                 {"tokens_predicted", statistics.generated_tokens},
                 {"tokens_evaluated", statistics.prompt_tokens},
                 {"generation_settings", settings()},
                 {"prompt", tokenizer_.decode(prompt_of(choice))},
                 {"has_new_line", part.content.find('\n') != std::string::npos},
                 {"truncated", statistics.reason == FinishReason::kContextFull},
                 {"stop_type", stop_type(part)},
                 {"stopping_word", part.stopped_by},
                 {"tokens_cached", statistics.prompt_tokens + statistics.generated_tokens},
                 {"timings", timings_json(statistics)},
                 {"moeflux", moeflux_json(identity_, {part})}};
  if (!streams() && request_.text.logprobs > 0) {
    answer["completion_probabilities"] =
        probabilities_json(part.scores, spelling_, request_.text.sampled_scores);
  }
  return picked(answer, request_.response_fields);
}

std::string NativeEncoder::end(const AnswerPart& answer) {
  ended_.push_back(final_answer(ended_.size(), answer));
  return data_frame(ended_.back());
}

std::string NativeEncoder::fail(const ApiError& error) { return data_frame(error_body(error)); }

Json NativeEncoder::whole() {
  return ended_.size() == 1 && !request_.is_batch ? ended_.front() : ended_;
}

}  // namespace moeflux::serve
