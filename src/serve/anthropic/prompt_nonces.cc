#include "serve/anthropic/prompt_nonces.h"

namespace moeflux::serve {
namespace {

constexpr std::string_view kBilling = "x-anthropic-billing-header:";
constexpr std::string_view kLeftOpen = "<total_tokens>";
constexpr std::string_view kLeftClose = " tokens left</total_tokens>";

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// The size of the counter that `text` begins with; 0 if it begins with none.
size_t counter_size(std::string_view text) {
  if (!text.starts_with(kLeftOpen)) return 0;
  size_t end = kLeftOpen.size();
  while (end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
  const bool is_counter = end > kLeftOpen.size() && text.substr(end).starts_with(kLeftClose);
  return is_counter ? end + kLeftClose.size() : 0;
}

}  // namespace

std::string without_nonces(std::string_view text) {
  if (text.starts_with(kBilling)) {
    const size_t end = text.find('\n');
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  std::string kept;
  size_t at = 0;
  while (at < text.size()) {
    const size_t found = text.find(kLeftOpen, at);
    const size_t size = found == std::string_view::npos ? 0 : counter_size(text.substr(found));
    if (size > 0) {
      kept += text.substr(at, found - at);
      while (!kept.empty() && is_space(kept.back())) kept.pop_back();
      at = found + size;
    } else {
      const size_t end = found == std::string_view::npos ? text.size() : found + kLeftOpen.size();
      kept += text.substr(at, end - at);
      at = end;
    }
  }
  return kept;
}

}  // namespace moeflux::serve
