// Calls that are a name with arguments behind it.
#include <algorithm>

#include "base/format.h"
#include "output/element_json.h"
#include "output/output_machine.h"

namespace moeflux {

using output_text::is_name;
using output_text::is_space;
using output_text::kNameBytesMax;

namespace {

bool is_quote(char c) { return c == '"' || c == '\''; }

/// The first word of a tag's inside, out of its quotes; `rest` is what stands behind it.
std::string_view tag_word(std::string_view tag, std::string_view* rest) {
  const size_t begin = tag.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  tag.remove_prefix(begin);
  const bool quoted = is_quote(tag.front());
  const size_t end = quoted ? tag.find(tag.front(), 1) : tag.find_first_of(" \t");
  *rest = end == std::string_view::npos ? std::string_view() : tag.substr(end);
  return quoted ? tag.substr(1, std::min(end, tag.size()) - 1) : tag.substr(0, end);
}

/// A tag's word about its value: "true" of a string, "false" of JSON; empty without one.
std::string_view string_attribute(std::string_view attributes) {
  const auto value_of = [&](std::string_view attribute) -> std::string_view {
    const size_t found = attributes.find(attribute);
    std::string_view rest;
    return found == std::string_view::npos
               ? std::string_view()
               : tag_word(attributes.substr(found + attribute.size()), &rest);
  };
  const std::string_view type = value_of("type=");
  if (!type.empty()) return type == "string" ? "true" : "false";
  return value_of("string=");
}

}  // namespace

bool OutputMachine::step_body() {
  if (is_space(peek())) {
    eat(1);
    return true;
  }
  const Found found = match(kNamePrefix);
  if (found.wait) return false;
  if (found.marker != nullptr) {
    eat(*found.marker);
    return true;
  }
  const bool json = format_->takes_json || (bare_ && format_->bare_json);
  const bool python = format_->takes_python || (bare_ && format_->bare_python);
  if (peek() == '{' && json) {
    in_list_ = false;
    begin_object();
  } else if (peek() == '[' && (json || python)) {
    eat(1);
    in_list_ = true;
    list_has_items_ = false;
    state_ = State::kList;
  } else if (format_->takes_named &&
             (is_name(peek()) || (format_->name_in_tag && is_quote(peek())))) {
    raw_.clear();
    state_ = State::kName;
  } else {
    misfit();
  }
  return true;
}

bool OutputMachine::step_name() {
  const char c = peek();
  if (raw_.size() >= kNameBytesMax) {
    misfit();
  } else if (format_->name_in_tag) {
    const Found end = match(kNameClose);
    if (end.wait) return false;
    const bool ends = format_->name_close.empty() ? c == '>' : end.marker != nullptr;
    if (!ends && (c == '\n' || c == '<')) {
      misfit();
      return true;
    }
    eat(end.marker == nullptr ? 1 : end.marker->text.size());
    if (!ends) {
      raw_ += c;
      return true;
    }
    take_name();
    if (name_.empty()) {
      misfit();
    } else {
      state_ = State::kArguments;
    }
  } else if (is_name(c)) {
    raw_ += c;
    eat(1);
  } else {
    take_name();
    state_ = State::kNameClose;
  }
  return true;
}

void OutputMachine::take_name() {
  if (format_->name_in_tag) {
    std::string_view rest;
    name_ = tag_word(raw_, &rest);
    return;
  }
  name_ = raw_;
  if (format_->ids != CallIdRule::kFromName) return;
  if (name_.starts_with("functions.")) name_.erase(0, 10);
  const size_t colon = name_.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == name_.size() ||
      name_.find_first_not_of("0123456789", colon + 1) != std::string::npos) {
    return;
  }
  name_.erase(colon);
  id_ = raw_;
}

bool OutputMachine::step_name_close() {
  if (is_space(peek())) {
    eat(1);
    return true;
  }
  if (name_.empty()) {
    misfit();
    return true;
  }
  if (format_->name_close.empty()) {
    state_ = State::kArguments;
    return true;
  }
  const Found found = match(kNameClose | kIdOpen | (id_.empty() ? kIdClose : 0u));
  if (found.wait) return false;
  if (found.marker == nullptr) {
    misfit();
    return true;
  }
  eat(*found.marker);
  if (found.is(kIdClose)) {
    id_ = std::exchange(name_, {});
    state_ = State::kBody;
    return true;
  }
  state_ = found.is(kNameClose) ? State::kArguments : State::kCallId;
  return true;
}

