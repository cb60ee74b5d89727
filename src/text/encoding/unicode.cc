// The library's own canonical ordering is an insertion sort, quadratic in a run of combining marks;
// so characters are decomposed one by one, marks sorted here, and only composition is left to it.
#include "text/encoding/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "base/format.h"
#include "text/encoding/utf8.h"

namespace moeflux {
namespace {

constexpr size_t kUnicodeBytesMax = size_t{1} << 29;

utf8proc_propval_t combining_class(utf8proc_int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

void decompose(std::string_view text, std::vector<utf8proc_int32_t>* out) {
  out->reserve(text.size() + text.size() / 4);
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = next_utf8(text.substr(at));
    MF_CHECK(step.kind == Utf8Kind::kCharacter);  // callers repair text first
    at += step.bytes_count;
    if (step.code_point < 0xC0) {  // the first character with a decomposition is U+00C0
      out->push_back(static_cast<utf8proc_int32_t>(step.code_point));
      continue;
    }
    utf8proc_int32_t parts[8];  // canonical decompositions have at most four characters
    int boundary = 0;
    const auto count = utf8proc_decompose_char(
        static_cast<utf8proc_int32_t>(step.code_point), parts, 8,
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE), &boundary);
    MF_CHECK(count >= 0 && count <= 8);
    out->insert(out->end(), parts, parts + count);
  }
}

void order_marks(std::vector<utf8proc_int32_t>* text) {
  const auto is_starter = [](utf8proc_int32_t c) { return combining_class(c) == 0; };
  auto at = text->begin();
  while (at != text->end()) {
    const auto begin = std::find_if_not(at, text->end(), is_starter);
    at = std::find_if(begin, text->end(), is_starter);
    std::stable_sort(begin, at, [](utf8proc_int32_t a, utf8proc_int32_t b) {
      return combining_class(a) < combining_class(b);
    });
  }
}

bool in_range(char32_t c, char32_t low, char32_t high) { return c >= low && c <= high; }

}  // namespace

bool is_white_space(char32_t c) {
  return in_range(c, 0x09, 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         in_range(c, 0x2000, 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_word_character(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    case UTF8PROC_CATEGORY_SO:  // the circled and squared letters are alphabetic symbols
      return in_range(c, 0x24B6, 0x24E9) || in_range(c, 0x1F130, 0x1F149) ||
             in_range(c, 0x1F150, 0x1F169) || in_range(c, 0x1F170, 0x1F189);
    default:
      return c == 0x200C || c == 0x200D;
  }
}

Result<std::string> normalize_nfc(std::string_view text) {
  const auto is_plain = [](char c) { return static_cast<uint8_t>(c) < 0x80; };
  if (std::all_of(text.begin(), text.end(), is_plain)) return std::string(text);
  if (text.size() > kUnicodeBytesMax) {
    return make_error(ErrorCode::kResourceExhausted, "text of {} bytes to normalise, at most {}",
                      text.size(), kUnicodeBytesMax);
  }
  std::vector<utf8proc_int32_t> characters;
  decompose(text, &characters);
  order_marks(&characters);
  const auto count =
      utf8proc_normalize_utf32(characters.data(), static_cast<utf8proc_ssize_t>(characters.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  MF_CHECK(count >= 0);
  std::string out;
  out.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    append_utf8(static_cast<char32_t>(characters[static_cast<size_t>(i)]), &out);
  }
  return out;
}

std::string fold_letters(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = next_utf8(text.substr(at));
    MF_CHECK(step.kind == Utf8Kind::kCharacter);
    at += step.bytes_count;
    utf8proc_int32_t parts[32];  // the longest of all has 18 characters
    int boundary = 0;
    const auto count = utf8proc_decompose_char(
        static_cast<utf8proc_int32_t>(step.code_point), parts, 32,
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT),
        &boundary);
    MF_CHECK(count >= 0 && count <= 32);
    for (utf8proc_ssize_t i = 0; i < count; ++i) {
      const utf8proc_category_t category = utf8proc_category(parts[i]);
      const bool is_mark = category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
                           category == UTF8PROC_CATEGORY_ME;
      if (!is_mark) append_utf8(static_cast<char32_t>(utf8proc_tolower(parts[i])), &out);
    }
  }
  return out;
}

}  // namespace moeflux
