// One step function knows the well-formedness table; everything else walks with it.
#include "text/encoding/utf8.h"

#include <algorithm>

namespace moeflux {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Table 3-7 of the Unicode standard: length by lead byte, and the narrowed range of the second
// byte.
struct Lead {
  size_t length;  // 0: not a lead byte
  uint8_t second_min;
  uint8_t second_max;
};

constexpr Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};  // no surrogates
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

size_t ascii_prefix(std::string_view text) {
  const auto end = std::find_if(text.begin(), text.end(),
                                [](char c) { return static_cast<uint8_t>(c) >= 0x80; });
  return static_cast<size_t>(end - text.begin());
}

// Appends repaired text and returns how many bytes at the end are an incomplete character.
size_t append_repaired(std::string_view text, std::string* out) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t ascii = ascii_prefix(text.substr(at));
    out->append(text, at, ascii);
    at += ascii;
    if (at == text.size()) break;
    const Utf8Step step = next_utf8(text.substr(at));
    if (step.kind == Utf8Kind::kIncomplete) return text.size() - at;
    if (step.kind == Utf8Kind::kCharacter) {
      out->append(text, at, step.bytes_count);
    } else {
      out->append(kReplacement);
    }
    at += step.bytes_count;
  }
  return 0;
}

}  // namespace

Utf8Step next_utf8(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const Lead lead = lead_of(byte(0));
  if (lead.length == 0) return {Utf8Kind::kInvalid, 0, 1};
  if (lead.length == 1) return {Utf8Kind::kCharacter, byte(0), 1};
  char32_t code_point = byte(0) & (0x7Fu >> lead.length);
  for (size_t i = 1; i < lead.length; ++i) {
    if (i == text.size()) return {Utf8Kind::kIncomplete, 0, i};
    const uint8_t low = i == 1 ? lead.second_min : uint8_t{0x80};
    const uint8_t high = i == 1 ? lead.second_max : uint8_t{0xBF};
    if (byte(i) < low || byte(i) > high) return {Utf8Kind::kInvalid, 0, i};
    code_point = (code_point << 6) | (byte(i) & 0x3Fu);
  }
  return {Utf8Kind::kCharacter, code_point, lead.length};
}

void append_utf8(char32_t code_point, std::string* out) {
  const auto push = [&](uint32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) return push(code_point);
  if (code_point < 0x800) {
    push(0xC0 | (code_point >> 6));
    return push(0x80 | (code_point & 0x3F));
  }
  if (code_point < 0x10000) {
    push(0xE0 | (code_point >> 12));
  } else {
    push(0xF0 | (code_point >> 18));
    push(0x80 | ((code_point >> 12) & 0x3F));
  }
  push(0x80 | ((code_point >> 6) & 0x3F));
  push(0x80 | (code_point & 0x3F));
}

bool is_valid_utf8(std::string_view text) {
  size_t at = ascii_prefix(text);
  while (at < text.size()) {
    const Utf8Step step = next_utf8(text.substr(at));
    if (step.kind != Utf8Kind::kCharacter) return false;
    at += step.bytes_count;
  }
  return true;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  if (append_repaired(text, &out) > 0) out.append(kReplacement);
  return out;
}

void Utf8Stream::push(std::string_view bytes, std::string* out) {
  if (held_.empty()) {
    const size_t incomplete = append_repaired(bytes, out);
    held_.assign(bytes.substr(bytes.size() - incomplete));
    return;
  }
  held_.append(bytes);
  const size_t incomplete = append_repaired(held_, out);
  held_.erase(0, held_.size() - incomplete);
}

void Utf8Stream::finish(std::string* out) {
  if (!held_.empty()) out->append(kReplacement);
  held_.clear();
}

}  // namespace moeflux
