#include "output/response_template.h"

#include <gtest/gtest.h>

#include "output/output_test_util.h"

namespace moeflux {
namespace {

/// The format of a compiled template, or the error's message in `name`.
OutputFormat compiled(const char* json) {
  auto format = compile_response_template(Json::parse(json), "tokenizer_config.json");
  if (format.ok()) return std::move(format).value();
  OutputFormat none;
  none.name = format.error().to_string();
  return none;
}

std::string calls_of(const OutputFormat& format, std::string_view text) {
  std::string all;
  for (const OutputEvent& event : parse_pieces(format, {}, {text})) {
    if (event.kind == OutputKind::kCallBegin) all += event.text;
    if (event.kind == OutputKind::kCallArguments) all += event.text;
    if (event.kind == OutputKind::kReasoning) all += "(" + event.text + ")";
    if (event.kind == OutputKind::kContent) all += "'" + event.text + "'";
    if (event.kind == OutputKind::kCallEnd) all += event.complete ? ";" : "?";
  }
  return all;
}

TEST(ResponseTemplate, OfJsonCallsBetweenLiterals) {
  const OutputFormat format = compiled(R"({
    "defaults": {"role": "assistant"}, "start_anchor": "<|im_start|>assistant\n",
    "fields": {
      "thinking": {"open": "<think>", "close": "</think>", "content": "text"},
      "tool_calls": {"open": ["<call>", "<tool_call>"], "close": "</tool_call>", "repeats": true,
                     "content": "json", "transform": {"type": "function", "function": "{content}"}},
      "content": {"close": "<|im_end|>", "content": "text"}}})");
  EXPECT_EQ(format.name, "response_template");
  EXPECT_EQ(calls_of(format,
                     "<think>\nHm.\n</think>\n\nYes. <tool_call>{\"name\": \"f\", \"arguments\": "
                     "{\"a\": 1}}</tool_call><|im_end|>"),
            "(Hm.)'Yes.'f{\"a\": 1};");
}

TEST(ResponseTemplate, OfAListWithOtherKeys) {
  const OutputFormat format = compiled(R"({"start_anchor": "x", "fields": {
    "content": {"open": "<|START_RESPONSE|>", "close": "<|END_RESPONSE|>"},
    "tool_calls": {"open": "<|START_ACTION|>", "close": "<|END_ACTION|>", "content": "json",
      "transform_each": true, "transform": {"type": "function", "function":
        {"name": "{tool_name}", "arguments": "{parameters}"}}}}})");
  // A list stands where one call may stand, too.
  EXPECT_EQ(calls_of(format,
                     "<|START_RESPONSE|>Yes.<|END_RESPONSE|><|START_ACTION|>[\n"
                     "{\"tool_name\": \"f\", \"parameters\": {}},\n"
                     "{\"tool_name\": \"g\", \"parameters\": {\"a\": 2}}]<|END_ACTION|>"),
            "'Yes.'f{};g{\"a\": 2};");
}

TEST(ResponseTemplate, OfOneTagPerParameter) {
  const OutputFormat format = compiled(R"({"start_anchor": "x", "fields": {"tool_calls": {
    "open_pattern": "<tool_call>\\s*<function=(?P<name>\\w+)>", "close": "</tool_call>",
    "repeats": true, "content": "xml-inline", "content_args": {
      "tag_pattern": "<parameter=(?P<key>\\w+)>\\s*(?P<value>.*?)\\s*</parameter>",
      "value_parser": {"name": "json", "args": {"allow_non_json": true}}},
    "transform": {"type": "function", "function":
      {"name": "{name}", "arguments": "{content}"}}}}})");
  EXPECT_EQ(format.name, "response_template");
  EXPECT_EQ(calls_of(format,
                     "<tool_call>\n<function=f>\n<parameter=a>\n[1]\n</parameter>\n<parameter=b>"
                     "x</parameter>\n</function>\n</tool_call>"),
            "f{\"a\":[1],\"b\":\"x\"};");
}

