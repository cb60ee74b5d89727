#include "templates/normalise.h"

#include <gtest/gtest.h>

#include "base/format.h"

namespace moeflux {
namespace {

Json parsed(std::string_view text) {
  auto json = parse_json(text, "test");
  EXPECT_TRUE(json.ok());
  return json.ok() ? *json : Json();
}

TemplateCapabilities takes_all() {
  TemplateCapabilities takes;
  takes.text_content = takes.content_parts = takes.null_content = takes.absent_content = true;
  takes.system_role = takes.late_system = takes.developer_role = true;
  takes.object_arguments = takes.string_arguments = takes.broken_arguments = true;
  takes.answer_with_reasoning = takes.calls_with_reasoning = true;
  takes.calls_with_text_and_reasoning = true;
  return takes;
}

void expect_normal(std::string_view messages, std::string_view expected,
                   const TemplateCapabilities& takes) {
  Json json = parsed(messages);
  const Status status = normalise_messages(json, takes);
  ASSERT_TRUE(status.ok()) << status.error().message();
  EXPECT_EQ(json.dump(), parsed(expected).dump());
}

TEST(NormaliseMessages, LeavesWhatTheTemplateTakes) {
  const std::string_view same =
      R"([{"role": "developer", "content": [{"type": "text", "text": "a"}]},
          {"role": "user", "content": "b"}, {"role": "system", "content": "late"},
          {"role": "assistant", "content": null, "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]},
          {"role": "tool", "content": "c"}])";
  expect_normal(same, same, takes_all());
}

TEST(NormaliseMessages, JoinsPartsAndMakesThem) {
  TemplateCapabilities takes = takes_all();
  takes.content_parts = false;
  expect_normal(R"([{"role": "user", "content": [{"type": "text", "text": "a"}, "b"]}])",
                R"([{"role": "user", "content": "a\nb"}])", takes);
  Json image = parsed(R"([{"role": "user", "content": [{"type": "image_url"}]}])");
  const Status status = normalise_messages(image, takes);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message().find("message 1: part 1"), std::string::npos);
  takes.content_parts = true;
  takes.text_content = false;
  expect_normal(R"([{"role": "user", "content": "a"}])",
                R"([{"role": "user", "content": [{"type": "text", "text": "a"}]}])", takes);
}

TEST(NormaliseMessages, ArgumentsBecomeWhatTheTemplateShows) {
  const std::string_view as_text =
      R"([{"role": "assistant", "content": "", "tool_calls": [
            {"function": {"name": "f", "arguments": "{\"a\": [1, \"b\"], \"c\": {}}"}}]}])";
  const std::string_view as_object =
      R"([{"role": "assistant", "content": "", "tool_calls": [
            {"function": {"name": "f", "arguments": {"a": [1, "b"], "c": {}}}}]}])";
  TemplateCapabilities takes = takes_all();
  takes.string_arguments = false;
  expect_normal(as_text, as_object, takes);
  const std::string_view broken =
      R"([{"role": "assistant", "content": "", "tool_calls": [
            {"function": {"name": "f", "arguments": "{\"a\": "}}]}])";
  expect_normal(broken, broken, takes);
  takes.string_arguments = true;
  takes.object_arguments = false;
  expect_normal(as_object, as_text, takes);
}

TEST(NormaliseMessages, FoldsSystemsTheTemplateWouldDrop) {
  TemplateCapabilities takes = takes_all();
  takes.late_system = takes.developer_role = false;
  const std::string_view messages =
      R"([{"role": "developer", "content": "a"}, {"role": "user", "content": "b"},
          {"role": "system", "content": "c"}, {"role": "user", "content": "d"}])";
  expect_normal(messages,
                R"([{"role": "system", "content": "a\n\nc"}, {"role": "user", "content": "b"},
                    {"role": "user", "content": "d"}])",
                takes);
  takes.system_role = false;
  expect_normal(messages,
                R"([{"role": "user", "content": "a\n\nb"}, {"role": "user", "content": "c\n\nd"}])",
                takes);
  expect_normal(R"([{"role": "user", "content": "a"}, {"role": "system", "content": "b"}])",
                R"([{"role": "user", "content": "a\n\nb"}])", takes);
  expect_normal(R"([{"role": "assistant", "content": "a"}, {"role": "system", "content": "b"}])",
                R"([{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}])",
                takes);
}

TEST(NormaliseMessages, ReasoningHasEveryName) {
  expect_normal(R"([{"role": "assistant", "content": "", "reasoning": "r"}])",
                R"([{"role": "assistant", "content": "", "reasoning": "r", "thinking": "r",
                     "reasoning_content": "r"}])",
                takes_all());
}

