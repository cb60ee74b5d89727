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
  /// It may compute for long here; where it may not, what does so asks for to be called again.
  bool may_take_long = false;
  bool is_put_off = false;

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

/// While it lasts nobody else answers or replaces that conversation.
class Service::Claim {
 public:
  Claim(Service& service, std::string name);
  ~Claim();
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;
  bool is_ours() const { return is_ours_; }

 private:
  Service& service_;
  const std::string name_;
  const bool is_ours_;
};

/// A conversation that a request goes on from.
class Service::Saved {
 public:
  Saved(Service& service, std::string name);

  /// False while somebody else is answered in it.
  bool is_ours() const { return claim_->is_ours(); }
  /// What it is with the request's messages.
  void set(Conversation talk) { talk_ = std::move(talk); }
  /// Saves it with the answer and gives it free; once.
  void add(const AnswerPart& answer);

 private:
  Service& service_;
  const std::string name_;
  std::optional<Claim> claim_;
  Conversation talk_;
};

/// The last part of a path.
inline std::string folder_name(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path.substr(path.find_last_of('/') + 1);
}

}  // namespace moeflux::serve
