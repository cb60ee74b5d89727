// An answer as one value, of its events.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "output/output_parser.h"

namespace moeflux {

struct OutputCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON, an object where `complete`
  bool complete = false;
};

/// Grows by events, in their order.
struct OutputMessage {
  std::string reasoning;
  std::string content;
  std::vector<OutputCall> calls;
  int misfits = 0;

  void add(std::span<const OutputEvent> events) {
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
};

/// The whole of a generated text.
inline OutputMessage read_output(const OutputFormat& format, std::string_view text) {
  OutputParser parser(format);
  std::vector<OutputEvent> events;
  parser.push(text, &events);
  parser.finish(&events);
  OutputMessage message;
  message.add(events);
  message.misfits = parser.misfits();
  return message;
}

}  // namespace moeflux
