// How a format's calls look, as a grammar: names, arguments and what stands around them, from the
// format's row of data and the tools' schemas.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "grammar/lark_text.h"
#include "output/output_format.h"

namespace moeflux {

/// A tool that may be called.
struct CallableTool {
  std::string name;
  Json parameters = Json::object();  // a JSON schema
  bool strict = false;               // its arguments are held to all of the schema
  std::string source;                // what messages call the schema
};

/// Whether the name behind it is the value of an attribute, which has quotes.
inline bool opens_attribute(std::string_view opener) {
  return opener.ends_with('=') && opener.find(' ') != std::string_view::npos;
}

/// The texts that begin calls, as far as they are spelled: free text must not contain them.
std::vector<std::string> call_openers(const OutputFormat& format);

struct CallRule {
  std::string opener;  // as text
  std::string rest;    // a rule of all that follows it
};

/// One call of these tools, or one and more, with what stands around them. Fails with kUnsupported
/// for formats whose calls no grammar is written of, and for schemas of strict tools that the
/// format's way of writing arguments cannot be held to.
Result<CallRule> call_rule(const OutputFormat& format, const std::vector<CallableTool>& tools,
                           bool one_call, LarkText& text);

/// The rule of a tool's arguments alone.
Result<std::string> argument_rule(const OutputFormat& format, const CallableTool& tool,
                                  LarkText& text);

}  // namespace moeflux
