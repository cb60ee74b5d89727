#include "serve/openai/completions.h"

#include <algorithm>
#include <utility>

#include "base/format.h"
#include "serve/fill_in.h"
#include "serve/openai/constraint_fields.h"
#include "serve/openai/field_lists.h"

namespace moeflux::serve {
namespace {

constexpr int64_t kTokensMax = int64_t{1} << 40;
constexpr int64_t kTokensDefault = 16;
constexpr size_t kPromptsMax = 256;

int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

// What stands before a text stands before its first string alone.
class PromptReader {
 public:
  PromptReader(Fields& fields, const Tokenizer& tokenizer)
      : fields_(fields),
        tokenizer_(tokenizer),
        add_special_(fields.boolean("add_special_tokens").value_or(true)),
        parse_special_(fields.boolean("parse_special").value_or(true)) {}

  /// A string, or a list of ids and strings. False where it is neither.
  bool read(const Json& value, std::vector<TokenId>& ids) {
    if (value.is_string()) {
      add_text(value.get_ref<const std::string&>(), true, ids);
      // A model continues something; without a word that is what stands before any text.
      if (ids.empty()) fields_.fail(bad_field("prompt", "prompt has no tokens"));
      return true;
    }
    if (!value.is_array()) return false;
    for (size_t i = 0; i < value.size(); ++i) {
      if (value[i].is_string()) {
        add_text(value[i].get_ref<const std::string&>(), i == 0, ids);
        continue;
      }
      const Result<int64_t> id = json_int(value[i], "prompt");
      if (!id.ok() || *id < 0 || *id >= kTokenEnd) return false;
      ids.push_back(static_cast<TokenId>(*id));
    }
    return !ids.empty();
  }

 private:
  void add_text(const std::string& text, bool is_first, std::vector<TokenId>& ids) {
    const Result<std::vector<TokenId>> encoded = tokenizer_.encode(
        text,
        {.add_special_tokens = add_special_ && is_first, .match_added_tokens = parse_special_});
    if (!encoded.ok()) return fields_.fail(api_error(encoded.error()));
    ids.insert(ids.end(), encoded->begin(), encoded->end());
  }

