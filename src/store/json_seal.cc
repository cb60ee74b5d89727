#include "store/json_seal.h"

#include <span>
#include <string_view>

#include "base/format.h"
#include "checkpoint/checksum.h"

namespace moeflux {
namespace {

constexpr std::string_view kFront = R"({"checksum":")";
constexpr std::string_view kBack = R"(",)";
constexpr size_t kDigits = 16;
constexpr std::string_view kNameFront = R"({"kept_as":")";
constexpr size_t kSealBytes = kFront.size() - 1 + kDigits + kBack.size();  // behind the brace

std::string_view text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void add_member(std::vector<std::byte>& text, std::string_view front, std::string_view value) {
  const std::string member = formatted("{}{}{}", front.substr(1), value, kBack);
  const auto bytes = std::as_bytes(std::span(member));
  text.insert(text.begin() + 1, bytes.begin(), bytes.end());
}

SealState take_name(std::vector<std::byte>& text, const std::string& name) {
  if (!text_of(text).starts_with(kNameFront)) return SealState::kAbsent;
  const std::string_view rest = text_of(text).substr(kNameFront.size());
  if (!rest.starts_with(name) || !rest.substr(name.size()).starts_with(kBack)) {
    return SealState::kOfAnother;
  }
  const size_t size = kNameFront.size() - 1 + name.size() + kBack.size();
  text.erase(text.begin() + 1, text.begin() + 1 + static_cast<std::ptrdiff_t>(size));
  return SealState::kWhole;
}

}  // namespace

void add_seal(std::vector<std::byte>& text, const std::string& name) {
  if (!text_of(text).starts_with('{')) return;
  add_member(text, kNameFront, name);
  add_member(text, kFront, checksum_text(checksum64(text)));
}

SealState take_seal(std::vector<std::byte>& text, const std::string& name) {
  if (!text_of(text).starts_with(kFront)) return SealState::kAbsent;
  if (text.size() < kSealBytes + 1) return SealState::kDamaged;
  const std::string stated(text_of(text).substr(kFront.size(), kDigits));
  const bool is_closed = text_of(text).substr(kFront.size() + kDigits).starts_with(kBack);
  text.erase(text.begin() + 1, text.begin() + 1 + kSealBytes);
  const bool is_whole = is_closed && parse_checksum(stated) == checksum64(text);
  return is_whole ? take_name(text, name) : SealState::kDamaged;
}

}  // namespace moeflux
