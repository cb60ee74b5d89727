// Calls that are JSON objects, lists of calls, and calls as Python has them.
#include <algorithm>

#include "output/output_machine.h"

namespace moeflux {

using output_text::is_name;
using output_text::is_space;
using output_text::is_word;
using output_text::unquoted;

namespace {

bool is_one_of(const std::vector<std::string>& keys, std::string_view key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

}  // namespace

void OutputMachine::begin_object() {
  object_depth_ = 0;
  has_early_arguments_ = false;
  phase_ = Phase::kBeforeValue;
  key_ = "function";  // the object itself is read like one under this key
  state_ = State::kObject;
}

bool OutputMachine::step_object() {
  switch (phase_) {
    case Phase::kInKey:
      return step_object_key();
    case Phase::kInValue:
      return step_object_value();
    default:
      break;
  }
  const char c = peek();
  if (is_space(c)) {
    eat(1);
    return true;
  }
  const bool at_key = phase_ == Phase::kFirstKey || phase_ == Phase::kKey;
  if (c == '}' && (phase_ == Phase::kFirstKey || phase_ == Phase::kNext)) {
    eat(1);
    phase_ = Phase::kNext;
    if (--object_depth_ == 0) end_object();
  } else if (at_key && c == '"') {
    reader_.start(ValueDialect::kJson);
    raw_.clear();
    phase_ = Phase::kInKey;
  } else if (phase_ == Phase::kColon && c == ':') {
    eat(1);
    phase_ = Phase::kBeforeValue;
  } else if (phase_ == Phase::kNext && c == ',') {
    eat(1);
    phase_ = Phase::kKey;
  } else if (phase_ == Phase::kBeforeValue) {
    begin_object_value();
  } else {
    misfit();
  }
  return true;
}

bool OutputMachine::step_object_key() {
  const auto outcome = reader_.push(peek(), &raw_);
  eat(1);
  if (outcome != ValueReader::Outcome::kDone) return true;
  key_ = unquoted(raw_);
  phase_ = Phase::kColon;
  const bool known = is_one_of(format_->name_keys, key_) ||
                     is_one_of(format_->argument_keys, key_) || key_ == "id" || key_ == "type" ||
                     key_ == "function";
  if (bare_ && !known) misfit();
  return true;
}

void OutputMachine::begin_object_value() {
  if (peek() == '{' && key_ == "function" && object_depth_ < 2) {
    eat(1);
    ++object_depth_;
    phase_ = Phase::kFirstKey;
    return;
  }
  const bool is_arguments = is_one_of(format_->argument_keys, key_);
  streaming_ = is_arguments && peek() == '{' && !name_.empty() && !begun_;
  if (streaming_) begin_call();
  reader_.start(ValueDialect::kJson);
  raw_.clear();
  phase_ = Phase::kInValue;
}

bool OutputMachine::step_object_value() {
  auto outcome = ValueReader::Outcome::kMore;
  if (streaming_) outcome = stream_value();
  while (!streaming_ && at_ < input_.size() && outcome == ValueReader::Outcome::kMore) {
    outcome = reader_.push(peek(), &raw_);
    if (outcome == ValueReader::Outcome::kMore || outcome == ValueReader::Outcome::kDone) eat(1);
  }
  if (outcome == ValueReader::Outcome::kBad) {
    misfit();
  } else if (outcome != ValueReader::Outcome::kMore) {
    phase_ = Phase::kNext;
    end_object_value();
  }
  return true;
}

void OutputMachine::end_object_value() {
  if (streaming_) {
    arguments_whole_ = true;
  } else if (begun_) {
    return;  // the call has been told; nothing changes it
  } else if (is_one_of(format_->name_keys, key_) || key_ == "function") {
    if (!raw_.starts_with('"')) return;
    name_ = unquoted(raw_);
    if (has_early_arguments_ && !name_.empty()) {
      begin_call();
      arguments(early_arguments_);
      arguments_whole_ = true;
    }
  } else if (is_one_of(format_->argument_keys, key_)) {
    take_object_arguments();
  } else if (key_ == "id" && raw_.starts_with('"')) {
    id_ = unquoted(raw_);
  }
}

/// Arguments that come before the name, or are no object as they stand.
void OutputMachine::take_object_arguments() {
  early_arguments_ = raw_ == "null" ? "{}" : raw_;
  if (raw_.starts_with('"')) {  // JSON within JSON
    const std::string inside = unquoted(raw_);
    if (std::all_of(inside.begin(), inside.end(), is_space)) early_arguments_ = "{}";
    if (inside.starts_with('{')) {
      const std::string json = json_or_string(inside);
      if (json.starts_with('{')) early_arguments_ = json;
    }
  }
  has_early_arguments_ = true;
  if (name_.empty()) return;
  begin_call();
  arguments(early_arguments_);
  arguments_whole_ = true;
}

void OutputMachine::end_object() {
  if (!begun_) {
    if (name_.empty() || bare_) {
      misfit();
      return;
    }
    begin_call();
    arguments("{}");
  }
  end_call(true);
  if (in_list_) {
    state_ = State::kList;
  } else {
    state_ = bare_ ? State::kBareEnd : State::kClosing;
  }
}

bool OutputMachine::step_list() {
  holding_ = true;
  const char c = peek();
  const bool json = format_->takes_json || (bare_ && format_->bare_json);
  const bool python = format_->takes_python || (bare_ && format_->bare_python);
  if (is_space(c) || (c == ',' && list_has_items_)) {
    eat(1);
  } else if (c == ']') {
    eat(1);
    in_list_ = false;
    drop_held();
    state_ = bare_ ? State::kBareEnd : State::kClosing;
  } else if (c == '{' && json) {
    list_has_items_ = true;
    begin_attempt();
    begin_object();
  } else if (is_word(c) && python) {
    list_has_items_ = true;
    begin_attempt();
    phase_ = Phase::kName;
    state_ = State::kPython;
  } else {
    misfit();
  }
  return true;
}

bool OutputMachine::step_python() {
  const char c = peek();
  switch (phase_) {
    case Phase::kName:
      if (c == '(' && !name_.empty()) {
        eat(1);
        phase_ = Phase::kFirstKey;
      } else if ((is_word(c) || c == '.' || c == '-') &&
                 name_.size() < output_text::kNameBytesMax) {
        name_ += c;
        eat(1);
      } else {
        misfit();
      }
      return true;
    case Phase::kInValue:
      return step_python_value();
    default:
      return step_python_key();
  }
}

bool OutputMachine::step_python_key() {
  const char c = peek();
  const bool at_key = phase_ == Phase::kFirstKey || phase_ == Phase::kKey;
  if (phase_ == Phase::kInKey && is_word(c) && raw_.size() < output_text::kNameBytesMax) {
    raw_ += c;
    eat(1);
  } else if (is_space(c)) {
    if (phase_ == Phase::kInKey) phase_ = Phase::kColon;
    eat(1);
  } else if (c == ')' && phase_ != Phase::kInKey && phase_ != Phase::kColon) {
    eat(1);
    if (!begun_) begin_call();
    arguments(first_key_ ? "{}" : "}");
    end_call(true);
    state_ = State::kList;
  } else if (at_key && is_word(c)) {
    raw_.clear();
    phase_ = Phase::kInKey;
  } else if (c == '=' && (phase_ == Phase::kInKey || phase_ == Phase::kColon)) {
    eat(1);
    if (!begun_) begin_call();
    begin_argument(raw_);
    reader_.start(ValueDialect::kPython);
    phase_ = Phase::kInValue;
  } else if (c == ',' && phase_ == Phase::kNext) {
    eat(1);
    phase_ = Phase::kKey;
  } else {
    misfit();
  }
  return true;
}

bool OutputMachine::step_python_value() {
  const auto outcome = stream_value();
  if (outcome == ValueReader::Outcome::kBad) {
    misfit();
  } else if (outcome != ValueReader::Outcome::kMore) {
    phase_ = Phase::kNext;
  }
  return true;
}

}  // namespace moeflux
