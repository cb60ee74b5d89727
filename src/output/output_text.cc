// Plain text, the white space around it, and where calls begin and end.
#include "output/output_machine.h"

namespace moeflux {

using output_text::is_space;

uint32_t OutputMachine::text_roles() const {
  uint32_t roles = kReasoningOpen | kSectionOpen | kCallOpen | kDropped | kChannel | kMessage |
                   kStart | kMessageEnd;
  if (format_->has_messages()) {
    roles &= ~uint32_t{kReasoningOpen};  // of headers
    if (in_reasoning_) roles &= ~uint32_t{kSectionOpen | kCallOpen};
  }
  if (in_reasoning_) {
    roles |= kReasoningClose;
    // A second opener at once is a slip; later it is text.
    if (!drop_leading_) roles &= ~uint32_t{kReasoningOpen};
    return roles & ~uint32_t{kDropped};
  }
  if (reasoning_seen_) roles |= kReasoningClose;
  if (calls_ > 0) roles |= kSectionClose | kCallClose;
  if (!content_seen_ && tools_ != nullptr) roles |= kBareOpen;
  return roles;
}

bool OutputMachine::step_text() {
  const Found found = match(text_roles());
  if (found.wait) return false;
  if (found.marker != nullptr) {
    meet_marker(*found.marker);
    return true;
  }
  const bool may_be_call = after_call_ || (is_cut_ && tools_ != nullptr);
  if (may_be_call && drop_cut_marker(found)) return true;
  const bool may_be_reasoning = is_cut_ && (in_reasoning_ || !content_seen_);
  const uint32_t of_reasoning = text_roles() & (kReasoningOpen | kReasoningClose);
  if (may_be_reasoning && drop_cut_marker(match(of_reasoning))) return true;
  if (begin_bare()) return true;
  holding_ = is_space(peek());
  if (holding_) {
    eat(1);
    holding_ = false;
    return true;
  }
  if (drop_leading_) drop_held();
  held_ += peek();
  eat(1);
  emit_text(held_);
  held_.clear();
  return true;
}

void OutputMachine::meet_marker(const Marker& marker) {
  switch (marker.role) {
    case kSectionOpen:
      begin_attempt();
      is_marked_ = true;
      in_section_ = true;
      section_has_calls_ = false;
      eat(marker);
      state_ = State::kSection;
      return;
    case kCallOpen:
    case kBareOpen:
      begin_attempt();
      is_marked_ = marker.role == kCallOpen;
      eat(marker);
      state_ = State::kBody;
      return;
    case kChannel:
    case kMessage:
    case kStart:
      begin_attempt();
      is_marked_ = true;
      raw_.clear();
      state_ = State::kHeader;
      return;
    case kMessageEnd:
      eat(marker);
      drop_held();
      in_reasoning_ = false;
      state_ = State::kChannelStart;
      return;
    default:
      break;
  }
  eat(marker);
  drop_held();
  if (marker.role == kReasoningOpen) {
    in_reasoning_ = true;
    reasoning_seen_ = true;
  }
  if (marker.role == kReasoningClose) in_reasoning_ = false;
  if (marker.role == kSectionClose) in_section_ = false;
  if (marker.role == kSectionClose || marker.role == kCallClose) {
    after_call_ = true;
  } else {
    drop_leading_ = true;
  }
}

/// Calls without any marker, which hold only if they are all the content there is.
bool OutputMachine::begin_bare() {
  if (tools_ == nullptr || following_prompt_ || in_reasoning_) return false;
  if (content_seen_ || calls_ > 0) return false;
  const bool object = peek() == '{' && format_->bare_json;
  const bool list = peek() == '[' && (format_->bare_json || format_->bare_python);
  if (!object && !list) return false;
  if (drop_leading_) drop_held();
  bare_begin_ = reported_;
  bare_text_ = held_;
  bare_ = true;
  is_marked_ = false;
  state_ = State::kBody;
  begin_attempt();
  return true;
}

/// A marker that the end cuts is no text.
bool OutputMachine::drop_cut_marker(const Found& found) {
  if (!found.is_cut) return false;
  eat(input_.size() - at_);
  drop_held();
  return true;
}

bool OutputMachine::step_section() {
  holding_ = true;
  if (is_space(peek())) {
    eat(1);
    return true;
  }
  uint32_t roles = kCallOpen | kSectionOpen | kSectionClose;
  if (section_has_calls_) roles |= kCallClose;
  const Found found = match(roles);
  if (found.wait) return false;
  if (found.is(kSectionClose)) {
    eat(*found.marker);
    drop_held();
    in_section_ = false;
    after_call();
    return true;
  }
  const bool separator = section_has_calls_ && (peek() == ',' || peek() == ';');
  if (found.marker != nullptr) {
    if (found.is(kCallOpen)) begin_attempt();
    eat(*found.marker);
    if (found.is(kCallOpen)) state_ = State::kBody;
  } else if (separator) {
    eat(1);
  } else if (format_->call_open.empty() || (format_->takes_json && peek() == '{')) {
    begin_attempt();
    is_marked_ = !section_has_calls_;
    state_ = State::kBody;
  } else if (held_.find_first_not_of(" \t\r\n") == std::string::npos) {
    after_call();  // the section went on with text
  } else {
    misfit();
  }
  return true;
}

void OutputMachine::after_call() {
  holding_ = false;
  after_call_ = true;
  state_ = format_->has_messages() ? State::kChannelStart : State::kText;
}

bool OutputMachine::step_closing() {
  holding_ = true;
  if (is_space(peek())) {
    eat(1);
    return true;
  }
  const Found found = match(kFenceClose | kCallClose);
  if (found.wait) return false;
  if (found.marker != nullptr) {
    eat(*found.marker);
    drop_held();
    if (found.is(kFenceClose)) return true;
  } else if (drop_cut_marker(found)) {
    return true;
  }
  if (in_section_) {
    state_ = State::kSection;
  } else {
    after_call();
  }
  return true;
}

bool OutputMachine::step_bare_end() {
  if (is_space(peek())) {
    eat(1);
  } else {
    misfit();
  }
  return true;
}

}  // namespace moeflux
