// Claude Code writes into its system prompts what is new in every request and says nothing to a
// model. A prompt's kept state ends where two requests begin to differ, so with it nothing behind
// the first line would ever be found again.
#pragma once

#include <string>
#include <string_view>

namespace moeflux::serve {

/// A system prompt's text without
/// - its first line, if that begins with "x-anthropic-billing-header:";
/// - "<total_tokens>N tokens left</total_tokens>", and white space before it.
std::string without_nonces(std::string_view text);

}  // namespace moeflux::serve
