// An answer on its way to a terminal or a pipe: reasoning faint, calls as notes, what could steer
// the terminal left out.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/result.h"
#include "chat/answer_reader.h"
#include "cli/terminal.h"
#include "schedule/text_request.h"

namespace moeflux {

/// How an answer ended and what was said until then.
struct PrintedAnswer {
  std::string content;
  std::string reasoning;
  std::optional<TextStatistics> statistics;  // none: it failed
  Status status;
};

/// Prints on the scheduler's thread; another waits.
class AnswerPrinter : public TextReceiver {
 public:
  AnswerPrinter(std::shared_ptr<const ChatFormat> format, AnswerOptions options);

  void on_progress(const PromptProgress& progress) override;
  Verdict on_token(const DrawnToken& token) override;
  void on_done(const TextStatistics& statistics) override;
  void on_failed(const Error& error) override;

  /// Until the answer has ended.
  PrintedAnswer wait();

 private:
  enum class Style { kPlain, kFaint };
  void print(const std::vector<OutputEvent>& events);
  void print_text(const std::string& text, Style style);
  void end();

  const std::shared_ptr<const ChatFormat> format_;
  AnswerReader reader_;
  std::optional<ProgressBar> bar_;
  Style style_ = Style::kPlain;
  bool has_text_ = false;  // printed something
  bool at_line_start_ = true;
  PrintedAnswer answer_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool ended_ = false;
};

/// Without what steers a terminal: control characters but newline and tab.
std::string harmless(std::string_view text);

}  // namespace moeflux
