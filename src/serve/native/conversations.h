// Conversations that are saved under a name, in the form of `moeflux chat`'s files: told of, gone
// on from, deleted.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "chat/conversation.h"
#include "serve/call.h"

namespace moeflux::serve {

/// While it lasts nobody else answers or replaces that conversation.
class Claim {
 public:
  Claim(Context& service, std::string name);
  ~Claim();
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;
  bool is_ours() const { return is_ours_; }

 private:
  Context& service_;
  const std::string name_;
  const bool is_ours_;
};

/// A conversation that a request goes on from.
class SavedConversation {
 public:
  SavedConversation(Context& service, std::string name);

  /// False while somebody else is answered in it.
  bool is_ours() const { return claim_->is_ours(); }
  /// What it is with the request's messages.
  void set(Conversation talk) { talk_ = std::move(talk); }
  /// Saves it with the answer and gives it free; once.
  void add(const AnswerPart& answer);

 private:
  Context& service_;
  const std::string name_;
  std::optional<Claim> claim_;
  Conversation talk_;
};

/// What a chat goes on from and is added to; null where the request names none. Puts the saved
/// messages before the request's. Nothing where there is none such, or it is being answered, which
/// has been answered.
std::optional<std::shared_ptr<SavedConversation>> go_on(Call& call);

// The handlers of its routes.
void list_conversations(Call& call);
void saved_conversation(Call& call);
void save_conversation(Call& call);
void delete_conversation(Call& call);

}  // namespace moeflux::serve