  Fields& fields_;
  const Tokenizer& tokenizer_;
  const bool add_special_;
  const bool parse_special_;
};

bool is_number(const Json& value) { return value.is_number(); }

Json logprobs_json(const std::vector<CompletionToken>& tokens, const TokenSpelling& spelling) {
  Json texts = Json::array();
  Json scores = Json::array();
  Json tops = Json::array();
  Json offsets = Json::array();
  for (const CompletionToken& token : tokens) {
    texts.push_back(token.text);
    offsets.push_back(token.offset);
    if (!token.has_score) {
      scores.push_back(nullptr);
      tops.push_back(nullptr);
      continue;
    }
    scores.push_back(token.logprobs.logprob);
    // Best first: of two with one spelling, parts of characters, the better one stays.
    Json top = Json::object();
    for (const TokenLogit& one : token.logprobs.top) top.emplace(spelling.text(one.id), one.logit);
    top.emplace(token.text, token.logprobs.logprob);
    tops.push_back(std::move(top));
  }
  return {{"tokens", std::move(texts)},
          {"token_logprobs", std::move(scores)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

std::string reason_of(const CompletionPart& part) {
  const bool is_cut = part.statistics.reason == FinishReason::kTokensMax ||
                      part.statistics.reason == FinishReason::kContextFull;
  return is_cut && !part.stopped ? "length" : "stop";
}

Json frame(const AnswerIdentity& identity, Json choices) {
  return {{"id", identity.id},
          {"object", "text_completion"},
          {"created", identity.created},
          {"model", identity.model},
          {"system_fingerprint", identity.fingerprint},
          {"choices", std::move(choices)}};
}

// Choices of one prompt follow each other, and share it.
Json usage_of(const std::vector<CompletionPart>& parts, size_t prompts) {
  const size_t each = parts.size() / prompts;
  int64_t prompt = 0;
  int64_t cached = 0;
  int64_t generated = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    generated += parts[i].statistics.generated_tokens;
    if (i % each != 0) continue;
    prompt += parts[i].statistics.prompt_tokens;
    cached += parts[i].statistics.cached_tokens;
  }
  return {{"prompt_tokens", prompt},
          {"completion_tokens", generated},
          {"total_tokens", prompt + generated},
          {"prompt_tokens_details", {{"cached_tokens", cached}}}};
}

Json moeflux_of(const AnswerIdentity& identity, const std::vector<CompletionPart>& parts) {
  ExpertStats experts;
  for (const CompletionPart& part : parts) experts += part.statistics.experts;
  return moeflux_json(identity, experts);
}

}  // namespace

bool read_prompts(Fields& fields, const Tokenizer& tokenizer, CompletionRequest& request) {
  PromptReader reader(fields, tokenizer);
  const Json* prompt = fields.find("prompt");
  // Several, unless there is an id among them.
  const bool is_list = prompt != nullptr && prompt->is_array() && !prompt->empty() &&
                       std::none_of(prompt->begin(), prompt->end(), is_number);
  bool is_good = prompt != nullptr && (!is_list || prompt->size() <= kPromptsMax);
  for (size_t i = 0; is_good && i < (is_list ? prompt->size() : 1); ++i) {
    is_good = reader.read(is_list ? (*prompt)[i] : *prompt, request.prompts.emplace_back());
  }
  if (is_good) return is_list;
  fields.fail(bad_field(
      "prompt", formatted("prompt is {}, expected a string, ids of tokens, or at most {} of these",
                          prompt == nullptr ? "absent" : json_excerpt(*prompt), kPromptsMax)));
  return is_list;
}

namespace {

// The answer fills the gap between prompt and suffix.
void read_suffix(Fields& fields, const Tokenizer& tokenizer, CompletionRequest& request) {
  const auto suffix = fields.text("suffix");
  if (!suffix || suffix->empty() || fields.problem()) return;
  const Json* prompt = fields.find("prompt");
  const auto marks = find_fill_in_tokens(tokenizer);
  if (!marks || !prompt->is_string()) {
    return fields.fail(unsupported_field(
        "suffix", marks ? "suffix is given, expected one prompt, a string"
                        : "suffix needs a model whose vocabulary has tokens for the text before, "
                          "behind and in a gap"));
  }
  auto ids = fill_in_prompt(tokenizer, *marks, prompt->get_ref<const std::string&>(), *suffix);
  if (!ids.ok()) return fields.fail(api_error(ids.error()));
  request.prompts = {std::move(ids).value()};
}

}  // namespace

std::variant<CompletionRequest, ApiError> decode_completion_request(const Json& body,
                                                                    const SamplerOptions& defaults,
                                                                    const Tokenizer& tokenizer) {
  Fields fields(body, completion_field_list());
  CompletionRequest request{.generation = read_generation_fields(fields, defaults)};
  read_prompts(fields, tokenizer, request);
  read_suffix(fields, tokenizer, request);
  request.echo = fields.boolean("echo").value_or(false);
  if (const auto count = fields.integer("logprobs", {0, kTopLogprobsMax})) {
    request.logprobs = static_cast<int32_t>(*count);
  }
  request.generation.tokens_max = kTokensDefault;
  for (const char* name : {"max_tokens", "n_predict", "max_completion_tokens"}) {
    if (const auto most = fields.integer(name, {-1, kTokensMax})) {
      request.generation.tokens_max = *most;
    }
  }
  const int64_t best_of = fields.integer("best_of", {1, 8}).value_or(request.generation.choices);
  if (best_of != request.generation.choices) {
    fields.fail(unsupported_field("best_of", "best_of differs from n; all choices are returned"));
  }
  request.skip_special = fields.boolean("skip_special_tokens").value_or(false);
  request.constraint = read_constraint(fields, read_response_format(fields));
  (void)fields.has("model");  // read by who asks for the answer
  request.generation.ignored = fields.ignored();
  if (fields.problem()) return *fields.problem();
  return request;
}

Completion::Completion(const Tokenizer& tokenizer, const CompletionRequest& request,
                       std::vector<TokenId> prompt, std::shared_ptr<CompletionListener> listener)
    : tokenizer_(tokenizer),
      wants_scores_(request.logprobs >= 0),
      wants_tokens_(wants_scores_ || request.tells_tokens),
      echoes_(request.echo),
      skips_special_(request.skip_special),
      prompt_(std::move(prompt)),
      listener_(std::move(listener)),
      stop_(request.generation.stop, request.generation.includes_stop) {}

void Completion::on_prompt_logprobs(std::span<const TokenLogprobs> scores) {
  prompt_scores_.insert(prompt_scores_.end(), scores.begin(), scores.end());
}

void Completion::add_token(TokenId token, const TokenLogprobs* score, CompletionDelta& delta) {
  CompletionToken shown{.token = token, .text = tokenizer_.token_text(token), .offset = offset_};
  offset_ += count_characters(tokenizer_.token_bytes(token));
  shown.has_score = score != nullptr;
  if (score != nullptr) shown.logprobs = *score;
  delta.tokens.push_back(std::move(shown));
}

// The prompt, once, before all else.
bool Completion::echo(CompletionDelta& delta, std::span<const TokenLogprobs> scores) {
  if (!std::exchange(echoes_, false)) return false;
  delta.text = tokenizer_.decode(prompt_, {.skip_special = true});
  for (size_t i = 0; wants_scores_ && i < prompt_.size(); ++i) {
    const bool is_scored = i > 0 && i - 1 < scores.size();
    add_token(prompt_[i], is_scored ? &scores[i - 1] : nullptr, delta);
  }
  return true;
}

Verdict Completion::on_token(const DrawnToken& token) {
  CompletionDelta delta;
  echo(delta, prompt_scores_);
  const bool is_left_out = skips_special_ && tokenizer_.is_special(token.token);
  if (!is_left_out) delta.text += stop_.push(token.text);
  part_.stopped = stop_.stopped();
  part_.stopped_by = stop_.stopped_by();
  if (wants_tokens_ && !token.is_stop) add_token(token.token, token.logprobs, delta);
  return {.stop = stop_.stopped(), .park = tell(std::move(delta))};
}

void Completion::on_done(const TextStatistics& statistics) {
  CompletionDelta delta;
  echo(delta, prompt_scores_);
  if (!stop_.stopped()) delta.text += stop_.finish();
  tell(std::move(delta));
  part_.statistics = statistics;
  listener_->on_done(part_);
}

bool Completion::tell(CompletionDelta delta) {
  if (delta.text.empty() && delta.tokens.empty()) return false;
  part_.text += delta.text;
  part_.tokens.insert(part_.tokens.end(), delta.tokens.begin(), delta.tokens.end());
  return listener_->on_delta(delta);
}

Json text_completion(const AnswerIdentity& identity, const std::vector<CompletionPart>& parts,
                     const TokenSpelling& spelling, bool with_logprobs, size_t prompts) {
  Json choices = Json::array();
  for (size_t i = 0; i < parts.size(); ++i) {
    choices.push_back(
        {{"index", i},
         {"text", parts[i].text},
         {"logprobs", with_logprobs ? logprobs_json(parts[i].tokens, spelling) : Json()},
         {"finish_reason", reason_of(parts[i])}});
  }
  Json body = frame(identity, std::move(choices));
  body["usage"] = usage_of(parts, prompts);
  body["timings"] = timings_json(parts.front().statistics);
  body["moeflux"] = moeflux_of(identity, parts);
  return body;
}

Json text_delta_chunk(const AnswerIdentity& identity, int64_t choice, const CompletionDelta& delta,
                      const TokenSpelling& spelling, bool with_logprobs) {
  return frame(
      identity,
      Json::array({{{"index", choice},
                    {"text", delta.text},
                    {"logprobs", with_logprobs ? logprobs_json(delta.tokens, spelling) : Json()},
                    {"finish_reason", nullptr}}}));
}

Json text_last_chunk(const AnswerIdentity& identity, int64_t choice,
                     const std::vector<CompletionPart>& parts) {
  const CompletionPart& part = parts[static_cast<size_t>(choice)];
  Json body = frame(identity, Json::array({{{"index", choice},
                                            {"text", ""},
                                            {"logprobs", nullptr},
                                            {"finish_reason", reason_of(part)}}}));
  body["timings"] = timings_json(part.statistics);
  if (static_cast<size_t>(choice) + 1 == parts.size())
    body["moeflux"] = moeflux_of(identity, parts);
  return body;
}

Json text_usage_chunk(const AnswerIdentity& identity, const std::vector<CompletionPart>& parts,
                      size_t prompts) {
  Json body = frame(identity, Json::array());
  body["usage"] = usage_of(parts, prompts);
  return body;
}

}  // namespace moeflux::serve
