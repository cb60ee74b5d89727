// Printable Latin-1 stands for itself; the other 68 bytes, in order, are U+0100, U+0101, ...
#include "text/encoding/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "text/encoding/utf8.h"

namespace moeflux {
namespace {

constexpr bool is_printable(int byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) ||
         (byte >= 174 && byte <= 255);
}

constexpr size_t kCharactersEnd = 0x144;  // 256 + 68
constexpr uint16_t kNoByte = 0xFFFF;

struct Alphabet {
  std::array<uint16_t, 256> character_of{};
  std::array<uint16_t, kCharactersEnd> byte_of{};
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  for (auto& byte : alphabet.byte_of) byte = kNoByte;
  uint16_t next = 0x100;
  for (uint16_t byte = 0; byte < 256; ++byte) {
    const uint16_t character = is_printable(byte) ? byte : next++;
    alphabet.character_of[byte] = character;
    alphabet.byte_of[character] = byte;
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();
static_assert(kAlphabet.character_of[' '] == 0x120 && kAlphabet.character_of['\n'] == 0x10A);

}  // namespace

std::optional<std::string> bytes_of_spelling(std::string_view spelling) {
  std::string bytes;
  bytes.reserve(spelling.size());
  while (!spelling.empty()) {
    const Utf8Step step = next_utf8(spelling);
    if (step.kind != Utf8Kind::kCharacter || step.code_point >= kCharactersEnd) return std::nullopt;
    const uint16_t byte = kAlphabet.byte_of[step.code_point];
    if (byte == kNoByte) return std::nullopt;
    bytes.push_back(static_cast<char>(byte));
    spelling.remove_prefix(step.bytes_count);
  }
  return bytes;
}

std::string spelling_of_bytes(std::string_view bytes) {
  std::string spelling;
  for (const char byte : bytes) {
    append_utf8(kAlphabet.character_of[static_cast<uint8_t>(byte)], &spelling);
  }
  return spelling;
}

}  // namespace moeflux
