// The messages of a conversation in the terminal: what was said, what goes back, what is kept in a
// file. Knows neither models nor terminals.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace moeflux {

class Conversation {
 public:
  /// The system's message, first of all; empty: none. What was said stays.
  void set_system(std::string text);
  void add_user(std::string text);
  void add_answer(std::string content, std::string reasoning);
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

 private:
  bool has_system() const;
  Json messages_ = Json::array();
};

}  // namespace moeflux