TEST(ResponseTemplate, OfNamesBeforeACompactObject) {
  const OutputFormat format = compiled(R"~({"start_anchor": "x", "fields": {"tool_calls": {
    "open_pattern": "<\\|tool_call>call:(?P<name>\\w+)", "close": "<tool_call|>", "repeats": true,
    "content": "json",
    "content_args": {"unquoted_keys": true, "string_delims": [["<|\"|>", "<|\"|>"]]},
    "transform": {"type": "function", "function":
      {"name": "{name}", "arguments": "{content}"}}}}})~");
  EXPECT_EQ(format.name, "response_template");
  EXPECT_EQ(calls_of(format, "<|tool_call>call:f{a:<|\"|>x y<|\"|>,n:1}<tool_call|>"),
            "f{\"a\":\"x y\",\"n\":1};");
}

TEST(ResponseTemplate, MayHaveWhiteSpaceInItsLiterals) {
  const OutputFormat format = compiled(R"({"start_anchor": "x", "fields": {
    "thinking": {"open": "<think>\n", "close": "\n</think>\n\n", "content": "text"},
    "tool_calls": {"open_pattern": "<call>(?P<name>.*?)\n<args>", "close": "</args>\n",
                   "content": "json"}}})");
  EXPECT_EQ(format.name, "response_template");
  EXPECT_EQ(calls_of(format, "<think>\nHm.\n</think>\n\nYes.<call>f\n<args>{}</args>\n"),
            "(Hm.)'Yes.'f{};");
}

TEST(ResponseTemplate, WithPatternsThatNoRowSaysIsRefusedByItsField) {
  const char* kChannels = R"({"start_anchor": "x", "fields": {"tool_calls": {
    "open_pattern": "<\\|channel\\|>commentary to=functions\\.(?P<name>\\w+).*?<\\|message\\|>",
    "close": "<|call|>", "content": "json"}}})";
  const std::string message = compiled(kChannels).name;
  EXPECT_NE(message.find("tool_calls: open_pattern <\\|channel\\|>"), std::string::npos) << message;
  for (const char* spec :
       {"[]", "{}", R"({"fields": 1})", R"({"fields": {"a": 1}})",
        R"({"version": 2, "fields": {}})",
        R"({"fields": {"mood": {"open": "<m>", "close": "</m>"}}})",
        R"({"fields": {"thinking": {"open_pattern": "x", "close": "y"}}})",
        R"({"fields": {"thinking": {"open": ["x", 1], "close": "y"}}})",
        R"({"fields": {"tool_calls": {"content": "kv-lines"}}})",
        R"({"fields": {"tool_calls": {"open_pattern": "(?P<name", "content": "xml-inline"}}})",
        R"({"fields": {"tool_calls": {"open_pattern": "\\", "content": "json"}}})",
        R"({"fields": {"tool_calls": {"open": "x", "content": "json",
            "transform": {"function": 1}}}})",
        R"({"fields": {"tool_calls": {"open": " ", "content": "json"}}})",
        R"({"fields": {"tool_calls": {"open_pattern": "a(?P<name>\\w+)b", "content": "json",
            "content_args": {"string_delims": [["'", "'"]]}}}})",
        R"({"fields": {"tool_calls": {"open_pattern": "a(?P<name>\\w+)b", "content": "json",
            "transform": {"function": {"name": "{name}", "arguments": "{content.a}"}}}}})",
        R"({"fields": {"tool_calls": {"open_pattern": "a(?P<name>\\w+)b", "content": "xml-inline",
            "content_args": {"merge_duplicates": true,
                             "tag_pattern": "<p=(?P<key>\\w+)>(?P<value>.*?)</p>"}}}})",
        R"({"fields": {"tool_calls": {"open_pattern": "a(?P<name>\\w+)b", "content": "xml-inline",
            "content_args": {"tag_pattern": "(?P<key>\\w+) "}}}})"}) {
    EXPECT_TRUE(compiled(spec).name.starts_with("unsupported")) << spec << compiled(spec).name;
  }
}

}  // namespace
}  // namespace moeflux
