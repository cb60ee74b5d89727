// The items of a conversation, as OpenAI's responses have them, as messages of a chat template.
#pragma once

#include <string>

#include "base/json.h"
#include "serve/request/fields.h"

namespace moeflux::serve {

/// Reads items into messages. Several items of the assistant are one message: templates know turns.
/// Problems are left in `fields`.
class ItemReader {
 public:
  explicit ItemReader(Fields& fields) : fields_(fields) {}

  void add_system(std::string text);
  /// Calls and outputs of OpenAI's tools that clients run are calls and results. Items that another
  /// server made for itself, images, sounds and files become lines that say so; media in a question
  /// and items of unknown type are a problem.
  void read(const Json& item, const std::string& path, bool is_question = false);
  Json take();

  /// Whether it is a message of the user.
  static bool is_of_user(const Json& item);

 private:
  void message(const Json& item, const std::string& path, bool is_question);
  void add_assistant_text(Json said);
  void function_call(const Json& item, const std::string& path);
  void function_call_output(const Json& item, const std::string& path);
  void add_call(std::string id, std::string name, std::string arguments);
  void custom_call(const Json& item, const std::string& path);
  void builtin_call(const Json& item, const std::string& path);
  void builtin_output(const Json& item, const std::string& path);
  void reasoning(const Json& item);
  /// A string, or parts of text.
  Json content(const Json& value, const std::string& path, bool is_question);
  Json& assistant();
  void flush();
  std::string text_of(const Json& item, const char* name, const std::string& path);

  Fields& fields_;
  Json messages_ = Json::array();
  Json assistant_;  // or null
};

}  // namespace moeflux::serve
