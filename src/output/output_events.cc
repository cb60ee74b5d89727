// Events, and attempts at calls that may turn out to be text.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "output/output_machine.h"

namespace moeflux {
namespace {

bool is_blank(std::string_view text) {
  return std::all_of(text.begin(), text.end(), output_text::is_space);
}

bool takes_more_text(OutputKind kind) {
  return kind == OutputKind::kReasoning || kind == OutputKind::kContent ||
         kind == OutputKind::kCallArguments || kind == OutputKind::kMarkup;
}

}  // namespace

/// The event of this kind that ends here: a new one, or the last one where it may go on.
OutputEvent& OutputMachine::add(OutputKind kind, uint64_t end) {
  std::vector<OutputEvent>& events = bare_ ? deferred_ : *out_;
  const size_t begin = bare_ ? 0 : out_begin_;
  const bool of_call = kind == OutputKind::kCallBegin || kind == OutputKind::kCallArguments ||
                       kind == OutputKind::kCallEnd;
  const int call = of_call ? calls_ - 1 : -1;
  const bool goes_on = events.size() > begin && takes_more_text(kind) &&
                       events.back().kind == kind && events.back().call == call;
  if (!goes_on) {
    events.emplace_back();
    events.back().kind = kind;
    events.back().call = call;
    events.back().begin = reported_;
  }
  events.back().end = end;
  reported_ = end;
  return events.back();
}

/// The last bytes consumed, as they are.
void OutputMachine::emit_text(std::string_view text) {
  if (text.empty()) return;
  const uint64_t begin = consumed_ - text.size();
  MF_CHECK(reported_ <= begin);
  if (reported_ < begin) add(OutputKind::kMarkup, begin);
  const auto kind = in_reasoning_ ? OutputKind::kReasoning : OutputKind::kContent;
  add(kind, consumed_).text += text;
  if (!in_reasoning_) content_seen_ = true;
  after_call_ = false;
  drop_leading_ = false;
}

void OutputMachine::begin_attempt() {
  if (drop_leading_) drop_held();
  holding_ = true;
  begun_ = false;
  name_.clear();
  id_.clear();
}

/// The held bytes are markup.
void OutputMachine::drop_held() {
  held_.clear();
  if (reported_ < consumed_) add(OutputKind::kMarkup, consumed_);
}

void OutputMachine::begin_call() {
  held_.clear();
  holding_ = false;
  in_reasoning_ = false;
  drop_leading_ = false;
  section_has_calls_ = in_section_;
  begun_ = true;
  arguments_whole_ = false;
  first_key_ = true;
  ++calls_;
  OutputEvent& event = add(OutputKind::kCallBegin, consumed_);
  event.text = name_;
  event.id = id_.empty() ? make_call_id(format_->ids, id_seed_, calls_ - 1) : id_;
}

void OutputMachine::arguments(std::string_view json) {
  if (!json.empty()) add(OutputKind::kCallArguments, consumed_).text += json;
}

void OutputMachine::begin_argument(std::string_view key) {
  arguments(first_key_ ? "{" : ",");
  arguments(json_quoted(key));
  arguments(":");
  first_key_ = false;
}

void OutputMachine::end_call(bool complete) {
  add(OutputKind::kCallEnd, consumed_).complete = complete;
  if (complete) ++complete_calls_;
  begun_ = false;
  after_call_ = true;
}

/// The next byte does not fit. The held bytes are text; a call that was told of ends here.
void OutputMachine::misfit() {
  ++misfits_;
  if (at_end_ && is_marked_ && !begun_ && !bare_) {
    // The rest began like a marker, within the head of a call that is cut.
    eat(input_.size() - at_);
  } else if (bare_) {
    leave_bare();
  } else if (begun_) {
    end_call(arguments_whole_);
  } else {
    emit_text(held_);
  }
  held_.clear();
  holding_ = false;
  begun_ = false;
  in_list_ = false;
  if (!section_has_calls_) in_section_ = false;
  state_ = State::kText;
}

/// Output that looked like calls and nothing else is text.
void OutputMachine::leave_bare() {
  for (const OutputEvent& event : deferred_) {
    calls_ -= event.kind == OutputKind::kCallBegin ? 1 : 0;
    complete_calls_ -= event.kind == OutputKind::kCallEnd && event.complete ? 1 : 0;
  }
  deferred_.clear();
  bare_ = false;
  reported_ = bare_begin_;
  emit_text(std::exchange(bare_text_, {}));
}

void OutputMachine::finish(std::vector<OutputEvent>* out, OutputEnd end) {
  push({}, -1, out);
  out_ = out;
  at_end_ = true;
  is_cut_ = end == OutputEnd::kCut;
  run();
  MF_CHECK(input_.empty());
  if (bare_ && state_ == State::kBareEnd && !deferred_.empty() && calls_ > 0) {
    bare_ = false;
    for (OutputEvent& event : deferred_) out->push_back(std::move(event));
    deferred_.clear();
  } else if (bare_) {
    misfit();
  } else if (begun_) {
    if (state_ == State::kValueEnd) end_value();
    end_call(arguments_whole_);
  } else if (is_blank(held_)) {
    if (after_call_ || drop_leading_) held_.clear();
    emit_text(held_);
  } else if (is_marked_ && state_ != State::kText) {
    ++misfits_;  // a call that is cut before its name is told is no text
  } else {
    misfit();
  }
  held_.clear();
  if (reported_ < consumed_) add(OutputKind::kMarkup, consumed_);
  out_ = nullptr;
}

}  // namespace moeflux
