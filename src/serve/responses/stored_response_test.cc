#include "serve/responses/stored_response.h"

#include <gtest/gtest.h>

namespace moeflux::serve {
namespace {

StoredResponse three_items() {
  return {.earlier = Json::parse(R"([{"role": "user", "content": "1"}])"),
          .input = Json::parse(R"([{"role": "user", "content": "2"}])"),
          .response = Json::parse(R"({"id": "resp_1", "output": [{"type": "message"}]})")};
}

TEST(StoredResponse, SurvivesItsText) {
  const StoredResponse stored = three_items();
  const auto again = StoredResponse::parse(stored.text(), "file");
  ASSERT_TRUE(again.ok()) << again.error().message();
  EXPECT_EQ(again->response, stored.response);
  EXPECT_EQ(again->conversation(),
            Json::parse(R"([{"role": "user", "content": "1"}, {"role": "user", "content": "2"},
                            {"type": "message"}])"));
}

TEST(StoredResponse, AnAnswerThatWentOnWithAMessageIsOneWithIt) {
  const Json output = Json::parse(
      R"([{"type": "reasoning"}, {"type": "message", "role": "assistant",
           "content": [{"type": "output_text", "text": " Dieu"}]}, {"type": "function_call"}])");
  for (const char* begun : {R"("Mon")", R"([{"type": "output_text", "text": "Mon"}])"}) {
    StoredResponse stored = three_items();
    stored.input = Json::array({{{"role", "assistant"}, {"content", Json::parse(begun)}}});
    stored.response["output"] = output;
    EXPECT_EQ(stored.conversation().size(), 5u);
    stored.continues = true;
    const auto again = StoredResponse::parse(stored.text(), "file");
    ASSERT_TRUE(again.ok()) << again.error().message();
    const Json items = again->conversation();
    ASSERT_EQ(items.size(), 4u) << items;
    const Json& content = items[1]["content"];
    EXPECT_EQ(content.is_string() ? content : content[0]["text"], "Mon Dieu") << items;
    EXPECT_EQ(items[3]["type"], "function_call");
  }
}

TEST(StoredResponse, RefusesWhatIsNone) {
  const std::string text = three_items().text();
  for (size_t size = 0; size + 1 < text.size(); size += 7) {
    EXPECT_FALSE(StoredResponse::parse(text.substr(0, size), "file").ok()) << size;
  }
  for (const char* name : {"version", "earlier", "input", "response"}) {
    Json json = Json::parse(text);
    json[name] = "other";
    const auto parsed = StoredResponse::parse(json.dump(), "file");
    ASSERT_FALSE(parsed.ok()) << name;
    EXPECT_EQ(parsed.error().code(), ErrorCode::kCorruption);
    EXPECT_EQ(parsed.error().message().rfind("file", 0), 0u) << parsed.error().message();
  }
  Json json = Json::parse(text);
  json["response"]["output"] = Json::array({1});
  EXPECT_FALSE(StoredResponse::parse(json.dump(), "file").ok());
}

}  // namespace
}  // namespace moeflux::serve
