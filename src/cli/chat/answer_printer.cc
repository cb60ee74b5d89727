#include "cli/chat/answer_printer.h"

#include <utility>

#include "base/format.h"

namespace moeflux {
namespace {

constexpr int64_t kBarTokens = 256;  // a shorter prompt needs no bar

}  // namespace

std::string harmless(std::string_view text) {
  std::string shown;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool is_control = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f;
    // U+0080 to U+009F, which some terminals obey too.
    const bool is_c1 =
        byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    if (is_c1) {
      ++i;
    } else if (!is_control) {
      shown += text[i];
    }
  }
  return shown;
}

AnswerPrinter::AnswerPrinter(std::shared_ptr<const ChatFormat> format, AnswerOptions options)
    : format_(std::move(format)), reader_(*format_, std::move(options)) {}

void AnswerPrinter::on_progress(const PromptProgress& progress) {
  const int64_t total = progress.total - progress.cached;
  if (total < kBarTokens || progress.queue_position > 0) return;
  if (!bar_) bar_.emplace("prompt", static_cast<uint64_t>(total), ProgressUnit::kTokens);
  bar_->update(static_cast<uint64_t>(progress.processed));
}

Verdict AnswerPrinter::on_token(const DrawnToken& token) {
  std::vector<OutputEvent> events;
  AnswerReader::Next next;
  if (token.is_stop) {
    if (!token.text.empty()) reader_.push(-1, token.text, events);
    reader_.push_stop_token(token.token, events);
  } else {
    next = reader_.push(token.token, token.text, events);
  }
  print(events);
  return {.stop = next.stop || !answer_.status.ok(), .forced = std::move(next.forced)};
}

void AnswerPrinter::on_done(const TextStatistics& statistics) {
  std::vector<OutputEvent> events;
  reader_.finish(events, statistics.reason);
  print(events);
  answer_.statistics = statistics;
  end();
}

void AnswerPrinter::on_failed(const Error& error) {
  answer_.status = error;
  end();
}

PrintedAnswer AnswerPrinter::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ended_; });
  return std::move(answer_);
}

void AnswerPrinter::print(const std::vector<OutputEvent>& events) {
  if (!events.empty()) bar_.reset();
  for (const OutputEvent& event : events) {
    switch (event.kind) {
      case OutputKind::kReasoning:
        answer_.reasoning += event.text;
        print_text(event.text, Style::kFaint);
        break;
      case OutputKind::kContent:
        answer_.content += event.text;
        print_text(event.text, Style::kPlain);
        break;
      case OutputKind::kCallBegin:
        print_text(formatted("{}[calls {} ", at_line_start_ ? "" : "\n", event.text),
                   Style::kFaint);
        break;
      case OutputKind::kCallArguments:
        print_text(event.text, Style::kFaint);
        break;
      case OutputKind::kCallEnd:
        print_text("]\n", Style::kFaint);
        break;
      case OutputKind::kMarkup:
        break;
    }
  }
}

void AnswerPrinter::print_text(const std::string& text, Style style) {
  std::string shown = harmless(text);
  // Blank lines between reasoning and answer are the model's habit.
  if (!has_text_ || style != style_) shown.erase(0, shown.find_first_not_of('\n'));
  if (shown.empty() || !answer_.status.ok()) return;
  std::string out;
  if (style != style_ && has_text_ && !at_line_start_) out += '\n';
  if (stdout_is_terminal() && style != style_)
    out += style == Style::kFaint ? "\x1b[2m" : "\x1b[0m";
  if (style != style_ && style == Style::kPlain && has_text_) out += '\n';
  style_ = style;
  has_text_ = true;
  at_line_start_ = shown.back() == '\n';
  answer_.status = print_out(out + shown);
}

void AnswerPrinter::end() {
  bar_.reset();
  std::string rest = style_ == Style::kFaint && stdout_is_terminal() ? "\x1b[0m" : "";
  if (!at_line_start_) rest += '\n';
  if (answer_.status.ok()) answer_.status = print_out(rest);
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

}  // namespace moeflux
