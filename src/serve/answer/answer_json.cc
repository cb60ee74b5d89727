#include "serve/answer/answer_json.h"

#include <algorithm>
#include <chrono>
#include <random>

namespace moeflux::serve {

Json TokenSpelling::bytes(TokenId token) const {
  Json bytes = Json::array();
  for (const char c : tokenizer_.token_bytes(token)) bytes.push_back(static_cast<uint8_t>(c));
  return bytes;
}

int64_t TokenSpelling::characters(TokenId token) const {
  const std::string_view bytes = tokenizer_.token_bytes(token);
  return std::count_if(bytes.begin(), bytes.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

Json scores_json(const std::vector<ScoredToken>& scores, const TokenSpelling& spelling) {
  const auto entry_of = [&](TokenId token, float logprob) {
    return Json{
        {"token", spelling.text(token)}, {"logprob", logprob}, {"bytes", spelling.bytes(token)}};
  };
  Json entries = Json::array();
  for (const ScoredToken& score : scores) {
    Json entry = entry_of(score.token, score.logprobs.logprob);
    entry["top_logprobs"] = Json::array();
    for (const TokenLogit& top : score.logprobs.top) {
      entry["top_logprobs"].push_back(entry_of(top.id, top.logit));
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

Json usage_json(const std::vector<AnswerPart>& answers, size_t prompts) {
  const size_t each = answers.size() / prompts;
  int64_t prompt = 0;
  int64_t cached = 0;
  int64_t generated = 0;
  int64_t reasoning = 0;
  for (size_t i = 0; i < answers.size(); ++i) {
    const TextStatistics& statistics = answers[i].statistics;
    generated += statistics.generated_tokens;
    reasoning += answers[i].reasoning_tokens;
    if (i % each != 0) continue;
    prompt += statistics.prompt_tokens;
    cached += statistics.cached_tokens;
  }
  return {{"prompt_tokens", prompt},
          {"completion_tokens", generated},
          {"total_tokens", prompt + generated},
          {"prompt_tokens_details", {{"cached_tokens", cached}}},
          {"completion_tokens_details", {{"reasoning_tokens", reasoning}}}};
}

Json timings_json(const TextStatistics& statistics) {
  const auto rate = [](double count, double seconds) {
    return seconds > 0 ? count / seconds : 0.0;
  };
  const int64_t fresh = statistics.prompt_tokens - statistics.cached_tokens;
  const auto prompt = static_cast<double>(fresh);
  // The first token comes of the prompt's last step.
  const auto steps = static_cast<double>(std::max<int64_t>(statistics.generated_tokens - 1, 0));
  Json json = {{"cache_n", statistics.cached_tokens},
               {"prompt_n", fresh},
               {"prompt_ms", statistics.prefill_seconds * 1e3},
               {"prompt_per_token_ms", rate(statistics.prefill_seconds * 1e3, prompt)},
               {"prompt_per_second", rate(prompt, statistics.prefill_seconds)},
               {"predicted_n", statistics.generated_tokens},
               {"predicted_ms", statistics.decode_seconds * 1e3},
               {"predicted_per_token_ms", rate(statistics.decode_seconds * 1e3, steps)},
               {"predicted_per_second", rate(steps, statistics.decode_seconds)},
               {"queued_ms", statistics.queued_seconds * 1e3}};
  if (statistics.drafts.drafted > 0) {
    json["draft_n"] = statistics.drafts.drafted;
    json["draft_n_accepted"] = statistics.drafts.accepted;
    json["draft_gain"] = statistics.drafts.gain();
  }
  return json;
}

Json moeflux_json(const AnswerIdentity& identity, const std::vector<AnswerPart>& answers) {
  ExpertStats experts;
  for (const AnswerPart& answer : answers) experts += answer.statistics.experts;
  const uint64_t uses = experts.hits + experts.misses;
  const double rate =
      uses == 0 ? 1.0 : static_cast<double>(experts.hits) / static_cast<double>(uses);
  Json json = {{"seed", static_cast<int64_t>(identity.seed)},  // as a request has it
               {"expert_hit_rate", uses == 0 ? Json() : Json(rate)},
               {"bytes_read", experts.bytes_read},
               {"stall_ms", static_cast<double>(experts.stall_us) / 1e3}};
  if (!identity.ignored.empty()) json["ignored"] = identity.ignored;
  if (!identity.routes.empty()) json["routes"] = identity.routes;
  return json;
}

Json progress_json(const PromptProgress& progress) {
  return {{"total", progress.total},
          {"cache", progress.cached},
          {"processed", progress.processed},
          {"time_ms", progress.seconds * 1e3},
          {"queue_position", progress.queue_position}};
}

std::string make_id(std::string_view prefix) {
  static constexpr std::string_view kLetters =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  std::random_device random;
  std::string id(prefix);
  for (int i = 0; i < 24; ++i) id += kLetters[random() % kLetters.size()];
  return id;
}

int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace moeflux::serve
