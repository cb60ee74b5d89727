// Messages with headers that say who speaks to whom, and on which channel.
#include "output/output_machine.h"

namespace moeflux {
namespace {

/// The word behind the last `marker`; nothing without one.
std::string_view word_after(std::string_view header, std::string_view marker) {
  const size_t found = header.rfind(marker);
  if (marker.empty() || found == std::string_view::npos) return {};
  const std::string_view rest = header.substr(found + marker.size());
  return rest.substr(0, rest.find_first_of(" \t\r\n<"));
}

}  // namespace

bool OutputMachine::step_channel_start() {
  holding_ = true;
  in_reasoning_ = false;
  if (output_text::is_space(peek())) {
    eat(1);
    return true;
  }
  const Found found = match(kChannel | kMessage | kStart | kMessageEnd | kRecipient |
                            kReasoningOpen | kSectionOpen | kCallOpen);
  if (found.wait) return false;
  if (found.is(kMessageEnd)) {
    eat(*found.marker);
    drop_held();
  } else if (found.is(kSectionOpen)) {
    meet_marker(*found.marker);
  } else if (found.marker != nullptr) {
    begin_attempt();
    is_marked_ = true;
    raw_.clear();
    state_ = State::kHeader;
  } else {
    holding_ = false;
    state_ = State::kText;
  }
  return true;
}

bool OutputMachine::step_header() {
  const Found found =
      match(kChannel | kMessage | kStart | kMessageEnd | kReasoningOpen | kCallOpen);
  if (found.wait) return false;
  if (found.is(kMessage)) {
    eat(*found.marker);
    end_header();
  } else if (found.is(kReasoningOpen)) {
    eat(*found.marker);
    begin_message(true);
  } else if (found.is(kCallOpen)) {
    eat(*found.marker);
    state_ = State::kBody;
  } else if (found.is(kMessageEnd)) {  // a message without a text
    eat(*found.marker);
    drop_held();
    state_ = State::kChannelStart;
  } else if (found.marker != nullptr) {
    raw_ += found.marker->text;
    eat(*found.marker);
  } else if (raw_.size() >= output_text::kHeaderBytesMax) {
    misfit();
  } else {
    raw_ += peek();
    eat(1);
  }
  return true;
}

void OutputMachine::end_header() {
  const std::string_view recipient = word_after(raw_, "to=");
  const bool calls = format_->addressed && format_->call_open.empty();  // by the recipient alone
  if (calls && !recipient.empty() && recipient != "assistant" && recipient != "user" &&
      recipient != "all") {
    name_ = recipient;
    if (name_.starts_with("functions.")) name_.erase(0, 10);
    if (!name_.empty()) {
      state_ = State::kArguments;
      return;
    }
  }
  begin_message(!format_->channel.empty() &&
                word_after(raw_, format_->channel.front()) == format_->reasoning_channel);
}

void OutputMachine::begin_message(bool reasons) {
  drop_held();
  holding_ = false;
  in_reasoning_ = reasons;
  if (reasons) reasoning_seen_ = true;
  state_ = State::kText;
}

}  // namespace moeflux
