// Four characters or three bytes a step; padding is of the last step alone.
#include "text/encoding/base64.h"

#include <array>
#include <cstdint>

namespace moeflux {
namespace {

constexpr std::string_view kBase64Alphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr uint32_t kNoDigit = 64;

constexpr std::array<uint8_t, 256> make_base64_digits() {
  std::array<uint8_t, 256> digits{};
  for (auto& digit : digits) digit = kNoDigit;
  for (size_t i = 0; i < kBase64Alphabet.size(); ++i) {
    digits[static_cast<uint8_t>(kBase64Alphabet[i])] = static_cast<uint8_t>(i);
  }
  return digits;
}

constexpr std::array<uint8_t, 256> kBase64Digits = make_base64_digits();

}  // namespace

std::optional<std::string> decode_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  const size_t digits_end = text.size() - padding;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  uint32_t word = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const uint32_t digit = i < digits_end ? kBase64Digits[static_cast<uint8_t>(text[i])] : 0;
    if (digit == kNoDigit) return std::nullopt;
    word = (word << 6) | digit;
    if (i % 4 != 3) continue;
    for (const int shift : {16, 8, 0}) bytes.push_back(static_cast<char>(word >> shift));
    word = 0;
  }
  for (size_t i = 0; i < padding; ++i) {
    if (bytes.back() != 0) return std::nullopt;
    bytes.pop_back();
  }
  return bytes;
}

std::string encode_base64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const std::string_view three = bytes.substr(i, 3);
    uint32_t word = 0;
    for (size_t j = 0; j < 3; ++j) {
      word = (word << 8) | (j < three.size() ? static_cast<uint8_t>(three[j]) : 0u);
    }
    for (size_t j = 0; j < 4; ++j) {
      const size_t digit = (word >> (18 - 6 * j)) & 63;
      text.push_back(j <= three.size() ? kBase64Alphabet[digit] : '=');
    }
  }
  return text;
}

}  // namespace moeflux
