#include "chat/stop_strings.h"

#include <algorithm>
#include <utility>

namespace moeflux {
namespace {

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

}  // namespace

StopStrings::StopStrings(std::vector<std::string> strings, bool included)
    : strings_(std::move(strings)), included_(included) {
  std::erase(strings_, std::string());
}

std::string StopStrings::push(std::string_view text) {
  if (stopped_) return {};
  held_ += text;
  size_t stop = std::string::npos;
  for (const std::string& string : strings_) {
    const size_t found = held_.find(string);
    if (found >= stop) continue;
    stop = found;
    stopped_by_ = string;
  }
  stopped_ = stop != std::string::npos;
  size_t certain = stopped_ ? stop : held_.size();
  if (stopped_ && included_) certain += stopped_by_.size();
  for (const std::string& string : strings_) {
    if (stopped_) break;
    for (size_t n = std::min(string.size() - 1, held_.size()); n > 0; --n) {
      if (!held_.ends_with(std::string_view(string).substr(0, n))) continue;
      certain = std::min(certain, held_.size() - n);
      break;
    }
  }
  while (certain > 0 && certain < held_.size() && continues_character(held_[certain])) --certain;
  std::string out = held_.substr(0, certain);
  held_ = stopped_ ? std::string() : held_.substr(certain);
  return out;
}

std::string StopStrings::finish() { return std::exchange(held_, std::string()); }

}  // namespace moeflux
