#include "output/output_parser.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "output/output_machine.h"

namespace moeflux {
namespace {

constexpr std::string_view kLettersAndDigits =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

/// Steps of splitmix64: any seed will do.
uint64_t next_random(uint64_t* state) {
  uint64_t z = *state += 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

}  // namespace

std::string make_call_id(CallIdRule rule, uint64_t seed, int index) {
  uint64_t state = seed;
  state = next_random(&state) ^ static_cast<uint64_t>(index);
  const bool is_short = rule == CallIdRule::kShort;
  std::string id = is_short ? "" : "call_";
  for (int left = is_short ? 9 : 24; left > 0; --left) {
    id += kLettersAndDigits[next_random(&state) % kLettersAndDigits.size()];
  }
  return id;
}

MarkerTokens find_marker_tokens(
    const OutputFormat& format,
    const std::function<std::optional<TokenId>(std::string_view)>& find) {
  MarkerTokens tokens;
  for (const auto* texts :
       {&format.reasoning_open, &format.reasoning_close, &format.dropped, &format.section_open,
        &format.section_close, &format.call_open, &format.call_close, &format.name_prefix,
        &format.name_close, &format.id_open, &format.key_open, &format.key_close,
        &format.value_open, &format.value_close, &format.channel, &format.message, &format.start,
        &format.message_end}) {
    for (const std::string& text : *texts) {
      if (const auto id = find(text); id.has_value()) tokens.emplace(text, *id);
    }
  }
  return tokens;
}

OutputParser::OutputParser(const OutputFormat& format, const OutputParserOptions& options)
    : machine_(std::make_unique<OutputMachine>(format, options)) {}
OutputParser::OutputParser(OutputParser&&) noexcept = default;
OutputParser& OutputParser::operator=(OutputParser&&) noexcept = default;
OutputParser::~OutputParser() = default;

void OutputParser::push(std::string_view text, TokenId token, std::vector<OutputEvent>* out) {
  machine_->push(text, token, out);
}
void OutputParser::push_end(std::string_view text, TokenId token, std::vector<OutputEvent>* out) {
  // Whether it closes something depends on the state, and shows in what becomes of it.
  OutputMachine tried = *machine_;
  std::vector<OutputEvent> events;
  tried.push(text, token, &events);
  OutputMachine ended = tried;
  std::vector<OutputEvent> all = events;
  ended.finish(&all, OutputEnd::kWhole);
  std::string said;
  for (const OutputEvent& event : all) said += event.text;
  if (said.find(text) != std::string::npos) return;
  *machine_ = std::move(tried);
  std::move(events.begin(), events.end(), std::back_inserter(*out));
}
void OutputParser::finish(std::vector<OutputEvent>* out, OutputEnd end) {
  machine_->finish(out, end);
}
int OutputParser::complete_calls() const { return machine_->complete_calls(); }
int OutputParser::misfits() const { return machine_->misfits(); }
bool OutputParser::in_reasoning() const { return machine_->in_reasoning(); }

}  // namespace moeflux
