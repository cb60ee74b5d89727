#include "serve/openai/text_answer.h"

#include "serve/openai/chat_answer.h"
#include "serve/wire/wire_json.h"

namespace moeflux::serve {

Json TextEncoder::head(Json choices) const {
  const AnswerIdentity& identity = options_.identity;
  return {{"id", identity.id},
          {"object", "text_completion"},
          {"created", identity.created},
          {"model", identity.model},
          {"system_fingerprint", identity.fingerprint},
          {"choices", std::move(choices)}};
}

Json TextEncoder::choice(size_t index, const std::string& text, Json logprobs, Json reason) const {
  return {{"index", index},
          {"text", text},
          {"logprobs", std::move(logprobs)},
          {"finish_reason", std::move(reason)}};
}

Json TextEncoder::logprobs(const std::vector<ScoredToken>& scored, int64_t& offset) const {
  if (!options_.with_logprobs) return nullptr;
  Json texts = Json::array();
  Json scores = Json::array();
  Json tops = Json::array();
  Json offsets = Json::array();
  for (const ScoredToken& token : scored) {
    const std::string text = spelling_.text(token.token);
    texts.push_back(text);
    offsets.push_back(offset);
    offset += spelling_.characters(token.token);
    if (!token.has_score) {
      scores.push_back(nullptr);
      tops.push_back(nullptr);
      continue;
    }
    scores.push_back(token.logprobs.logprob);
    // Best first: of two with one spelling, parts of characters, the better one stays.
    Json top = Json::object();
    for (const TokenLogit& one : token.logprobs.top) top.emplace(spelling_.text(one.id), one.logit);
    top.emplace(text, token.logprobs.logprob);
    tops.push_back(std::move(top));
  }
  return {{"tokens", std::move(texts)},
          {"token_logprobs", std::move(scores)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

std::string TextEncoder::progress(size_t choice, const PromptProgress& progress) {
  timings_[choice].on_progress(progress);
  if (!options_.generation.return_progress) return {};
  Json frame = head(Json::array({this->choice(choice, "", nullptr, nullptr)}));
  frame["prompt_progress"] = progress_json(progress);
  return data_frame(frame);
}

std::string TextEncoder::delta(const AnswerDelta& delta) {
  Json scores = logprobs(delta.scores, offsets_[delta.choice]);
  Json frame = head(Json::array({choice(delta.choice, delta.text, std::move(scores), nullptr)}));
  if (options_.generation.timings_per_token) frame["timings"] = timings_[delta.choice].on_delta();
  return data_frame(frame);
}

std::string TextEncoder::end(const AnswerPart& answer) {
  answers_.push_back(answer);
  const bool is_last = answers_.size() == options_.choices;
  Json frame = head(Json::array({choice(answers_.size() - 1, "", nullptr, finish_reason(answer))}));
  frame["timings"] = timings_json(answer.statistics);
  if (is_last) frame["moeflux"] = moeflux_json(options_.identity, answers_);
  std::string bytes = data_frame(frame);
  if (!is_last) return bytes;
  if (options_.generation.include_usage) {
    Json usage = head(Json::array());
    usage["usage"] = usage_json(answers_, options_.prompts);
    usage["timings"] = timings_json(answer.statistics);
    bytes += data_frame(usage);
  }
  return bytes.append(kStreamDone);
}

std::string TextEncoder::fail(const ApiError& error) { return data_frame(error_body(error)); }

Json TextEncoder::whole() {
  Json choices = Json::array();
  for (const AnswerPart& answer : answers_) {
    int64_t offset = 0;
    Json scores = logprobs(answer.scores, offset);
    choices.push_back(
        choice(choices.size(), answer.content, std::move(scores), finish_reason(answer)));
  }
  Json json = head(std::move(choices));
  json["usage"] = usage_json(answers_, options_.prompts);
  json["timings"] = timings_json(answers_.front().statistics);
  json["moeflux"] = moeflux_json(options_.identity, answers_);
  return json;
}

}  // namespace moeflux::serve
