// A conversation with an opened model: entries become questions or commands, answers are printed
// and remembered.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "chat/chat_format.h"
#include "chat/conversation.h"
#include "chat/open_model.h"
#include "cli/chat/line_editor.h"
#include "constraint/output_constraint.h"
#include "schedule/scheduler.h"

namespace moeflux {

struct ChatLoopOptions {
  SamplerOptions sampler;
  int64_t tokens_max = -1;  // of an answer
  int64_t reasoning_tokens_max = -1;
  bool ignore_stop_tokens = false;
  std::vector<std::string> stop_strings = {};
  OutputConstraint constraint = {};  // of answers
  std::string system;
  std::optional<bool> think;  // none: as the template does by itself
  Json template_variables = Json::object();
  bool shows_statistics = false;  // after each answer
};

class ChatLoop {
 public:
  static Result<std::unique_ptr<ChatLoop>> start(std::shared_ptr<OpenModel> model,
                                                 std::shared_ptr<const ChatFormat> format,
                                                 ChatLoopOptions options);

  /// Reads entries until /bye or the end of the input. `first`, unless empty, is asked before.
  Status run(LineEditor& editor, const std::string& first);

  /// Whether an answer ended before its schema, grammar or expression was met.
  bool was_cut() const { return was_cut_; }

  /// Stops the answer; false when there is none. Any thread.
  bool interrupt();

 private:
  ChatLoop(std::shared_ptr<OpenModel> model, std::shared_ptr<const ChatFormat> format,
           ChatLoopOptions options);

  /// False after /bye.
  Result<bool> take(const std::string& entry);
  Result<bool> command(std::string_view name, std::string_view rest);
  Status ask(std::string text);
  Status answer();
  Status retry();
  Status save(const std::string& path) const;
  Status load(const std::string& path);
  Status think(std::string_view value);
  void print_statistics() const;
  /// Whether the answer ended before its document was whole.
  bool note_cut(const std::string& content);
  int64_t context_length() const;
  int64_t context_length_max() const;

  const std::shared_ptr<OpenModel> model_;
  const std::shared_ptr<const ChatFormat> format_;
  ChatLoopOptions options_;
  Conversation talk_;
  bool was_cut_ = false;
  uint64_t retries_ = 0;  // of the last question: each draws with a seed of its own
  std::optional<TextStatistics> last_;
  std::mutex mutex_;  // guards what follows
  std::optional<TextRequestId> running_;
  std::unique_ptr<Scheduler> scheduler_;  // last: its thread ends before what it uses
};

}  // namespace moeflux
