// A response_template, a zero byte and a generated text: whatever row it compiles to, the machine
// ends, and tells of every byte however the text is cut.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string_view>

#include "output/output_test_util.h"
#include "output/response_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = input.find('\0');
  const auto json = moeflux::parse_json(input.substr(0, zero), "response_template");
  if (!json.ok()) return 0;
  const auto format = moeflux::compile_response_template(*json, "response_template");
  if (!format.ok() || zero == std::string_view::npos) return 0;
  const std::string_view text = input.substr(zero + 1);
  const moeflux::ToolTypes tools = moeflux::ToolTypes::of_tools(*json);
  const moeflux::OutputParserOptions options{.tools = &tools};
  const auto whole = moeflux::parse_pieces(*format, options, {text});
  std::mt19937_64 random(size);
  const auto again = moeflux::parse_pieces(*format, options, moeflux::random_pieces(text, &random));
  const std::string broken = moeflux::broken_rule(text, whole);
  if (broken.empty() && moeflux::told(again) == moeflux::told(whole)) return 0;
  std::fprintf(stderr, "%s\n", broken.empty() ? "cuts change events" : broken.c_str());
  std::abort();
}
