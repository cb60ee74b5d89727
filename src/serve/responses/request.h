// OpenAI's responses: what a request's JSON asks for. Fields and items are those of openai-python's
// types/responses.
#pragma once

#include <variant>

#include "base/json.h"
#include "serve/request/chat_request.h"

namespace moeflux::serve {

struct ResponsesRequest {
  ChatRequest chat;
  Json input = Json::array();  // this request's items, to be kept
  Json echo = Json::object();  // what the response repeats of the request
  bool store = true;
};

/// `earlier`: items of the responses before, oldest first, that this one goes on from.
std::variant<ResponsesRequest, ApiError> decode_responses_request(const Json& body,
                                                                  const RequestDefaults& defaults,
                                                                  const Json& earlier);

}  // namespace moeflux::serve
