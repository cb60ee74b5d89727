// An answer as one value: what a request without streaming returns, and what a session keeps of a
// turn.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

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

  void add(std::span<const OutputEvent> events);
};

/// The whole of a generated text.
OutputMessage read_output(const OutputFormat& format, std::string_view text,
                          const OutputParserOptions& options = {});

}  // namespace moeflux
