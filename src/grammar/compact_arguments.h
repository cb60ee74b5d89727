// Arguments in the compact spelling: {key:<|"|>text<|"|>,n:1}.
#pragma once

#include <string>

#include "base/result.h"
#include "grammar/call_grammar.h"

namespace moeflux {

/// The rule of a tool's arguments: an object whose properties stand in the order in which templates
/// of such models show them. See call_rule() for what fails.
Result<std::string> compact_argument_rule(const CallableTool& tool, LarkText& text);

}  // namespace moeflux
