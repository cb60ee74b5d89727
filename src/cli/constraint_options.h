// The flags of constrained output, for every command that generates a text.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/options.h"
#include "constraint/output_constraint.h"

namespace moeflux {

struct ConstraintFlags {
  std::string json_schema;  // JSON, or a file of it
  std::string grammar;      // a file of Lark
  std::string regex;
};

void add_constraint_options(CommandOptions& command, ConstraintFlags& flags);

/// kNone without a flag. Fails for a file that cannot be read and for GBNF.
Result<OutputConstraint> output_constraint(const ConstraintFlags& flags);

}  // namespace moeflux
