#include "grammar/answer_grammar.h"

#include "base/format.h"
#include "grammar/lark_text.h"
#include "output/output_parser.h"

namespace moeflux {
namespace {

constexpr std::string_view kAnswerGap = "/[ \\n\\r\\t]{0,8}/";

class Answer {
 public:
  Answer(const OutputFormat& format, const Tokenizer& tokenizer, std::string_view prompt_tail,
         const AnswerRule& rule)
      : format_(format), tail_(prompt_tail), rule_(rule), text_(tokenizer) {}

  Result<OutputConstraint> grammar() {
    std::string start;
    if (format_.has_messages()) {
      MF_ASSIGN_OR_RETURN(start, format_.channel.empty() ? messages() : channels());
    } else {
      MF_ASSIGN_OR_RETURN(const std::string body, content_or_calls());
      start = reasoning() + body;
    }
    const std::string& source = rule_.content.source;
    return text_.finish(start, source.empty() ? "tools" : source);
  }

 private:
  std::string gap() { return text_.rule("GAP", std::string(kAnswerGap)); }

  // Reasoning that may or has to come before the answer proper.
  std::string reasoning() {
    if (format_.reasoning_close.empty()) return "";
    const std::string& close = format_.reasoning_close.front();
    const bool begins_inside = OutputParser(format_, {.prompt_tail = tail_}).in_reasoning();
    const bool is_over = !begins_inside && tail_.find(close) != std::string_view::npos;
    if (is_over) return "";
    const std::string rest = formatted("{} {} ", text_.text_until(close), gap());
    if (begins_inside) return rest;
    if (!rule_.may_reason || format_.reasoning_open.empty()) return "";
    return formatted("({} {})? ", text_.spell(format_.reasoning_open.front()), rest);
  }

  std::string content() {
    if (rule_.content.kind == ConstraintKind::kNone) return "";
    return text_.part(rule_.content);
  }

  Result<std::string> content_or_calls() {
    if (rule_.tools.empty()) return content();
    MF_ASSIGN_OR_RETURN(const CallRule calls,
                        call_rule(format_, rule_.tools, rule_.one_call, text_));
    const std::string whole = formatted("{} {}", text_.spell(calls.opener), calls.rest);
    if (rule_.calls_required) return formatted("{} {}", gap(), whole);
    if (rule_.content.kind != ConstraintKind::kNone) {
      return formatted("({} | {})", whole, content());
    }
    // Text, perhaps with calls behind it: what is spelled like a call's opener is one.
    const std::string text = text_.text_without(call_openers(format_), format_.bare_open);
    if (text_.begins_with_marker(calls.opener)) return formatted("{} ({})?", text, whole);
    // One terminal, since text by itself would swallow the opener's begin.
    const std::string head =
        text_.rule("OPENER", formatted("{} {}", text, lark_literal(calls.opener)));
    return formatted("({} | {} {})", text, head, calls.rest);
  }

  // Messages whose headers say by a recipient or a marker what they are; the last is the answer.
  Result<std::string> messages() {
    const bool addressed = format_.addressed;
    const std::string start = text_.spell(format_.start.front());
    const std::string end = text_.spell(format_.message_end.front());
    const std::string next = addressed ? formatted("{} {} \"assistant\"", end, start) : end;
    const std::string any = text_.text_without({});
    const auto head = [&](const std::string& recipient, const std::string& marker) {
      return addressed ? text_.spell(formatted(" to={}{}", recipient, format_.message.front()))
                       : formatted("{} {}", start, text_.spell(marker));
    };
    const std::string thought =
        text_.rule("reasoning",
                   formatted("{} {} {}", head("self", format_.reasoning_open.front()), any, next));
    std::string between;  // messages that others follow
    std::string last;
    for (const CallableTool& tool : rule_.tools) {
      MF_ASSIGN_OR_RETURN(const CallRule calls, call_rule(format_, {tool}, true, text_));
      const std::string call = text_.rule(
          "message",
          formatted("{} {}", head(tool.name, tool.name + calls.opener),
                    addressed ? text_.spell(calls.opener) + " " + calls.rest : calls.rest));
      // A call that its format closes needs no other end.
      if (!rule_.one_call) {
        between += formatted("{}{} {}", between.empty() ? "" : " | ", call, addressed ? next : "");
      }
      last += (last.empty() ? "" : " | ") + call;
    }
    if (!rule_.calls_required) {
      const bool is_free = rule_.content.kind == ConstraintKind::kNone;
      const std::string text = head("user", format_.message.front());
      if (!last.empty()) last += " | ";
      last += text_.rule("final", formatted("{} {} {}", text, is_free ? any : content(),
                                            addressed ? "" : formatted("({})?", end)));
      // Text before calls is content too.
      if (is_free) {
        between += between.empty() ? "" : " | ";
        between += text_.rule("preamble", formatted("{} {} {}", text, any, next));
      }
    }
    if (between.empty()) return formatted("({})? ({})", thought, last);
    return formatted("({0})? (({1}) ({0})?)* ({2})", thought, between, last);
  }

  // Harmony: messages with headers, of which the last is the answer.
  Result<std::string> channels() {
    const std::string channel = text_.spell(format_.channel.front());
    const std::string message = text_.spell(format_.message.front());
    const std::string next =
        formatted("{} {} \"assistant\"", text_.spell(format_.message_end.front()),
                  text_.spell(format_.start.front()));
    const std::string any = text_.text_without({});
    const std::string reasoning = text_.rule(
        "reasoning", formatted("{} {} {} {} {}", channel, lark_literal(format_.reasoning_channel),
                               message, any, next));
    const std::string json =
        text_.rule("json", formatted("(\" \"? {} \"json\")?", text_.spell("<|constrain|>")));
    std::string last;
    for (const CallableTool& tool : rule_.tools) {
      MF_ASSIGN_OR_RETURN(const std::string arguments, argument_rule(format_, tool, text_));
      const std::string head = lark_literal(formatted("commentary to=functions.{}", tool.name));
      if (!last.empty()) last += " | ";
      last +=
          text_.rule("call", formatted("{} {} {} {} {}", channel, head, json, message, arguments));
    }
    std::string before = reasoning;
    if (!rule_.calls_required) {
      const bool is_free = rule_.content.kind == ConstraintKind::kNone;
      if (!last.empty()) last += " | ";
      last += text_.rule("final", formatted("{} \"final\" {} {} {}", channel, is_free ? "" : json,
                                            message, is_free ? any : content()));
      // Text before calls is content too.
      if (is_free) {
        before += " | ";
        before += text_.rule("preamble",
                             formatted("{} \"commentary\" {} {} {}", channel, message, any, next));
      }
    }
    return formatted("({})* ({})", before, last);
  }

  const OutputFormat& format_;
  const std::string_view tail_;
  const AnswerRule& rule_;
  LarkText text_;
};

}  // namespace

Result<OutputConstraint> answer_grammar(const OutputFormat& format, const Tokenizer& tokenizer,
                                        std::string_view prompt_tail, const AnswerRule& rule) {
  return Answer(format, tokenizer, prompt_tail, rule).grammar();
}

}  // namespace moeflux
