// A generated text for a format: the first byte chooses the format, the second what comes before it
// and how it is cut. Nothing is lost, and neither cuts nor tokens change what may not change.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>

#include "output/output_test_util.h"

namespace {

void require(bool condition, std::string_view why) {
  if (condition) return;
  std::fprintf(stderr, "%.*s\n", static_cast<int>(why.size()), why.data());
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const auto& formats = moeflux::output_formats();
  const moeflux::OutputFormat& format = formats[data[0] % formats.size()];
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  moeflux::OutputParserOptions options;
  const moeflux::ToolTypes tools;
  if ((data[1] & 1) != 0) options.prompt_tail = "<think>\n";
  if ((data[1] & 2) != 0) options.tools = &tools;
  const auto whole = moeflux::parse_pieces(format, options, {text});
  require(moeflux::broken_rule(text, whole).empty(), moeflux::broken_rule(text, whole));
  std::mt19937_64 random(data[1]);
  const auto pieces = moeflux::random_pieces(text, &random);
  const auto again = moeflux::parse_pieces(format, options, pieces);
  require(moeflux::told(again) == moeflux::told(whole), "cuts change events");

  moeflux::TokenId next = 0;
  const auto tokens = moeflux::find_marker_tokens(
      format, [&](std::string_view) { return std::optional<moeflux::TokenId>(next++); });
  options.markers = &tokens;
  moeflux::OutputParser parser(format, options);
  std::vector<moeflux::OutputEvent> events;
  for (const std::string_view piece : pieces) {
    parser.push(piece, static_cast<moeflux::TokenId>(random() % 8), &events);
  }
  parser.finish(&events);
  require(moeflux::broken_rule(text, events).empty(), moeflux::broken_rule(text, events));
  return 0;
}
