// The blocks of a conversation, as Anthropic's messages have them, as messages of a chat template.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "serve/anthropic/request.h"
#include "serve/request/fields.h"

namespace moeflux::serve {

/// Reads messages one behind the other. Problems are left in `fields`.
class BlockReader {
 public:
  /// Both must outlive it.
  BlockReader(Fields& fields, const MessagesOptions& options)
      : fields_(fields), options_(options) {}

  void read_system(const Json& system);
  /// Images and documents become lines that say so; in a question, the last message of the user,
  /// they are a problem, but in results of tools.
  void read_message(const Json& message, const std::string& path, bool is_question);
  Json take() { return std::move(messages_); }

 private:
  void user(const Json& content, const std::string& path, bool is_question);
  void assistant(const Json& content, const std::string& path);
  void late_system(const Json& content, const std::string& path);
  void tool_result(const Json& block, const std::string& path);
  void tool_use(const Json& block, const std::string& path, Json& calls);
  /// Adds a block that is text, or stands for one, to `parts`; else a problem.
  void add_block(const Json& block, const std::string& path, bool is_question, Json& parts);
  /// Text of a string or of blocks, without nonces if it is a system's.
  Json text_parts(const Json& content, const std::string& path, bool is_system);
  void flush_user(Json& parts);
  std::string text_of(const Json& block, const char* name, const std::string& path);
  void wrong(const std::string& path, const std::string& found, std::string_view expected);
  void unreadable(const std::string& path, const std::string& type);

  Fields& fields_;
  const MessagesOptions& options_;
  Json messages_ = Json::array();
};

}  // namespace moeflux::serve
