// Conversations that are saved under a name, in the form of `moeflux chat`'s files: told of, gone
// on from, deleted.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "chat/conversation.h"
#include "serve/call.h"

namespace moeflux::serve {

/// A conversation that a request goes on from.
class SavedConversation {
 public:
  SavedConversation(ServiceState& state, OwnedName name, std::shared_ptr<KeptAnswer> answer)
      : state_(state), name_(std::move(name)), answer_(std::move(answer)) {}

  const std::shared_ptr<KeptAnswer>& answer() const { return answer_; }
  /// Replaces it by one with the request's messages.
  void set(Conversation talk) { talk_ = std::move(talk); }
  const Json& messages() const { return talk_.messages(); }
  /// Whether the answer goes on with its last message.
  void set_continues(bool continues) { continues_ = continues; }
  /// Saves it with the answer and gives it free; once. Returns an error for the client.
  std::optional<ApiError> add(const AnswerPart& answer);

 private:
  ServiceState& state_;
  const OwnedName name_;
  const std::shared_ptr<KeptAnswer> answer_;
  Conversation talk_;
  bool continues_ = false;
};

/// The conversation that a chat goes on from and is added to, the saved messages before the
/// request's; null where the request names none. Nothing where there is none such, or it is being
/// answered, which has been answered.
std::optional<std::shared_ptr<SavedConversation>> go_on(Call& call);

/// {id, size_bytes, used_at} of a stored object.
Json shelf_json(const ShelfItem& item);

// The handlers of its routes.
void list_conversations(Call& call);
void saved_conversation(Call& call);
void save_conversation(Call& call);
void delete_conversation(Call& call);

}  // namespace moeflux::serve