TEST(NormaliseMessages, NoArgumentsAreAnEmptyObject) {
  TemplateCapabilities takes = takes_all();
  const auto message = [](const std::string& arguments) {
    return R"([{"role": "assistant", "content": "", "tool_calls": [
              {"function": {"name": "f", "arguments": )" +
           arguments + "}}]}]";
  };
  for (const char* none : {R"("")", R"(" \n")", R"("{}")"}) {
    takes.string_arguments = true;
    expect_normal(message(none), message(R"("{}")"), takes);
    takes.string_arguments = false;
    expect_normal(message(none), message("{}"), takes);
  }
}

TEST(NormaliseMessages, BrokenArgumentsAreClosedForTemplatesThatNeedAnObject) {
  TemplateCapabilities takes = takes_all();
  takes.string_arguments = takes.broken_arguments = false;
  for (const auto& [broken, closed] :
       {std::pair{R"({"city": "Ro)", R"({"city": "Ro"})"},
        std::pair{R"({"a": [1, {"b": 2)", R"({"a": [1, {"b": 2}]})"},
        std::pair{R"({"a": )", R"({"a": null})"}, std::pair{R"({"a)", R"({"a": null})"},
        std::pair{"nonsense", "{}"}, std::pair{R"({"a": "b\)", "{}"}, std::pair{"[1]", "{}"}}) {
    Json messages = Json::array(
        {{{"role", "assistant"},
          {"content", ""},
          {"tool_calls", Json::array({{{"function", {{"name", "f"}, {"arguments", broken}}}}})}}});
    ASSERT_TRUE(normalise_messages(messages, takes).ok());
    EXPECT_EQ(messages[0]["tool_calls"][0]["function"]["arguments"], parsed(closed)) << broken;
  }
}

TEST(NormaliseMessages, ReasoningBesideATextAndCallsFitsTheTemplate) {
  const std::string_view all =
      R"([{"role": "assistant", "content": "c", "reasoning_content": "r", "tool_calls": [
            {"function": {"name": "f", "arguments": {}}}]}])";
  const std::string calls = R"("tool_calls": [{"function": {"name": "f", "arguments": {}}}])";
  TemplateCapabilities takes = takes_all();
  takes.calls_with_text_and_reasoning = false;
  expect_normal(all,
                R"([{"role": "assistant", "content": "", "reasoning_content": "r\n\nc", )" + calls +
                    R"(, "thinking": "r\n\nc"}])",
                takes);
  takes.calls_with_reasoning = false;
  expect_normal(all, R"([{"role": "assistant", "content": "c", )" + calls + "}]", takes);
  takes = takes_all();
  takes.answer_with_reasoning = false;
  expect_normal(R"([{"role": "assistant", "content": "c", "reasoning": "r"}])",
                R"([{"role": "assistant", "content": "c"}])", takes);
}

TEST(NormaliseMessages, CallsThatMustBeAloneHaveTheirResultsBehindThem) {
  TemplateCapabilities takes = takes_all();
  takes.one_call_alone = true;
  const std::string f = R"({"id": "1", "function": {"name": "f"}})";
  const std::string g = R"({"id": "2", "function": {"name": "g"}})";
  const std::string x = R"({"role": "tool", "tool_call_id": "1", "content": "x"})";
  const std::string y = R"({"role": "tool", "tool_call_id": "2", "content": "y"})";
  const std::string user = R"({"role": "user", "content": "u"})";
  const auto calls = [](const char* content, const std::string& all) {
    return formatted(R"({{"role": "assistant", "content": "{}", "tool_calls": [{}]}})", content,
                     all);
  };
  expect_normal(formatted("[{}, {}, {}, {}]", calls("c", f + ", " + g), y, x, user),
                formatted("[{}, {}, {}, {}, {}]", calls("c", f), x, calls("", g), y, user), takes);
}

// Code that copied the text so far for each of them would move a terabyte.
TEST(NormaliseMessages, ManySystemsAndDeepArgumentsTakeTimeLinearInTheirBytes) {
  constexpr int kSystems = 100'000;
  TemplateCapabilities takes = takes_all();
  takes.late_system = takes.broken_arguments = false;
  const std::string longest(10'000'000, 'a');
  Json messages = Json::array({{{"role", "system"}, {"content", longest}}});
  for (int i = 0; i < kSystems; ++i) messages.push_back({{"role", "system"}, {"content", "b"}});
  const Json function = {{"name", "f"}, {"arguments", "{" + std::string(5'000'000, '[')}};
  messages.push_back({{"role", "assistant"},
                      {"content", nullptr},
                      {"tool_calls", Json::array({{{"id", "1"}, {"function", function}}})}});
  ASSERT_TRUE(normalise_messages(messages, takes).ok());
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_EQ(messages[0]["content"].get_ref<const std::string&>().size(),
            longest.size() + 3 * kSystems);
}

TEST(NormaliseMessages, NamesTheMessageThatIsNone) {
  for (const auto& [text, words] :
       {std::pair{R"({})", "messages is"}, std::pair{R"(["a"])", "message 1"},
        std::pair{R"([{"role": "user", "content": "a"}, {"content": "b"}])", "message 2: no role"},
        std::pair{R"([{"role": "user", "content": 5}])", "content is 5"},
        std::pair{R"([{"role": "assistant", "tool_calls": 5}])", "tool_calls"},
        std::pair{R"([{"role": "assistant", "tool_calls": [{"function": 1}]}])", "function"}}) {
    Json json = parsed(text);
    const Status status = normalise_messages(json, takes_all());
    ASSERT_FALSE(status.ok()) << text;
    EXPECT_EQ(status.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(status.error().message().find(words), std::string::npos) << status.error().message();
  }
}

}  // namespace
}  // namespace moeflux
