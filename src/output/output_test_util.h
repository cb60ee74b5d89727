// Invariants of any answer, and events joined so that two of them can be compared.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/format.h"
#include "base/json.h"
#include "output/output_parser.h"
#include "output/value_reader.h"

namespace moeflux {

/// Events with neighbours of one kind and call joined, however the text was cut.
inline std::vector<OutputEvent> joined(const std::vector<OutputEvent>& events) {
  std::vector<OutputEvent> out;
  for (const OutputEvent& event : events) {
    const bool text = event.kind != OutputKind::kCallBegin && event.kind != OutputKind::kCallEnd;
    if (text && !out.empty() && out.back().kind == event.kind && out.back().call == event.call) {
      out.back().text += event.text;
      out.back().end = event.end;
    } else {
      out.push_back(event);
    }
  }
  return out;
}

/// One line per event, for messages and comparisons.
inline std::string told(const std::vector<OutputEvent>& events) {
  static constexpr const char* kNames[] = {"reasoning", "content", "begin",
                                           "arguments", "end",     "markup"};
  std::string lines;
  for (const OutputEvent& event : joined(events)) {
    lines +=
        formatted("{} {} [{}, {}) {} {} {}\n", kNames[static_cast<int>(event.kind)], event.call,
                  event.begin, event.end, event.complete ? "complete" : "", event.id, event.text);
  }
  return lines;
}

/// Whether another reader takes it. Bytes beyond ASCII pass, as whoever generated them is to blame;
/// so do numbers that it may find too large.
inline bool is_json_elsewhere(std::string json) {
  size_t digits = 0;
  bool exponent = false;
  for (size_t i = 0; i < json.size(); ++i) {
    char& c = json[i];
    if (static_cast<unsigned char>(c) >= 0x80) c = 'x';
    const bool digit = c >= '0' && c <= '9';
    if (!digit && c != '+' && c != '-') exponent = digits > 0 && (c == 'e' || c == 'E');
    digits = digit ? digits + 1 : 0;
    if (digits > 300 || (exponent && digits > 2)) return true;
  }
  return Json::accept(json);
}

/// Nothing lost, nothing twice, calls in order and complete ones with an object of JSON. Empty, or
/// what is wrong.
inline std::string broken_rule(std::string_view text, const std::vector<OutputEvent>& events) {
  uint64_t at = 0;
  int calls = 0;
  bool open = false;
  std::string json;
  for (const OutputEvent& event : events) {
    if (event.begin != at || event.end < event.begin) return "events leave a gap";
    at = event.end;
    const bool plain = event.kind == OutputKind::kReasoning || event.kind == OutputKind::kContent;
    if (plain && event.text != text.substr(event.begin, event.end - event.begin)) {
      return "text is not what was generated";
    }
    if (plain && open) return "text within a call";
    if (event.kind == OutputKind::kMarkup && !event.text.empty()) return "markup has text";
    if (event.kind == OutputKind::kCallBegin) {
      if (open || event.call != calls++) return "calls out of order";
      if (event.text.empty() || event.id.empty()) return "a call without a name or an id";
      open = true;
      json.clear();
    }
    if (event.kind == OutputKind::kCallArguments) {
      if (!open || event.call != calls - 1) return "arguments of no call";
      json += event.text;
    }
    if (event.kind != OutputKind::kCallEnd) continue;
    if (!open) return "the end of no call";
    open = false;
    if (!event.complete) continue;
    ValueReader reader;
    reader.start(ValueDialect::kJson);
    std::string again;
    auto outcome = ValueReader::Outcome::kMore;
    for (const char c : json) {
      if (outcome != ValueReader::Outcome::kMore) return "more than a value: " + json;
      outcome = reader.push(c, &again);
    }
    if (outcome != ValueReader::Outcome::kDone && !reader.finish(&again)) {
      return "arguments are not JSON: " + json;
    }
    if (!is_json_elsewhere(json)) return "arguments are not JSON elsewhere: " + json;
  }
  if (open) return "a call has no end";
  return at == text.size() ? "" : "the end is not told of";
}

/// The events of a text that comes in these pieces.
inline std::vector<OutputEvent> parse_pieces(const OutputFormat& format,
                                             const OutputParserOptions& options,
                                             const std::vector<std::string_view>& pieces) {
  OutputParser parser(format, options);
  std::vector<OutputEvent> events;
  for (const std::string_view piece : pieces) parser.push(piece, &events);
  parser.finish(&events);
  return events;
}

/// The text in pieces, short ones mostly; a thousand letters may come at once.
inline std::vector<std::string_view> random_pieces(std::string_view text, std::mt19937_64* random) {
  std::vector<std::string_view> pieces;
  const uint64_t longest = 1 + (*random)() % 12;
  while (!text.empty()) {
    const size_t size = std::min<size_t>(text.size(), (*random)() % (longest + 1));
    pieces.push_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return pieces;
}

}  // namespace moeflux
