// A response of OpenAI's that has ended, as it is kept: with the items that it answered and those
// of the conversation before them. So each stands by itself, whatever becomes of earlier ones.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace moeflux::serve {

struct StoredResponse {
  Json earlier = Json::array();  // items of the responses that it went on from
  Json input = Json::array();    // items that it answered
  Json response;                 // as the client has it
  bool continues = false;        // it went on with the text of the last item before it

  /// All items, questions and answers, oldest first: what one that goes on from it has before. An
  /// answer that continued a message is one with it.
  Json conversation() const;

  std::string text() const;
  /// Fails with kCorruption, naming `what`, for what text() cannot have written.
  static Result<StoredResponse> parse(std::string_view text, std::string_view what);
};

}  // namespace moeflux::serve
