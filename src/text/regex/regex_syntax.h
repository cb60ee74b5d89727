// Translates the regular expressions of tokenizer.json (Oniguruma, Ruby syntax) to PCRE2 with UTF
// and UCP. The two differ in what matters here: \s (PCRE2's has U+180E), \w, \b, \v, \p{Script},
// classes with && or nested classes, and {n,m}+, ^ and $. A construct without a safe translation is
// refused by name.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace moeflux {

/// Fails with kUnsupported, naming the construct, or kInvalidArgument for a broken pattern.
/// `script_prefix` is "sc:" where PCRE2 knows both Script and Script_Extensions, else "".
Result<std::string> translate_regex(std::string_view pattern, std::string_view script_prefix);

/// A pattern that matches the text literally.
std::string quote_regex(std::string_view text);

}  // namespace moeflux