bool OutputMachine::step_call_id() {
  if (is_name(peek()) && id_.size() < kNameBytesMax) {
    id_ += peek();
    eat(1);
  } else {
    state_ = State::kNameClose;
  }
  return true;
}

bool OutputMachine::step_arguments() {
  if (is_space(peek())) {
    eat(1);
    return true;
  }
  if (!format_->key_open.empty()) return step_tagged_arguments();
  const Found found = match(kFenceOpen | kCallClose);
  if (found.wait) return false;
  if (found.is(kFenceOpen)) {
    eat(*found.marker);
  } else if (found.is(kCallClose)) {
    end_tagged();
  } else if (peek() == '{') {
    begin_whole_arguments();
  } else {
    misfit();
  }
  return true;
}

bool OutputMachine::step_tagged_arguments() {
  const Found found = match(kKeyOpen | kCallOpen | kCallClose | kSectionOpen | kSectionClose);
  if (found.wait) return false;
  if (found.is(kKeyOpen)) {
    if (!begun_) begin_call();
    eat(*found.marker);
    raw_.clear();
    state_ = State::kKey;
  } else if (found.is(kCallClose) || (found.marker != nullptr && begun_)) {
    end_tagged();  // where its closer is missing another marker ends the call
  } else if (peek() == '{' && !begun_) {
    begin_whole_arguments();
  } else {
    misfit();
  }
  return true;
}

void OutputMachine::end_tagged() {
  if (!begun_) begin_call();
  arguments(first_key_ ? "{}" : "}");
  end_call(true);
  state_ = State::kClosing;
}

void OutputMachine::begin_whole_arguments() {
  begin_call();
  const bool compact = format_->arguments == ArgumentSyntax::kCompact;
  reader_.start(compact ? ValueDialect::kCompact : ValueDialect::kJson);
  state_ = State::kWholeArguments;
}

bool OutputMachine::step_whole_arguments() {
  const auto outcome = stream_value();
  if (outcome == ValueReader::Outcome::kDone) {
    end_call(true);
    state_ = State::kClosing;
  } else if (outcome != ValueReader::Outcome::kMore) {
    misfit();
  }
  return true;
}

/// Reads on in a value that is told as it comes. Byte by byte, since an event's range ends where
/// its text was certain, however much came at once.
ValueReader::Outcome OutputMachine::stream_value() {
  auto outcome = ValueReader::Outcome::kMore;
  std::string json;
  while (at_ < input_.size() && outcome == ValueReader::Outcome::kMore) {
    if (message_ends_here()) return ValueReader::Outcome::kBad;
    json.clear();
    outcome = reader_.push(peek(), &json);
    if (outcome == ValueReader::Outcome::kMore || outcome == ValueReader::Outcome::kDone) eat(1);
    arguments(json);
  }
  return outcome;
}

/// The token of a message's end is no part of a value, be it within a text. Spelled out it may be.
bool OutputMachine::message_ends_here() const {
  if (!format_->has_messages() || tokens_.empty()) return false;
  const TokenId here = token_here();
  return here >= 0 && std::any_of(markers_.begin(), markers_.end(), [&](const Marker& marker) {
           return marker.token == here && (marker.role & (kMessageEnd | kStart | kCallClose)) != 0;
         });
}

bool OutputMachine::step_key() {
  const bool in_tag = format_->key_close.empty();
  if (!in_tag) {
    const Found found = match(kKeyClose);
    if (found.wait) return false;
    if (found.marker != nullptr) {
      eat(*found.marker);
      if (format_->value_open.empty()) {
        begin_tagged_value();
      } else {
        state_ = State::kValueOpen;
      }
      return true;
    }
  }
  const char c = peek();
  const bool closes = format_->arguments == ArgumentSyntax::kElements && c == '/';
  if (raw_.size() >= kNameBytesMax || closes || (in_tag && (c == '\n' || c == '<'))) {
    misfit();
    return true;
  }
  eat(1);
  if (!in_tag || c != '>') {
    raw_ += c;
    return true;
  }
  begin_tagged_value();
  return true;
}

