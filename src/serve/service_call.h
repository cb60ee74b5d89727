// What the files of Service share about the request at hand.
#pragma once

#include <string>

#include "serve/dialect.h"
#include "serve/service.h"
#include "serve/wire_json.h"

namespace moeflux::serve {

struct Service::Call {
  const Request& request;
  AnswerTarget target;
  Json body;       // of POST
  std::string id;  // of the path

  void answer(const Json& json) const {
    target.response->send(200, {{"Content-Type", "application/json"}}, dump_json(json));
  }
  void fail(const ApiError& error) const { target.fail(error); }
};

struct Service::Chat {
  ChatRequest request;
  ChatPrompt prompt;
  std::string model;                                  // as the client calls it
  std::shared_ptr<const Constraint> constraint = {};  // of each answer, or null
};

/// The last part of a path.
inline std::string folder_name(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path.substr(path.find_last_of('/') + 1);
}

}  // namespace moeflux::serve
