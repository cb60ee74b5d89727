#include "output/output_message.h"

#include "base/check.h"

namespace moeflux {

void OutputMessage::add(std::span<const OutputEvent> events) {
  for (const OutputEvent& event : events) {
    switch (event.kind) {
      case OutputKind::kReasoning:
        reasoning += event.text;
        break;
      case OutputKind::kContent:
        content += event.text;
        break;
      case OutputKind::kCallBegin:
        calls.push_back({.id = event.id, .name = event.text, .arguments = {}});
        break;
      case OutputKind::kCallArguments:
        MF_CHECK(!calls.empty());
        calls.back().arguments += event.text;
        break;
      case OutputKind::kCallEnd:
        MF_CHECK(!calls.empty());
        calls.back().complete = event.complete;
        break;
      case OutputKind::kMarkup:
        break;
    }
  }
}

OutputMessage read_output(const OutputFormat& format, std::string_view text,
                          const OutputParserOptions& options) {
  OutputParser parser(format, options);
  std::vector<OutputEvent> events;
  parser.push(text, &events);
  parser.finish(&events);
  OutputMessage message;
  message.add(events);
  message.misfits = parser.misfits();
  return message;
}

}  // namespace moeflux
