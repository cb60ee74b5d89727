#include "grammar/call_grammar.h"

#include "base/format.h"

namespace moeflux {
namespace {

// White space is skipped between all parts of a call; models write some.
constexpr std::string_view kCallGap = "/[ \\n\\r\\t]{0,8}/";

std::string quoted_regex(const std::string& name) { return regex_escaped(Json(name).dump()); }

class Calls {
 public:
  Calls(const OutputFormat& format, LarkText& text)
      : format_(format), text_(text), gap_(text.rule("GAP", std::string(kCallGap))) {}

  Result<CallRule> rule(const std::vector<CallableTool>& tools, bool one_call) {
    if (!is_named() && !format_.takes_json) {
      return make_error(ErrorCode::kUnsupported, "{}: calls in the format {} cannot be enforced",
                        tools.front().source, format_.name);
    }
    std::string either;
    for (const CallableTool& tool : tools) {
      MF_ASSIGN_OR_RETURN(const std::string arguments, argument_rule(format_, tool, text_));
      if (!either.empty()) either += " | ";
      either += is_named() ? named(tool.name, arguments) : object(tool.name, arguments);
    }
    const std::string call = text_.rule("call", either);
    if (format_.call_open.empty()) return unmarked(call, one_call);
    return marked(call, one_call);
  }

 private:
  // Where a format has both ways, one whose separator the vocabulary does not have is not written.
  bool is_named() const {
    if (!format_.takes_named) return false;
    if (!format_.takes_json || format_.name_close.empty()) return true;
    return text_.begins_with_marker(format_.name_close.front());
  }

  std::string close_of(const std::vector<std::string>& close) const {
    return close.empty() ? "" : formatted(" {} {}", gap_, text_.spell(close.front()));
  }

  // NAME and arguments, up to the call's closer.
  std::string named(const std::string& name, const std::string& arguments) {
    std::string before = format_.name_prefix.empty() ? "" : format_.name_prefix.front();
    const std::string& opener =
        before.empty() && !format_.call_open.empty() ? format_.call_open.front() : before;
    const bool is_quoted = format_.name_in_tag && opens_attribute(opener);
    before += is_quoted ? formatted("\"{}\"", name) : name;
    if (format_.name_in_tag && format_.name_close.empty()) before += ">";
    std::string body;
    if (format_.ids == CallIdRule::kFromName) {
      body = formatted("{} /[0-9]{{1,3}}/", text_.spell(formatted("functions.{}:", before)));
    } else {
      body = text_.spell(before);
    }
    if (!format_.id_close.empty()) {
      body =
          formatted("/[0-9A-Za-z_-]{{1,32}}/ {} {}", text_.spell(format_.id_close.front()), body);
    }
    if (!format_.count_attribute.empty()) {
      body += formatted(" ({} /\"[0-9]{{1,2}}\"/)?", text_.spell(format_.count_attribute));
    }
    if (!format_.name_close.empty()) {
      body += formatted(" {}", text_.spell(format_.name_close.front()));
    }
    if (format_.fence_open.empty()) {
      return text_.rule("named", formatted("{} {} {}", body, gap_, arguments));
    }
    return text_.rule(
        "named", formatted("{0} {1} ({2} | {3} {1} {2}{4})", body, gap_, arguments,
                           text_.spell(format_.fence_open.front()), close_of(format_.fence_close)));
  }

  // {"name": NAME, "arguments": {}}
  std::string object(const std::string& name, const std::string& arguments) {
    // Formats that also allow calls without a marker (`bare_json`) use the last argument key.
    const std::string& key =
        format_.bare_json ? format_.argument_keys.back() : format_.argument_keys.front();
    const std::string space = "[ \\n\\r\\t]{0,8}";
    const std::string head =
        text_.rule("HEAD", formatted("/\\{{{0}{1}{0}:{0}{2}{0},{0}{3}{0}:{0}/", space,
                                     quoted_regex(format_.name_keys.front()), quoted_regex(name),
                                     quoted_regex(key)));
    return text_.rule("object", formatted("{} {} {} \"}}\"", head, arguments, gap_));
  }

  // Calls with an opener each, perhaps in a section.
  CallRule marked(const std::string& call, bool one_call) {
    const std::string open = text_.spell(format_.call_open.front());
    const std::string close = close_of(format_.call_close);
    std::string several = formatted("{} {}{}", gap_, call, close);
    if (!one_call) several += formatted(" ({0} {1} {0} {2}{3})*", gap_, open, call, close);
    if (format_.section_open.empty()) {
      return {.opener = format_.call_open.front(), .rest = text_.rule("rest", several)};
    }
    return {.opener = format_.section_open.front(),
            .rest = text_.rule("rest", formatted("{} {} {}{}", gap_, open, several,
                                                 close_of(format_.section_close)))};
  }

  // Calls without one follow their section's, as a list where they are objects.
  CallRule unmarked(const std::string& call, bool one_call) {
    const std::string open = text_.spell(format_.section_open.front());
    std::string several = formatted("{} {}", gap_, call);
    if (is_named()) {
      if (!one_call) several += formatted(" ({0} {1} {0} {2})*", gap_, open, call);
    } else if (!format_.bare_json) {
      const std::string more = one_call ? "" : formatted("(\",\" {0} {1} {0})*", gap_, call);
      several = formatted("{0} \"[\" {0} {1} {0} {2} \"]\"", gap_, call, more);
    }
    return {.opener = format_.section_open.front(),
            .rest = text_.rule("rest", several + close_of(format_.section_close))};
  }

  const OutputFormat& format_;
  LarkText& text_;
  const std::string gap_;
};

}  // namespace

std::vector<std::string> call_openers(const OutputFormat& format) {
  std::vector<std::string> openers = format.section_open;
  openers.insert(openers.end(), format.call_open.begin(), format.call_open.end());
  return openers;
}

Result<CallRule> call_rule(const OutputFormat& format, const std::vector<CallableTool>& tools,
                           bool one_call, LarkText& text) {
  return Calls(format, text).rule(tools, one_call);
}

}  // namespace moeflux
