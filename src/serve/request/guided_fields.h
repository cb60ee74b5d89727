// The constraint of an answer in the fields of vLLM's requests.
#pragma once

#include <vector>

#include "constraint/output_constraint.h"
#include "serve/request/fields.h"

namespace moeflux::serve {

/// guided_json, guided_regex, guided_choice, guided_grammar and the members of structured_outputs,
/// each that is given. Problems are left in `fields`.
std::vector<OutputConstraint> read_guided(Fields& fields);

}  // namespace moeflux::serve
