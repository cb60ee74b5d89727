#include "output/output_machine.h"

#include <algorithm>

#include "base/check.h"
#include "base/json.h"

namespace moeflux {

std::string output_text::unquoted(std::string_view json) {
  const auto parsed = parse_json(json, "string");
  if (parsed.ok() && parsed->is_string()) return parsed->get<std::string>();
  return std::string(json.size() < 2 ? json : json.substr(1, json.size() - 2));
}

OutputMachine::OutputMachine(const OutputFormat& format, const OutputParserOptions& options)
    : format_(&format), tools_(options.tools), id_seed_(options.id_seed) {
  bind(format, options.markers);
  if (format.has_messages()) state_ = State::kChannelStart;
  follow_prompt(options.prompt_tail);
}

void OutputMachine::add_markers(const std::vector<std::string>& texts, Role role,
                                const MarkerTokens* tokens) {
  for (const std::string& text : texts) {
    if (text.empty()) continue;
    TokenId token = -1;
    if (tokens != nullptr) {
      const auto found = tokens->find(text);
      if (found != tokens->end()) token = found->second;
    }
    markers_.push_back({text, role, token});
    begins_marker_[static_cast<unsigned char>(text.front())] = true;
  }
}

void OutputMachine::bind(const OutputFormat& format, const MarkerTokens* tokens) {
  add_markers(format.reasoning_open, kReasoningOpen, tokens);
  add_markers(format.reasoning_close, kReasoningClose, tokens);
  add_markers(format.dropped, kDropped, tokens);
  add_markers(format.section_open, kSectionOpen, tokens);
  add_markers(format.section_close, kSectionClose, tokens);
  add_markers(format.call_open, kCallOpen, tokens);
  add_markers(format.call_close, kCallClose, tokens);
  add_markers(format.bare_open, kBareOpen, tokens);
  add_markers(format.name_prefix, kNamePrefix, tokens);
  add_markers(format.name_close, kNameClose, tokens);
  add_markers(format.id_open, kIdOpen, tokens);
  add_markers(format.id_close, kIdClose, tokens);
  add_markers(format.fence_open, kFenceOpen, tokens);
  add_markers(format.fence_close, kFenceClose, tokens);
  add_markers(format.key_open, kKeyOpen, tokens);
  add_markers(format.key_close, kKeyClose, tokens);
  add_markers(format.value_open, kValueOpen, tokens);
  add_markers(format.value_close, kValueClose, tokens);
  add_markers(format.value_end, kValueEnd, tokens);
  add_markers(format.channel, kChannel, tokens);
  add_markers(format.message, kMessage, tokens);
  add_markers(format.start, kStart, tokens);
  add_markers(format.message_end, kMessageEnd, tokens);
  if (format.addressed) add_markers({"to="}, kRecipient, nullptr);
}

void OutputMachine::push(std::string_view text, TokenId token, std::vector<OutputEvent>* out) {
  MF_CHECK(!at_end_);
  out_ = out;
  for (OutputEvent& event : early_) out->push_back(std::move(event));
  early_.clear();
  out_begin_ = out->size();
  if (token >= 0) {
    for (const Marker& marker : markers_) {
      // A repaired half of a character may come before the token's own text.
      if (marker.token != token || !text.ends_with(marker.text)) continue;
      const size_t before = input_.size() - at_ + text.size() - marker.text.size();
      tokens_.emplace_back(consumed_ + before, token);
      break;
    }
  }
  input_ += text;
  run();
  out_ = nullptr;
}

void OutputMachine::run() {
  while (at_ < input_.size() && step()) {
  }
  input_.erase(0, at_);
  at_ = 0;
  std::erase_if(tokens_, [&](const auto& token) { return token.first < consumed_; });
}

bool OutputMachine::step() {
  switch (state_) {
    case State::kText:
      return step_text();
    case State::kSection:
      return step_section();
    case State::kBody:
      return step_body();
    case State::kName:
      return step_name();
    case State::kNameClose:
      return step_name_close();
    case State::kCallId:
      return step_call_id();
    case State::kArguments:
      return step_arguments();
    case State::kWholeArguments:
      return step_whole_arguments();
    case State::kKey:
      return step_key();
    case State::kValueOpen:
      return step_value_open();
    case State::kValue:
      return step_value();
    case State::kValueEnd:
      return step_value_end();
    case State::kElementEnd:
      return step_element_end();
    case State::kClosing:
      return step_closing();
    case State::kObject:
      return step_object();
    case State::kList:
      return step_list();
    case State::kPython:
      return step_python();
    case State::kBareEnd:
      return step_bare_end();
    case State::kChannelStart:
      return step_channel_start();
    case State::kHeader:
      return step_header();
  }
  __builtin_unreachable();
}

TokenId OutputMachine::token_here() const {
  for (const auto& [place, token] : tokens_) {
    if (place == consumed_) return token;
  }
  return -1;
}

OutputMachine::Found OutputMachine::match(uint32_t roles) const {
  Found found;
  if (!begins_marker_[static_cast<unsigned char>(peek())]) return found;
  const std::string_view rest = std::string_view(input_).substr(at_);
  for (const Marker& marker : markers_) {
    if ((marker.role & roles) == 0) continue;
    if (marker.token >= 0 && !following_prompt_) {
      if (token_here() != marker.token) continue;
    } else if (rest.size() < marker.text.size()) {
      if (marker.text.starts_with(rest)) (at_end_ ? found.is_cut : found.wait) = true;
      continue;
    } else if (!rest.starts_with(marker.text)) {
      continue;
    }
    if (found.marker == nullptr || marker.text.size() > found.marker->text.size()) {
      found.marker = &marker;
    }
  }
  return found;
}

void OutputMachine::eat(size_t bytes) {
  const std::string_view eaten = std::string_view(input_).substr(at_, bytes);
  if (holding_) held_ += eaten;
  if (bare_) bare_text_ += eaten;
  at_ += bytes;
  consumed_ += bytes;
}

void OutputMachine::follow_prompt(std::string_view tail) {
  if (tail.empty()) return;
  following_prompt_ = true;  // whose markers are its template's own, spelled or not
  std::vector<OutputEvent> events;
  push(tail, -1, &events);
  following_prompt_ = false;
  input_.clear();
  tokens_.clear();
  held_.clear();
  consumed_ = 0;
  reported_ = 0;
  misfits_ = 0;
  content_seen_ = false;
  after_call_ = false;
  const bool has_channel =
      !format_->channel.empty() && raw_.find(format_->channel.front()) != std::string::npos;
  if (state_ == State::kHeader && !has_channel) state_ = State::kChannelStart;
  const int open = calls_ - 1;
  calls_ = begun_ ? 1 : 0;
  complete_calls_ = 0;
  for (OutputEvent& event : events) {
    if (!begun_ || event.call != open) continue;
    event.call = 0;
    event.begin = event.end = 0;
    early_.push_back(std::move(event));
  }
}

}  // namespace moeflux
