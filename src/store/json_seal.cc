#include "store/json_seal.h"

#include <cstring>
#include <span>
#include <string_view>

#include "base/format.h"
#include "checkpoint/checksum.h"

namespace moeflux {
namespace {

constexpr std::string_view kFront = R"({"checksum":")";
constexpr std::string_view kBack = R"(",)";
constexpr size_t kDigits = 16;
constexpr size_t kSealBytes = kFront.size() - 1 + kDigits + kBack.size();  // behind the brace

std::string_view text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

void add_seal(std::vector<std::byte>& text) {
  if (!text_of(text).starts_with('{')) return;
  const std::string seal =
      formatted("{}{}{}", kFront.substr(1), checksum_text(checksum64(text)), kBack);
  const auto bytes = std::as_bytes(std::span(seal));
  text.insert(text.begin() + 1, bytes.begin(), bytes.end());
}

SealState take_seal(std::vector<std::byte>& text) {
  if (!text_of(text).starts_with(kFront)) return SealState::kAbsent;
  if (text.size() < kSealBytes + 1) return SealState::kDamaged;
  const std::string stated(text_of(text).substr(kFront.size(), kDigits));
  const bool is_closed = text_of(text).substr(kFront.size() + kDigits).starts_with(kBack);
  text.erase(text.begin() + 1, text.begin() + 1 + kSealBytes);
  const bool is_whole = is_closed && parse_checksum(stated) == checksum64(text);
  return is_whole ? SealState::kWhole : SealState::kDamaged;
}

}  // namespace moeflux
