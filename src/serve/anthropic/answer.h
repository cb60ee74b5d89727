// Anthropic's messages: an answer as blocks, whole or as events.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "serve/answer/answer_json.h"
#include "serve/answer/item_encoder.h"

namespace moeflux::serve {

struct MessageAnswerOptions {
  AnswerIdentity identity;
  int64_t prompt_tokens = 0;
  int64_t tokens_max = -1;  // as asked; negative: no limit
};

/// The body of an answer that says what is wrong.
std::string anthropic_error_text(const ApiError& error, std::string_view request_id = {});

class MessageEncoder : public ItemEncoder {
 public:
  explicit MessageEncoder(MessageAnswerOptions options) : options_(std::move(options)) {}

  std::string begin() override;
  std::string end(const AnswerPart& answer) override;
  std::string fail(const ApiError& error) override;
  Json whole() override;

 private:
  std::string opened(size_t index, const AnswerItem& item) override;
  std::string grown(size_t index, const AnswerItem& item, const AnswerDelta& delta) override;
  std::string closed(size_t index, const AnswerItem& item) override;
  Json message(Json content) const;

  const MessageAnswerOptions options_;
  Json stop_reason_;
  Json stop_sequence_;
  Json usage_;
  Json moeflux_;
};

}  // namespace moeflux::serve
