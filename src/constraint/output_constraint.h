// The constraint of a generated text, as plain data.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/result.h"

namespace moeflux {

enum class ConstraintKind : uint8_t {
  kNone,
  kJsonObject,  // any JSON object; no text
  kJsonSchema,  // a document of this JSON schema
  kRegex,       // a text that this regular expression matches as a whole
  kLark,        // a text of this grammar, in llguidance's variant of Lark
  kParts,  // the same of several: a JSON list of {"name", and "schema", "regex" or "lark"}, the
           // first of which begins and names others as @name
};

struct OutputConstraint {
  ConstraintKind kind = ConstraintKind::kNone;
  std::string text = {};
  /// The name in messages: the field of a request, or an option.
  std::string source = {};
  /// The same of parts, by their names.
  std::map<std::string, std::string> part_sources = {};
};

/// Refuses a grammar of llama.cpp's GBNF by its name, with kUnsupported and what to use instead.
Status check_dialect(const OutputConstraint& constraint);

}  // namespace moeflux
