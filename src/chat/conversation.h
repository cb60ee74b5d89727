// The messages of a conversation that is kept: what was said, what goes back, what is in a file.
// Knows neither models nor who talks.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace moeflux {

/// Lets `content`, a message's text or its parts, go on with `text`.
void append_text(Json& content, const std::string& text);

/// A text, or parts of text, of the system, a developer, a user, an assistant, whose tool calls may
/// stand in its place, or a tool.
bool is_conversation_message(const Json& message);

class Conversation {
 public:
  /// The system's message, first of all; empty: none. Earlier messages stay.
  void set_system(std::string text);
  void add_user(std::string text);
  /// `calls`: of tools, as OpenAI's clients have them.
  void add_answer(std::string content, std::string reasoning, Json calls = Json::array());
  /// The same for an answer that went on with the last message, an assistant's: it is one message.
  void continue_answer(const std::string& content, const std::string& reasoning,
                       Json calls = Json::array());
  /// Forgets all but the system's message.
  void clear();
  /// Takes the last question and its answer back; the question, or nothing when there is none.
  std::optional<std::string> undo();

  /// As chat templates and OpenAI's clients have them.
  const Json& messages() const { return messages_; }
  /// How many questions were asked.
  int turns() const;
  /// True where a question waits for its answer.
  bool is_open() const;

  /// {"messages": [...]}, what `moeflux template --messages` reads too.
  std::string to_json() const;
  /// The same, or an array of messages. Fails with kCorruption, naming `what`, for what is no
  /// conversation of texts.
  static Result<Conversation> parse(std::string_view text, std::string_view what);
  static Result<Conversation> from_json(Json json, std::string_view what);

 private:
  bool has_system() const;
  Json messages_ = Json::array();
};

}  // namespace moeflux
