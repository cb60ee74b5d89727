// Every answer that a grammar lets pass is read as what it was to be, whatever the format. It is
// long since it has a call of each.
#include "grammar/answer_grammar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "grammar/token_tree.h"
#include "output/output_message_test_util.h"
#include "output/output_parser.h"
#include "output/value_reader.h"

namespace moeflux {
namespace {

// A token for each byte, spelled as GPT-2's alphabet has them, and these markers.
Tokenizer tokenizer_with(const std::vector<std::string>& markers) {
  Json vocabulary = Json::object();
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_plain = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
    const int code = is_plain ? byte : next++;
    std::string spelled;
    if (code < 0x80) {
      spelled = static_cast<char>(code);
    } else {
      spelled = {static_cast<char>(0xc0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3f))};
    }
    vocabulary[spelled] = byte;
  }
  Json added = Json::array();
  for (size_t i = 0; i < markers.size(); ++i) {
    added.push_back({{"id", 256 + i},
                     {"content", markers[i]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const Json file = {
      {"added_tokens", added},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"post_processor", nullptr},
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", Json::array()}}}};
  Result<Tokenizer> made = Tokenizer::parse(file.dump(), "test");
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message());
  return std::move(made).value();
}

CallableTool weather() {
  return {.name = "get_weather",
          .parameters = Json::parse(R"({"type": "object", "properties": {
              "city": {"type": "string"}, "unit": {"enum": ["C", "F"]},
              "days": {"type": "integer", "minimum": 1, "maximum": 9},
              "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2}},
              "required": ["city", "days"], "additionalProperties": false})"),
          .strict = true,
          .source = "tools[0].function.parameters"};
}

CallableTool stop() {
  return {.name = "stop", .parameters = {{"type", "object"}, {"additionalProperties", false}}};
}

class AnswerGrammar : public ::testing::Test {
 protected:
  /// The format with a vocabulary that has these markers.
  void use(const std::string& format, const std::vector<std::string>& markers) {
    format_ = find_output_format(format);
    ASSERT_NE(format_, nullptr);
    tokenizer_.emplace(tokenizer_with(markers));
    tree_ = std::move(make_token_tree(*tokenizer_)).value();
    markers_ = find_marker_tokens(*format_, [&](std::string_view text) {
      std::optional<TokenId> found;
      for (const AddedToken& token : tokenizer_->added_tokens()) {
        if (token.content == text) found = token.id;
      }
      return found;
    });
  }

  std::unique_ptr<Matcher> start(const AnswerRule& rule, std::string_view tail = "") {
    const auto grammar = answer_grammar(*format_, *tokenizer_, tail, rule);
    EXPECT_TRUE(grammar.ok()) << (grammar.ok() ? "" : grammar.error().message());
    const auto constraint = Constraint::compile(tree_, *grammar);
    EXPECT_TRUE(constraint.ok()) << (constraint.ok() ? "" : constraint.error().message()) << "\n"
                                 << grammar->text;
    return std::move((*constraint)->start()).value();
  }

  /// How many bytes of the text are taken; all of them and the end: npos.
  size_t taken(const AnswerRule& rule, const std::string& text, std::string_view tail = "") {
    const std::unique_ptr<Matcher> matcher = start(rule, tail);
    const std::vector<TokenId> ids = *tokenizer_->encode(text);
    size_t bytes = 0;
    for (const TokenId id : ids) {
      if (!matcher->consume(id).ok()) return bytes;
      bytes += tokenizer_->token_bytes(id).size();
    }
    return matcher->next()->may_end ? std::string::npos : bytes;
  }

  /// The text that ends a value within arguments; empty where JSON's quotes do.
  std::string value_closer() const {
    if (format_->arguments == ArgumentSyntax::kCompact) return std::string(kCompactDelimiter);
    return format_->value_close.empty() ? "" : format_->value_close.front();
  }

  /// A text drawn from what is allowed, with a liking for what ends things.
  std::vector<TokenId> draw(const AnswerRule& rule, uint32_t seed, std::string_view tail) {
    static constexpr std::string_view kEnds = "\"}]</>\n,";
    std::mt19937 random(seed);
    const std::unique_ptr<Matcher> matcher = start(rule, tail);
    std::vector<TokenId> text;
    std::string wish;  // a closer that is spelled, as far as it is to come
    while (text.size() < 10000) {
      const Matcher::Next next = matcher->next().value();
      if (next.must_end || (next.may_end && random() % 4 == 0)) return text;
      if (wish.empty() && random() % 20 == 0) wish = value_closer();
      const auto wished = static_cast<TokenId>(static_cast<unsigned char>(wish[0]));
      if (!wish.empty() && next.mask.allows(wished)) {
        wish.erase(0, 1);
        text.push_back(wished);
        EXPECT_TRUE(matcher->consume(wished).ok());
        continue;
      }
      wish.clear();
      std::vector<TokenId> choices;
      for (TokenId id = 0; id < tokenizer_->vocab_size(); ++id) {
        const bool ends = id >= 256 || kEnds.find(static_cast<char>(id)) != std::string_view::npos;
        if (next.mask.allows(id)) choices.insert(choices.end(), ends ? 40 : 1, id);
      }
      EXPECT_FALSE(choices.empty());
      if (choices.empty()) return text;
      text.push_back(choices[random() % choices.size()]);
      EXPECT_TRUE(matcher->consume(text.back()).ok());
    }
    ADD_FAILURE() << "no end: " << tokenizer_->decode(text);
    return text;
  }

  /// The client's view of a completion.
  struct Told {
    std::string content;
    std::vector<std::pair<std::string, std::string>> calls;  // names and arguments
    int misfits = 0;
    int complete = 0;
  };
  Told read(const std::vector<TokenId>& text, const AnswerRule& rule, std::string_view tail) {
    Json tools = Json::array();
    for (const CallableTool& tool : rule.tools) {
      tools.push_back({{"name", tool.name}, {"parameters", tool.parameters}});
    }
    const ToolTypes types = ToolTypes::of_tools(tools);
    OutputParser parser(*format_, {.prompt_tail = tail, .markers = &markers_, .tools = &types});
    std::vector<OutputEvent> events;
    for (const TokenId id : text) {
      parser.push(std::string(tokenizer_->token_bytes(id)), id, &events);
    }
    parser.finish(&events);
    Told told{.misfits = parser.misfits(), .complete = parser.complete_calls()};
    for (const OutputEvent& event : events) {
      if (event.kind == OutputKind::kContent) told.content += event.text;
      if (event.kind == OutputKind::kCallBegin) told.calls.emplace_back(event.text, "");
      if (event.kind == OutputKind::kCallArguments) told.calls.back().second += event.text;
    }
    return told;
  }

  void expect_arguments(const std::string& name, const std::string& arguments) {
    const Json json = Json::parse(arguments, nullptr, false);
    ASSERT_TRUE(json.is_object()) << arguments;
    if (name == "stop") return;
    EXPECT_EQ(name, "get_weather");
    EXPECT_TRUE(json.contains("city") && json["city"].is_string()) << arguments;
    ASSERT_TRUE(json.contains("days") && json["days"].is_number_integer()) << arguments;
    EXPECT_TRUE(json["days"] >= 1 && json["days"] <= 9) << arguments;
    const Json unit = json.value("unit", Json("C"));
    EXPECT_TRUE(unit == "C" || unit == "F") << arguments;
    const Json tags = json.value("tags", Json::array());
    EXPECT_TRUE(tags.is_array() && tags.size() <= 2) << arguments;
  }

  /// Draws answers and reads them.
  void expect_calls(const AnswerRule& rule, std::string_view tail = "") {
    for (uint32_t seed = 0; seed < 6; ++seed) {
      const std::vector<TokenId> text = draw(rule, seed, tail);
      const Told told = read(text, rule, tail);
      const std::string shown = format_->name + ": " + tokenizer_->decode(text);
      EXPECT_EQ(told.misfits, 0) << shown;
      EXPECT_EQ(told.complete, static_cast<int>(told.calls.size())) << shown;
      EXPECT_GE(told.calls.size(), rule.calls_required ? 1u : 0u) << shown;
      EXPECT_TRUE(told.content.empty() || !rule.calls_required) << shown;
      EXPECT_TRUE(told.calls.size() < 2 || !rule.one_call) << shown;
      for (const auto& [name, arguments] : told.calls) expect_arguments(name, arguments);
      if (HasFailure()) return;
    }
  }

  const OutputFormat* format_ = nullptr;
  std::optional<Tokenizer> tokenizer_;
  std::shared_ptr<const TokenTree> tree_;
  MarkerTokens markers_;
};

struct Row {
  const char* format;
  std::vector<std::string> markers;
  const char* call;  // as its models write one
};

const std::vector<std::string> kDeepMarkers = {"<think>",
                                               "</think>",
                                               "<｜tool▁calls▁begin｜>",
                                               "<｜tool▁calls▁end｜>",
                                               "<｜tool▁call▁begin｜>",
                                               "<｜tool▁call▁end｜>",
                                               "<｜tool▁sep｜>"};

constexpr const char* kCompactCall =
    "<|tool_call>call:get_weather{city:<|\"|>Rome<|\"|>,days:3,tags:[true,false],"
    "unit:<|\"|>F<|\"|>}<tool_call|>";

std::vector<Row> rows_with_other_markers() {
  return {
      {"separated_tags",
       {"<|open|>", "<|close|>", "<|sep|>"},
       "<|open|>tools<|sep|><|open|>call tool=\"get_weather\" index=\"1\"<|sep|>"
       "<|open|>argument key=\"city\" type=\"string\"<|sep|>Rome<|close|>argument<|sep|>"
       "<|open|>argument key=\"days\" type=\"number\"<|sep|>3<|close|>argument<|sep|>"
       "<|close|>call<|sep|><|close|>tools<|sep|>"},
      {"addressed_invoke_tags",
       {"<|start|>", "<|message|>", "<|eom|>", "<|eot|>"},
       " to=get_weather<|message|><atem:function_calls>\n<atem:invoke name=\"get_weather\">\n"
       "<atem:parameter name=\"city\">Rome</atem:parameter>\n<atem:parameter name=\"days\">3"
       "</atem:parameter>\n</atem:invoke>\n</atem:function_calls>"},
      {"typed_messages",
       {"<|message_model|>", "<|content_text|>", "<|content_thinking|>",
        "<|content_invoke_tool_json|>", "<|end_message|>", "<|content_model_end_sampling|>"},
       "<|message_model|>get_weather<|content_invoke_tool_json|>{\"name\":\"get_weather\","
       "\"args\":{\"city\":\"Rome\",\"days\":3}}<|end_message|>"},
      {"action_lists",
       {"<|START_THINKING|>", "<|END_THINKING|>", "<|START_ACTION|>", "<|END_ACTION|>"},
       "<|START_ACTION|>[\n    {\"tool_name\": \"get_weather\", \"parameters\": {\"city\": "
       "\"Rome\", \"days\": 3}}\n]<|END_ACTION|>"},
      {"id_before_name",
       {"<|think|>", "<|end|>", "<|begin|>", "<|content|>", "<|tool_calls|>", "<|calls|>",
        "<|tool_call:begin|>", "<|tool_call:name|>", "<|tool_call:args|>", "<|tool_call:end|>"},
       "<|tool_calls|><|tool_call:begin|>a1B2c3D4e5<|tool_call:name|>get_weather<|tool_call:args|>"
       "{\"city\": \"Rome\", \"days\": 3}<|tool_call:end|><|calls|>"},
      {"suffixed_key_value_tags",
       {"<think:opensource>", "</think:opensource>"},
       "<tool_calls:opensource>\n<tool_call:opensource>get_weather<tool_sep:opensource>\n"
       "<arg_key:opensource>city</arg_key:opensource>\n<arg_value:opensource>Rome"
       "</arg_value:opensource>\n<arg_key:opensource>days</arg_key:opensource>\n"
       "<arg_value:opensource>3</arg_value:opensource>\n</tool_call:opensource>\n"
       "</tool_calls:opensource>"}};
}

std::vector<Row> usual_rows() {
  return {
      {"tagged_json",
       {"<think>", "</think>", "<tool_call>", "</tool_call>"},
       "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\", \"days\": "
       "3}}\n"
       "</tool_call>"},
      {"function_tags",
       {"<think>", "</think>", "<tool_call>", "</tool_call>"},
       "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</"
       "parameter>\n<parameter=days>\n"
       "3\n</parameter>\n</function>\n</tool_call>"},
      {"fenced_json", kDeepMarkers,
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
       "{\"city\": \"Rome\", \"days\": 3}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
      {"separated_json", kDeepMarkers,
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>"
       "{\"city\": \"Rome\", \"days\": 3}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
      {"attribute_tags",
       {"<think>", "</think>"},
       "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter "
       "name=\"city\" string=\"true\">Rome</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" "
       "string=\"false\">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>"},
      {"key_value_tags",
       {"<think>", "</think>", "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>",
        "<arg_value>", "</arg_value>"},
       "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n"
       "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>"},
      {"separated_key_value_tags",
       {"<think>", "</think>"},
       "<tool_calls>\n<tool_call>get_weather<tool_sep>\n<arg_key>city</arg_key>\n"
       "<arg_value>Rome</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n"
       "</tool_call>\n</tool_calls>"},
      {"numbered_names",
       {"<think>", "</think>", "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>",
        "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"},
       "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
       "<|tool_call_argument_begin|>{\"city\": \"Rome\", \"days\": 3}<|tool_call_end|>"
       "<|tool_calls_section_end|>"},
      {"invoke_tags",
       {"<think>", "</think>", "<minimax:tool_call>", "</minimax:tool_call>"},
       "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter "
       "name=\"city\">Rome</parameter>"
       "\n<parameter name=\"days\">3</parameter>\n</invoke>\n</minimax:tool_call>"},
      {"channels",
       {"<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|return|>", "<|call|>",
        "<|constrain|>"},
       "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
       "{\"city\": \"Rome\", \"days\": 3}"},
      {"bracket_markers",
       {"[TOOL_CALLS]", "[ARGS]"},
       "[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Rome\", \"days\": 3}"},
      {"bracket_markers",
       {"[TOOL_CALLS]"},
       "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\", \"days\": "
       "3}}]"},
      {"python_tag",
       {"<|python_tag|>"},
       "<|python_tag|>{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Rome\", \"days\": "
       "3}}"},
      {"call_lists",
       {"<think>", "</think>", "<|tool_call_start|>", "<|tool_call_end|>"},
       "<|tool_call_start|>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\", "
       "\"days\": 3}}]<|tool_call_end|>"},
      {"compact_calls",
       {"<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", "<|\"|>"},
       kCompactCall},
      {"compact_calls", {"<|channel>", "<channel|>"}, kCompactCall}};
}

std::vector<Row> rows() {
  std::vector<Row> all = usual_rows();
  for (Row& row : rows_with_other_markers()) all.push_back(std::move(row));
  return all;
}

TEST_F(AnswerGrammar, TakesCallsAsModelsWriteThem) {
  if (!has_constraints()) return;
  for (const Row& row : rows()) {
    use(row.format, row.markers);
    const AnswerRule rule{.tools = {weather(), stop()}, .calls_required = true};
    EXPECT_EQ(taken(rule, row.call), std::string::npos) << row.call;
    std::string wrong = row.call;
    wrong.replace(wrong.find("days"), 4, "dais");
    EXPECT_LT(taken(rule, wrong), wrong.size()) << wrong;
    EXPECT_EQ(taken(rule, "I would"), 0u) << row.format;
  }
}

TEST_F(AnswerGrammar, WhatPassesIsReadAsCallsOfTheTools) {
  if (!has_constraints()) return;
  for (const Row& row : rows()) {
    use(row.format, row.markers);
    expect_calls({.tools = {weather(), stop()}, .calls_required = true});
    if (HasFailure()) return;
  }
}

TEST_F(AnswerGrammar, TextIsFreeUntilACallBegins) {
  if (!has_constraints()) return;
  for (const Row& row : rows()) {
    use(row.format, row.markers);
    const AnswerRule rule{.tools = {weather()}, .one_call = true};
    expect_calls(rule);
    if (!format_->has_messages()) {
      EXPECT_EQ(taken(rule, "a { \"b\" <c>\n"), std::string::npos) << row.format;
      EXPECT_EQ(taken(rule, "Well: " + std::string(row.call)), std::string::npos) << row.format;
      EXPECT_NE(taken(rule, std::string(row.call) + row.call), std::string::npos) << row.format;
    }
    if (HasFailure()) return;
  }
}

TEST_F(AnswerGrammar, ReasoningIsFreeAndContentIsNot) {
  if (!has_constraints()) return;
  const AnswerRule rule{.content = {.kind = ConstraintKind::kJsonSchema,
                                    .text = R"({"type": "integer"})",
                                    .source = "schema"}};
  use("tagged_json", {"<think>", "</think>"});
  EXPECT_EQ(taken(rule, "12"), std::string::npos);
  EXPECT_EQ(taken(rule, "<think>\nHm, \"<b>\n</think>\n\n12"), std::string::npos);
  EXPECT_EQ(taken(rule, "x"), 0u);
  EXPECT_EQ(taken(rule, "Hm\n</think>\n\n12", "<think>\n"), std::string::npos);
  EXPECT_EQ(taken(rule, "Hm\n", "<think>\n"), 3u);
  EXPECT_EQ(taken(rule, "<think>", "<think>\n\n</think>\n\n"), 0u);
  EXPECT_EQ(taken(rule, "12", "<think>\n\n</think>\n\n"), std::string::npos);
  // The same where the tags are spelled.
  use("tagged_json", {});
  EXPECT_EQ(taken(rule, "<think>a</th</think>\n12"), std::string::npos);
  EXPECT_EQ(taken(rule, "Hm\n</think>\n\n12", "<think>\n"), std::string::npos);
  EXPECT_EQ(taken(rule, "Hm\n</think>\n\nx", "<think>\n"), 13u);
  use("text", {});
  EXPECT_EQ(taken({.content = {.kind = ConstraintKind::kRegex, .text = "a+", .source = "r"}}, "aa"),
            std::string::npos);
}

TEST_F(AnswerGrammar, OfChannelsTheFinalOneIsHeldTo) {
  if (!has_constraints()) return;
  use("channels", {"<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|return|>", "<|call|>",
                   "<|constrain|>"});
  const AnswerRule rule{.content = {.kind = ConstraintKind::kJsonObject, .source = "format"}};
  const std::string analysis = "<|channel|>analysis<|message|>Hm {<|end|><|start|>assistant";
  EXPECT_EQ(taken(rule, analysis + "<|channel|>final<|message|>{\"a\": 1}"), std::string::npos);
  EXPECT_EQ(taken(rule, analysis + "<|channel|>final <|constrain|>json<|message|>{}"),
            std::string::npos);
  const std::string head = analysis + "<|channel|>final<|message|>";
  EXPECT_EQ(taken(rule, head + "No"), head.size());
  EXPECT_EQ(taken(rule, "<|channel|>commentary<|message|>"), 11u);
}

TEST_F(AnswerGrammar, ContentIsHeldToBesideCalls) {
  if (!has_constraints()) return;
  use("tagged_json", {"<think>", "</think>", "<tool_call>", "</tool_call>"});
  const AnswerRule rule{.content = {.kind = ConstraintKind::kJsonObject, .source = "format"},
                        .tools = {weather()}};
  EXPECT_EQ(taken(rule, "{\"a\": [1]}"), std::string::npos);
  EXPECT_EQ(taken(rule, rows()[0].call), std::string::npos);
  EXPECT_EQ(taken(rule, "Well"), 0u);
}

TEST_F(AnswerGrammar, NamesWhatTagsCannotBeHeldTo) {
  if (!has_constraints()) return;
  use("function_tags", {});
  CallableTool tool = weather();
  tool.parameters["properties"]["city"]["pattern"] = "^[A-Z]";
  const AnswerRule rule{.tools = {tool}, .calls_required = true};
  const auto refused = answer_grammar(*format_, *tokenizer_, "", rule);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kUnsupported);
  EXPECT_NE(refused.error().message().find("tools[0].function.parameters#/properties/city/pattern"),
            std::string::npos);
  use("compact_calls", {});
  const auto compact = answer_grammar(*format_, *tokenizer_, "", rule);
  ASSERT_FALSE(compact.ok());
  EXPECT_EQ(compact.error().message(), refused.error().message());
  use("element_tags", {});
  const Error elements = answer_grammar(*format_, *tokenizer_, "", rule).error();
  EXPECT_NE(elements.message().find("format element_tags"), std::string::npos);
}

TEST_F(AnswerGrammar, CompactArgumentsAreHeldToTheirSchema) {
  if (!has_constraints()) return;
  use("compact_calls", {"<|tool_call>", "<tool_call|>", "<|\"|>"});
  const CallableTool tool{
      .name = "f",
      .parameters = Json::parse(R"({"type": "object", "additionalProperties": false,
          "$defs": {"tree": {"type": "object", "additionalProperties": false,
                             "properties": {"kids": {"type": "array", "minItems": 1,
                                                     "items": {"$ref": "#/$defs/tree"}}}}},
          "properties": {"b": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                         "A": {"type": ["integer", "boolean"], "maximum": 5},
                         "tree": {"$ref": "#/$defs/tree"}, "odd key": {"const": [1, "x"]},
                         "map": {"type": "object", "additionalProperties": {"type": "number"}},
                         "z": {}},
          "required": ["b"]})"),
      .strict = true,
      .source = "tools[0].function.parameters"};
  const AnswerRule rule{.tools = {tool}, .calls_required = true};
  const auto takes = [&](std::string arguments) {
    for (size_t at = 0; (at = arguments.find('\'', at)) != std::string::npos; at += 5) {
      arguments.replace(at, 1, "<|\"|>");
    }
    const std::string text = "<|tool_call>call:f{" + arguments + "}<tool_call|>";
    const bool is_taken = taken(rule, text) == std::string::npos;
    if (!is_taken) return false;
    const Told told = read(*tokenizer_->encode(text), rule, "");
    EXPECT_EQ(told.complete, 1) << text;
    EXPECT_EQ(told.misfits, 0) << text;
    return true;
  };
  for (const char* good :
       {"b:'x'", "b:null", "A:5,b:'{}\"\n'", "A:true,b:''", "b:'x',tree:{}", "b:'x',map:{}",
        "b:'x',tree:{kids:[{},{kids:[{}]}]}", "b:'x',map:{k:1.5,_2:-3}", "b:'x','odd key':[1,'x']",
        "b:'x',z:[1,{k:[]},'t',null]", "A:1,b:'x',map:{a:1},'odd key':[1,'x'],tree:{},z:true"}) {
    EXPECT_TRUE(takes(good)) << good;
  }
  for (const char* bad : {"", "b:3", "b:x", "b:'x',", "A:6,b:'x'", "A:5", "b:'x',A:5", "b:'x',c:1",
                          "b:'x',b:'x'", "b:'x',tree:{kids:[]}", "b:'x',tree:{leaf:1}",
                          "b:'x',map:{a:'x'}", "b:'x','odd key':[1]", ",b:'x'", "b:'x'tree:{}"}) {
    EXPECT_FALSE(takes(bad)) << bad;
  }
  // Text that would be read as a call is none that may be said freely.
  EXPECT_NE(taken({.tools = {tool}}, " call:f{}"), std::string::npos);
  EXPECT_EQ(taken({.tools = {tool}}, "I call: f"), std::string::npos);
}

TEST_F(AnswerGrammar, CompactArgumentsOfStrictToolsSayWhatTheyAreNotHeldTo) {
  if (!has_constraints()) return;
  use("compact_calls", {});
  const auto refusal = [&](const char* schema) {
    CallableTool tool{
        .name = "f",
        .parameters = {{"type", "object"}, {"properties", {{"a", Json::parse(schema)}}}},
        .strict = true,
        .source = "t"};
    const auto strict = answer_grammar(*format_, *tokenizer_, "", {.tools = {tool}});
    tool.strict = false;
    EXPECT_TRUE(answer_grammar(*format_, *tokenizer_, "", {.tools = {tool}}).ok()) << schema;
    return strict.ok() ? std::string() : strict.error().message();
  };
  for (const char* schema :
       {R"({"type": "string", "minLength": 2})", R"({"type": "array", "uniqueItems": true})",
        R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})",
        R"({"allOf": [{"type": "null"}]})", R"({"$ref": "other.json"})",
        R"({"type": "object", "required": ["k"]})", R"({"enum": [1], "minimum": 2})",
        R"({"anyOf": [{}], "type": "string"})"}) {
    EXPECT_EQ(refusal(schema).substr(0, 15), "t#/properties/a") << schema;
  }
  EXPECT_EQ(refusal(R"({"oneOf": [{"type": "string"}, {"type": "number"}]})"), "");
}

}  // namespace
}  // namespace moeflux
