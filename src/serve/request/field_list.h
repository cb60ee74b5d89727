// The names that an interface's requests may have, and what becomes of each: one list for an
// interface, by which its decoder reads and from which the table of docs/fields.md is made.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>
#include <string_view>

#include "base/json.h"

namespace moeflux::serve {

enum class FieldUse : uint8_t {
  kServed,    // the decoder asks for it
  kRefused,   // 400, as it would change the answer
  kHarmless,  // the answer has the same bytes with and without it
};

struct ListedField {
  std::string_view name;
  FieldUse use = FieldUse::kServed;
  std::string_view note = {};    // how far it is served, or why not
  std::string_view unless = {};  // of what is refused: a JSON list of values that ask for nothing
};

constexpr ListedField served(std::string_view name, std::string_view note = {}) {
  return {.name = name, .use = FieldUse::kServed, .note = note};
}
constexpr ListedField refused(std::string_view name, std::string_view why,
                              std::string_view unless = {}) {
  return {.name = name, .use = FieldUse::kRefused, .note = why, .unless = unless};
}
constexpr ListedField harmless(std::string_view name) {
  return {.name = name, .use = FieldUse::kHarmless};
}

/// Immutable.
class FieldList {
 public:
  /// `title` is what documents call the interface. The first row of a name counts. Rows and the
  /// texts in them must outlive it.
  FieldList(std::string_view title, std::initializer_list<std::span<const ListedField>> rows);

  /// Null where the name is in no row.
  const ListedField* find(std::string_view name) const;
  /// Whether `value` asks for something.
  static bool asks(const ListedField& field, const Json& value);

  std::string_view title() const { return title_; }
  const std::map<std::string_view, ListedField>& fields() const { return fields_; }

 private:
  std::string_view title_;
  std::map<std::string_view, ListedField> fields_;
};

/// Samplers, limits, ends and scores that all interfaces read under the same names.
std::span<const ListedField> generation_rows();
/// Constraints of an answer, in the words of llama.cpp and vLLM.
std::span<const ListedField> constraint_rows();
/// Values for the template, and whether a last message is continued.
std::span<const ListedField> template_rows();
/// Names of llama.cpp and vLLM that are refused, or change no byte.
std::span<const ListedField> other_rows();

}  // namespace moeflux::serve
