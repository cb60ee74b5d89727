// OpenAI's responses: an answer as output items, whole or as numbered events.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "serve/answer/answer_json.h"
#include "serve/answer/item_encoder.h"
#include "serve/openai/running_timings.h"

namespace moeflux::serve {

struct ResponseAnswerOptions {
  AnswerIdentity identity;                     // of an id that begins with "resp_"
  Json echo = Json::object();                  // ResponsesRequest::echo
  std::optional<TokenSpelling> spelling = {};  // of scores; none: they are not told
  bool return_progress = false;                // of the prompt, and
  bool timings_per_token = false;              // both as llama.cpp has them
  /// Told of the response when it has ended well; why it is not kept, where it was to be.
  std::function<std::optional<std::string>(const Json& response)> on_end = {};
};

class ResponseEncoder : public ItemEncoder {
 public:
  explicit ResponseEncoder(ResponseAnswerOptions options) : options_(std::move(options)) {}

  std::string begin() override;
  /// Says that it goes on: clients that count events see a long prompt move.
  std::string progress(size_t choice, const PromptProgress& progress) override;
  std::string end(const AnswerPart& answer) override;
  std::string fail(const ApiError& error) override;
  Json whole() override { return response_; }

 private:
  std::string opened(size_t index, const AnswerItem& item) override;
  std::string grown(size_t index, const AnswerItem& item, const AnswerDelta& delta) override;
  std::string closed(size_t index, const AnswerItem& item) override;

  /// An event with the next number.
  std::string event(const char* type, Json fields);
  Json response(const char* status) const;
  std::string item_id(size_t index, const AnswerItem& item) const;
  Json scores(const std::vector<ScoredToken>& scored) const;
  /// The content of a text or of reasoning.
  Json part(const AnswerItem& item) const;
  Json output_item(size_t index, const AnswerItem& item, const char* status) const;
  /// Fields that say which part of which item an event is about.
  Json place(size_t index, const AnswerItem& item) const;

  const ResponseAnswerOptions options_;
  int64_t events_ = 0;
  RunningTimings timings_;
  double told_seconds_ = 0.0;
  bool is_cut_ = false;  // the last item does not end by itself
  Json response_;
};

}  // namespace moeflux::serve
