// Ollama's chat and generate: an answer as lines of JSON, or as one.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "serve/answer/answer_encoder.h"
#include "serve/answer/answer_json.h"

namespace moeflux::serve {

struct OllamaAnswerOptions {
  std::string model;
  bool is_chat = true;                 // else generate
  std::function<std::string()> clock;  // the time as Ollama writes it
  /// A generate's, which its client may go on from: the answer tells it and its own as `context`.
  std::optional<std::vector<TokenId>> prompt = {};
  std::vector<std::string> ignored = {};       // names of the request that nobody reads
  std::optional<TokenSpelling> spelling = {};  // where log-probabilities are told
};

/// The body of an answer that says what is wrong.
std::string ollama_error_text(const ApiError& error, std::string_view request_id = {});

class OllamaEncoder : public AnswerEncoder {
 public:
  explicit OllamaEncoder(OllamaAnswerOptions options) : options_(std::move(options)) {}

  std::string begin() override { return {}; }
  std::string delta(const AnswerDelta& delta) override;
  std::string end(const AnswerPart& answer) override;
  std::string fail(const ApiError& error) override;
  Json whole() override { return whole_; }

  /// The answer to a request that asks for nothing.
  Json moved(std::string_view reason) const;
  /// The answer to a request for a prompt alone.
  Json shown(const std::string& prompt) const;

 private:
  Json line(Json said, bool done) const;
  /// The message, where this interface has it.
  Json said(const std::string& content, const std::string& thinking, Json calls) const;

  Json scored(Json line, const std::vector<ScoredToken>& scores) const;
  /// The line of the calls that are complete and not told yet; empty without one.
  std::string call_line();

  const OllamaAnswerOptions options_;
  ToolCall call_;  // the one that is being written
  Json calls_ = Json::array();
  Json untold_ = Json::array();  // of these
  Json whole_;
};

}  // namespace moeflux::serve
