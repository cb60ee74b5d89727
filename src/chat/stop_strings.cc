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

std::string StopStrings::push_exempt(std::string_view text) {
  if (stopped_) return {};
  held_ += text;
  exempt_ = held_.size();
  return take(before_beginnings());
}

std::string StopStrings::push(std::string_view text) {
  if (stopped_) return {};
  held_ += text;
  size_t stop = std::string::npos;
  for (const std::string& string : strings_) {
    const size_t first = exempt_ < string.size() ? 0 : exempt_ - string.size() + 1;
    const size_t found = held_.find(string, first);
    if (found >= stop) continue;
    stop = found;
    stopped_by_ = string;
  }
  stopped_ = stop != std::string::npos;
  if (!stopped_) return take(before_beginnings());
  if (included_) stop += stopped_by_.size();
  std::string out = take(stop);
  held_.clear();
  return out;
}

size_t StopStrings::before_beginnings() const {
  size_t certain = held_.size();
  for (const std::string& string : strings_) {
    for (size_t n = std::min(string.size() - 1, held_.size()); n > 0; --n) {
      if (!held_.ends_with(std::string_view(string).substr(0, n))) continue;
      certain = std::min(certain, held_.size() - n);
      break;
    }
  }
  return certain;
}

// Cut at the beginning of a character.
std::string StopStrings::take(size_t certain) {
  while (certain > 0 && certain < held_.size() && continues_character(held_[certain])) --certain;
  std::string out = held_.substr(0, certain);
  held_.erase(0, certain);
  exempt_ -= std::min(exempt_, certain);
  return out;
}

std::string StopStrings::finish() { return std::exchange(held_, std::string()); }

}  // namespace moeflux