/// The key is the first word of the tag.
void OutputMachine::begin_tagged_value() {
  std::string_view rest;
  const std::string key(tag_word(raw_, &rest));
  begin_value(key, string_attribute(rest));
}

bool OutputMachine::step_value_open() {
  if (is_space(peek())) {
    eat(1);
    return true;
  }
  const Found found = match(kValueOpen);
  if (found.wait) return false;
  if (found.marker == nullptr) {
    misfit();
    return true;
  }
  eat(*found.marker);
  begin_value(std::string(raw_), {});
  return true;
}

void OutputMachine::begin_value(std::string_view key, std::string_view is_string) {
  types_ = format_->untyped;
  if (tools_ != nullptr) types_ = tools_->types_of(name_, key).value_or(types_);
  if (is_string == "true") types_ = kTypeString;
  as_json_ = is_string == "false";
  begin_argument(key);
  skip_newline_ = format_->value_on_lines;
  streaming_ = types_ == kTypeString && !as_json_;
  element_depth_ = 0;
  element_end_ = formatted("{}>", key);
  if (streaming_) arguments("\"");
  raw_.clear();
  state_ = State::kValue;
}

bool OutputMachine::step_value() {
  if (std::exchange(skip_newline_, false) && peek() == '\n') {
    eat(1);
    return true;
  }
  const bool has_elements = format_->arguments == ArgumentSyntax::kElements;
  const Found found = match(kValueClose | kValueEnd | (has_elements ? kKeyOpen : 0u));
  if (found.wait) return false;
  if (has_elements && found.marker != nullptr) {
    if (found.is(kValueClose) && element_depth_ == 0) {
      eat(*found.marker);
      state_ = State::kElementEnd;
      return true;
    }
    element_depth_ += found.is(kKeyOpen) ? 1 : -1;
  } else if (found.is(kValueClose)) {
    closer_ = found.marker->text;
    eat(*found.marker);
    state_ = State::kValueEnd;
    return true;
  } else if (found.marker != nullptr) {
    end_value();
    return true;
  }
  const size_t bytes = found.marker == nullptr ? 1 : found.marker->text.size();
  const std::string text = input_.substr(at_, bytes);
  eat(bytes);
  add_to_value(text);
  return true;
}

void OutputMachine::add_to_value(std::string_view text) {
  if (!streaming_) {
    raw_ += text;
    return;
  }
  std::string json;
  append_json_escaped(text, &json);
  arguments(json);
}

/// A closer counts where the format goes on behind it: the next parameter, or the call's end. Else
/// a value speaks of closers, as code that reads this format does.
bool OutputMachine::step_value_end() {
  if (is_space(peek())) {
    closer_ += peek();
    eat(1);
    return true;
  }
  const Found found = match(kKeyOpen | kCallOpen | kCallClose | kSectionOpen | kSectionClose);
  if (found.wait) return false;
  if (found.marker != nullptr) {
    end_value();
    return true;
  }
  add_to_value(std::exchange(closer_, {}));
  state_ = State::kValue;
  return true;
}

bool OutputMachine::step_element_end() {
  if (peek() != element_end_.front()) {
    misfit();
    return true;
  }
  eat(1);
  element_end_.erase(0, 1);
  if (element_end_.empty()) end_value();
  return true;
}

void OutputMachine::end_value() {
  if (streaming_) {
    arguments("\"");
  } else {
    const bool has_elements = format_->arguments == ArgumentSyntax::kElements;
    const std::string elements =
        has_elements
            ? elements_json(raw_, {format_->key_open.front(), format_->value_close.front()}, types_)
            : "";
    arguments(!elements.empty() ? elements
              : as_json_        ? json_or_string(raw_)
                                : typed_json(raw_, types_));
  }
  state_ = State::kArguments;
}

}  // namespace moeflux
