// Tools for models whose chat template knows none: what they are, and what was called, is told in
// words of ours that many models have seen.
#pragma once

#include <string_view>

#include "output/output_format.h"
#include "templates/chat_template.h"

namespace moeflux {

/// The template shows neither tools nor calls.
bool needs_generic_tools(const TemplateCapabilities& takes);

/// The same conversation for such a template: tools stand in the system message, calls are a part
/// of what the assistant said, and results one of what the user says.
TemplateRequest with_generic_tools(TemplateRequest request);

inline constexpr std::string_view kGenericFormat = "generic";

/// How calls are written then; reasoning as in `own`.
OutputFormat generic_output_format(const OutputFormat& own);

}  // namespace moeflux
