#include "templates/chat_template.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "base/format.h"
#include "io/file.h"
#include "templates/engine_test_util.h"
#include "text/tokenizer.h"

namespace moeflux {
namespace {

// Spellings that models give to special tokens.
constexpr std::array kMarkers = {
    "<|im_start|>", "<|im_end|>",      "<|endoftext|>", "<s>",        "</s>",
    "<|eot_id|>",   "<|user|>",        "<|assistant|>", "<|system|>", "<|observation|>",
    "[INST]",       "[/INST]",         "[TOOL_CALLS]",  "[BOS]",      "[EOS]",
    "<bos>",        "<start_of_turn>", "<end_of_turn>", "<|start|>",  "<|channel|>",
    "<|message|>",  "<|call|>",        "<|return|>",    "]~b]",       "[e~[",
    "<think>",      "</think>",        "<tool_call>",   "<｜User｜>", "<｜end▁of▁sentence｜>"};

std::string file_text(const std::string& name) {
  auto text =
      read_text_file(formatted("{}/tests/golden/{}", MOEFLUX_SOURCE_DIR, name), uint64_t{1} << 26);
  EXPECT_TRUE(text.ok());
  return text.ok() ? *text : std::string();
}

/// A tokenizer that has all of them, those of tags as ordinary added tokens.
Result<Tokenizer> tokenizer_of_markers() {
  MF_ASSIGN_OR_RETURN(Json json,
                      parse_json(file_text("tokenizer/qwen2.tokenizer.json"), "tokenizer.json"));
  Json& added = json["added_tokens"];
  const Json& vocabulary = json["model"]["vocab"];
  int next_id = 800;
  for (const std::string marker : kMarkers) {
    const bool is_tag = marker.find("think>") != std::string::npos || marker == "<tool_call>";
    std::erase_if(added.get_ref<Json::array_t&>(),
                  [&](const Json& token) { return token["content"] == marker; });
    const int id = vocabulary.contains(marker) ? vocabulary[marker].get<int>() : next_id++;
    added.push_back({{"id", id},
                     {"content", marker},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", is_tag},
                     {"special", !is_tag}});
  }
  return Tokenizer::parse(json.dump(), "tokenizer.json");
}

Result<ChatTemplate> template_of(const std::string& text, SpecialSpellings spellings = {}) {
  return ChatTemplate::create({.what = "a model", .text = text, .named = {}},
                              {{"bos_token", "<s>"}, {"eos_token", "</s>"}}, std::move(spellings));
}

Json conversation_with(const std::string& word) {
  return Json::array({{{"role", "system"}, {"content", "s " + word}},
                      {{"role", "user"}, {"content", "u" + word + word + " v"}},
                      {{"role", "assistant"}, {"content", "ok"}},
                      {{"role", "tool"}, {"content", word}},
                      {{"role", "user"}, {"content", "\xC3\xA9" + word + "\xCC\x81"}}});
}

std::vector<TokenId> added_ids(const Tokenizer& tokenizer, const RenderedPrompt& prompt) {
  auto ids = tokenizer.encode(prompt.text, {.inert_ranges = prompt.inert_ranges});
  EXPECT_TRUE(ids.ok());
  if (!ids.ok()) return {};
  std::erase_if(*ids, [&](TokenId id) {
    return std::none_of(tokenizer.added_tokens().begin(), tokenizer.added_tokens().end(),
                        [&](const AddedToken& token) { return token.id == id; });
  });
  return *ids;
}

TEST(ChatTemplate, MarkersInUserSystemAndToolTextStayInert) {
  if (testing::without_engine()) return;
  const auto tokenizer = tokenizer_of_markers();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message();
  const auto made =
      template_of(file_text("templates/chatml.jinja"), SpecialSpellings(tokenizer->added_tokens()));
  ASSERT_TRUE(made.ok()) << made.error().message();
  TemplateRequest request{.messages = conversation_with("plain")};
  const auto plain = made->render(request, {});
  ASSERT_TRUE(plain.ok());
  const std::vector<TokenId> expected = added_ids(*tokenizer, *plain);
  EXPECT_GE(expected.size(), 10u);
  const auto trusting = template_of(file_text("templates/chatml.jinja"));
  ASSERT_TRUE(trusting.ok());
  for (const std::string marker : kMarkers) {
    SCOPED_TRACE(marker);
    request.messages = conversation_with(marker);
    const auto prompt = made->render(request, {});
    ASSERT_TRUE(prompt.ok());
    EXPECT_EQ(added_ids(*tokenizer, *prompt), expected);
    // The text is what it would be anyway; and trusted, it would have been tokens.
    const auto trusted = trusting->render(request, {});
    ASSERT_TRUE(trusted.ok());
    EXPECT_EQ(prompt->text, trusted->text);
    EXPECT_GT(added_ids(*tokenizer, *trusted).size(), expected.size());
  }
}

TEST(ChatTemplate, MarkersInToolsStayInert) {
  if (testing::without_engine()) return;
  const auto tokenizer = tokenizer_of_markers();
  ASSERT_TRUE(tokenizer.ok());
  const auto made =
      template_of(file_text("templates/chatml.jinja"), SpecialSpellings(tokenizer->added_tokens()));
  ASSERT_TRUE(made.ok());
  std::vector<TokenId> expected;
  std::vector<std::string> words = {"plain"};
  words.insert(words.end(), kMarkers.begin(), kMarkers.end());
  for (const std::string& word : words) {
    const Json function = {{"name", "f"}, {"description", word}, {"x" + word, word}};
    TemplateRequest request{.messages = Json::array({{{"role", "user"}, {"content", "a"}}}),
                            .tools = Json::array({{{"type", "function"}, {"function", function}}})};
    const auto prompt = made->render(request, {});
    ASSERT_TRUE(prompt.ok());
    if (word == "plain") expected = added_ids(*tokenizer, *prompt);
    EXPECT_GE(expected.size(), 3u);
    EXPECT_EQ(added_ids(*tokenizer, *prompt), expected) << word;
  }
}

TEST(ChatTemplate, ToolUseIsForRequestsWithTools) {
  if (testing::without_engine()) return;
  const auto made = ChatTemplate::create({.what = "a model",
                                          .text = std::nullopt,
                                          .named = {{"default", "plain {{ messages[0].content }}"},
                                                    {"tool_use", "tools {{ tools | length }}"}}},
                                         Json::object(), {});
  ASSERT_TRUE(made.ok());
  TemplateRequest request{.messages = Json::array({{{"role", "user"}, {"content", "a"}}})};
  EXPECT_EQ(made->render(request, {})->text, "plain a");
  request.tools = Json::array();
  EXPECT_EQ(made->render(request, {})->text, "plain a");
  request.tools = Json::array({{{"type", "function"}, {"function", {{"name", "f"}}}}});
  EXPECT_EQ(made->render(request, {})->text, "tools 1");
}

TEST(ChatTemplate, ProbesFindWhatATemplateTakes) {
  if (testing::without_engine()) return;
  const auto made = template_of(file_text("templates/chatml.jinja"));
  ASSERT_TRUE(made.ok());
  const TemplateCapabilities& found = made->capabilities(false);
  EXPECT_TRUE(found.text_content && found.system_role && found.late_system && found.tools);
  EXPECT_TRUE(found.tool_calls && found.parallel_calls && found.tool_results && found.reasoning);
  EXPECT_TRUE(found.object_arguments && found.string_arguments && found.developer_role);
  EXPECT_FALSE(found.content_parts);
  EXPECT_EQ(found.switches, std::vector<std::string>{"enable_thinking"});
  EXPECT_EQ(found.generation_prompt, "<|im_start|>assistant\n");
}

TEST(ChatTemplate, AUsersLettersAreReadAsTheTokensTheyAre) {
  if (testing::without_engine()) return;
  const auto tokenizer =
      Tokenizer::parse(file_text("tokenizer/letters.tokenizer.json"), "letters.tokenizer.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message();
  const auto made =
      template_of("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}",
                  SpecialSpellings(tokenizer->added_tokens()));
  ASSERT_TRUE(made.ok());
  const auto count = [&](const std::string& said) {
    const auto prompt =
        made->render({.messages = Json::array({{{"role", "user"}, {"content", said}}})}, {});
    EXPECT_TRUE(prompt.ok());
    return tokenizer->encode(prompt->text, {.inert_ranges = prompt->inert_ranges})->size();
  };
  // One for each character, of "user: " and the line's end too.
  EXPECT_EQ(count("F\u00fchrer"), 13u);
  EXPECT_EQ(count("<|eos|>"), 14u);
}

// As gpt-oss's template has it: reasoning or a text beside calls, not both, and no
// reasoning_content.
constexpr std::string_view kHarmony =
    "{% for m in messages %}{% if m.tool_calls %}{% if m.content and m.thinking %}"
    "{{ raise_exception('one of both, please') }}{% endif %}{% if m.thinking or m.content %}"
    "<|channel|>analysis<|message|>{{ m.thinking or m.content }}<|end|>{% endif %}"
    "{% for c in m.tool_calls %}to={{ c.function.name }}<|message|>"
    "{{ c.function.arguments|tojson }}<|call|>{% endfor %}{% else %}"
    "<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant{% endif %}";

Json said_by_a_server(Json arguments) {
  const Json call = {{"id", "c1"},
                     {"type", "function"},
                     {"function", {{"name", "f"}, {"arguments", std::move(arguments)}}}};
  return Json::array({{{"role", "user"}, {"content", "weather?"}},
                      {{"role", "assistant"},
                       {"content", "I will look."},
                       {"reasoning_content", "need the tool"},
                       {"tool_calls", Json::array({call})}},
                      {{"role", "tool"}, {"tool_call_id", "c1"}, {"content", "sunny"}}});
}

TEST(ChatTemplate, WhatAServerSaidComesBackIn) {
  if (testing::without_engine()) return;
  const std::string needs_objects =
      "{% for m in messages %}{{ m.role }}:{{ m.content.strip() }}{% for c in m.tool_calls or [] %}"
      "{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }};{% endfor %}{% endfor %}"
      "{% endfor %}";
  for (const std::string& text : {std::string(kHarmony), needs_objects}) {
    const auto made = template_of(text);
    ASSERT_TRUE(made.ok());
    for (const char* arguments : {R"({"city": "Rome"})", R"({"city": "Ro)", "", "nonsense"}) {
      const auto prompt = made->render({.messages = said_by_a_server(arguments)}, {});
      ASSERT_TRUE(prompt.ok()) << prompt.error().message() << " for " << arguments;
      EXPECT_NE(prompt->text.find("I will look."), std::string::npos) << prompt->text;
    }
  }
  const auto prompt =
      template_of(std::string(kHarmony))->render({.messages = said_by_a_server("{}")}, {});
  ASSERT_TRUE(prompt.ok());
  EXPECT_NE(prompt->text.find("need the tool\n\nI will look.<|end|>to=f<|message|>{}<|call|>"),
            std::string::npos)
      << prompt->text;
}

TEST(ChatTemplate, AFinalMessageIsContinuedWhereItsTextEnds) {
  if (testing::without_engine()) return;
  const std::string chatml =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.reasoning_content %}<think>\n"
      "{{ m.reasoning_content }}\n</think>\n{% endif %}{{ m.content | trim }}<|im_end|>\n"
      "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
  const auto made = template_of(chatml);
  ASSERT_TRUE(made.ok());
  const auto continued = [&](Json last) {
    TemplateRequest request{.add_generation_prompt = false, .continue_final_message = true};
    request.messages = Json::array({{{"role", "user"}, {"content", "Say the days."}}});
    request.messages.push_back(std::move(last));
    const auto prompt = made->render(request, {});
    EXPECT_TRUE(prompt.ok()) << prompt.error().message();
    return prompt.ok() ? prompt->text.substr(prompt->text.rfind("<|im_start|>")) : std::string();
  };
  const auto message = [](Json content) -> Json {
    return {{"role", "assistant"}, {"content", std::move(content)}};
  };
  EXPECT_EQ(continued(message("Monday, Tues")), "<|im_start|>assistant\nMonday, Tues");
  EXPECT_EQ(continued(message("Monday, ")), "<|im_start|>assistant\nMonday, ");
  EXPECT_EQ(continued(message("a\xF3\xBF\xBF\xBD")), "<|im_start|>assistant\na\xF3\xBF\xBF\xBD");
  EXPECT_EQ(continued(message("")), "<|im_start|>assistant\n");
  EXPECT_EQ(continued(message(nullptr)), "<|im_start|>assistant\n");
  EXPECT_EQ(continued(message(Json::array({{{"type", "text"}, {"text", "Mon"}}}))),
            "<|im_start|>assistant\nMon");
  Json thinking = message("");
  thinking["reasoning_content"] = "Hm";
  EXPECT_EQ(continued(thinking), "<|im_start|>assistant\n<think>\nHm");
  thinking["content"] = "Mon";
  EXPECT_EQ(continued(thinking), "<|im_start|>assistant\n<think>\nHm\n</think>\nMon");
}

TEST(ChatTemplate, AFinalMessageThatCannotBeContinuedIsRefusedByName) {
  if (testing::without_engine()) return;
  const auto refusal = [](const std::string& text, Json last, bool adds) {
    TemplateRequest request{.add_generation_prompt = adds, .continue_final_message = true};
    request.messages = Json::array({{{"role", "user"}, {"content", "u"}}});
    request.messages.push_back(std::move(last));
    const auto prompt = template_of(text)->render(request, {});
    EXPECT_FALSE(prompt.ok()) << prompt->text;
    if (prompt.ok()) return std::string();
    EXPECT_EQ(prompt.error().code(), ErrorCode::kInvalidArgument);
    return prompt.error().message();
  };
  const std::string plain = "{% for m in messages %}{{ m.role }} {{ m.content }}\n{% endfor %}";
  const Json own = {{"role", "assistant"}, {"content", "a"}};
  Json calls = own;
  calls["tool_calls"] = Json::array({{{"function", {{"name", "f"}, {"arguments", "{}"}}}}});
  for (const std::string& said :
       {refusal(plain, own, true), refusal(plain, {{"role", "user"}, {"content", "a"}}, false),
        refusal(plain, calls, false), refusal("{{ messages[0].content }}", own, false),
        refusal(plain + plain, own, false)}) {
    EXPECT_NE(said.find("continue_final_message"), std::string::npos) << said;
  }
}

TEST(ChatTemplate, WhatIsOverALimitIsNotToBeTriedAgain) {
  if (testing::without_engine()) return;
  const auto made = template_of(
      "{{ messages[0].content }}{% for a in range(90000) %}{% for b in range(900) %}{% endfor %}"
      "{% endfor %}");
  ASSERT_TRUE(made.ok());
  const auto prompt =
      made->render({.messages = Json::array({{{"role", "user"}, {"content", "a"}}})}, {});
  ASSERT_FALSE(prompt.ok());
  EXPECT_EQ(prompt.error().code(), ErrorCode::kInvalidArgument) << prompt.error().message();
}

TEST(ChatTemplate, AModelWithoutTemplateSaysWhereOneWasLookedFor) {
  const auto made = ChatTemplate::create({.what = "some/folder", .text = {}, .named = {}}, {}, {});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code(), ErrorCode::kNotFound);
  EXPECT_NE(made.error().message().find("some/folder"), std::string::npos);
  EXPECT_NE(made.error().message().find("chat_template.jinja"), std::string::npos);
}

}  // namespace
}  // namespace moeflux
