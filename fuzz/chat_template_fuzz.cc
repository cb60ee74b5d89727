// A template and the JSON of messages behind a NUL byte: create() refuses or gives a template,
// which refuses or renders, and what it renders has all inert ranges in place.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "templates/chat_template.h"
#include "text/encoding/utf8.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

moeflux::AddedToken token(std::string content, bool special) {
  moeflux::AddedToken made;
  made.content = std::move(content);
  made.special = special;
  return made;
}

void exercise(const moeflux::ChatTemplate& chat_template, const moeflux::Json& json) {
  moeflux::TemplateRequest request{.messages = json};
  if (json.is_object() && json.contains("messages")) {
    request.messages = json["messages"];
    if (json.contains("tools")) request.tools = json["tools"];
  }
  const auto prompt = chat_template.render(
      request, {}, {.fuel = 200'000, .output_bytes_max = 1 << 20, .milliseconds_max = 3000});
  if (!prompt.ok()) return require(!prompt.error().message().empty());
  require(moeflux::is_valid_utf8(prompt->text));
  size_t end = 0;
  for (const moeflux::ByteRange& range : prompt->inert_ranges) {
    require(end <= range.begin && range.begin < range.end && range.end <= prompt->text.size());
    end = range.end;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t split = std::min(input.find('\0'), input.size());
  const auto json = moeflux::parse_json(input.substr(std::min(split + 1, size)), "fuzz");
  const auto made = moeflux::ChatTemplate::create(
      {.what = "fuzz", .text = std::string(input.substr(0, split)), .named = {}},
      {{"bos_token", "<s>"}},
      moeflux::SpecialSpellings(
          {token("<|im_end|>", true), token("<s>", true), token("<think>", false)}));
  if (!made.ok()) {
    require(!made.error().message().empty());
  } else if (json.ok()) {
    exercise(*made, *json);
  }
  return 0;
}
