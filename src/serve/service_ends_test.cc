// The tokens that an answer is sampled from and its ends, through every interface.
#include <gtest/gtest.h>

#include <string>

#include "serve/service_test_util.h"

namespace moeflux::serve {
namespace {

/// A request for so many tokens, the likeliest ones, beside `fields`.
struct CountedRequest {
  const char* path;
  Json body;
  const char* count;  // of generated tokens
};

std::vector<CountedRequest> all_counted(int tokens, Json fields) {
  const Json messages = Json::array({{{"role", "user"}, {"content", "Tell me of the castle."}}});
  const std::string prompt = "Tell me of the castle.";
  fields["temperature"] = 0;
  const auto with = [&](Json body) {
    body.update(fields);
    return body;
  };
  std::vector<CountedRequest> asked = {
      {"/v1/completions", with({{"prompt", prompt}, {"max_tokens", tokens}}),
       "/usage/completion_tokens"},
      {"/completion", with({{"prompt", prompt}, {"n_predict", tokens}}), "/tokens_predicted"}};
  if (testing::without_engine()) return asked;
  asked.push_back({"/v1/chat/completions", with({{"messages", messages}, {"max_tokens", tokens}}),
                   "/usage/completion_tokens"});
  asked.push_back({"/v1/responses", with({{"input", prompt}, {"max_output_tokens", tokens}}),
                   "/usage/output_tokens"});
  asked.push_back({"/v1/messages", with({{"messages", messages}, {"max_tokens", tokens}}),
                   "/usage/output_tokens"});
  fields["num_predict"] = tokens;
  asked.push_back({"/api/chat",
                   {{"messages", messages}, {"stream", false}, {"options", fields}},
                   "/eval_count"});
  return asked;
}

TEST_F(ServiceTest, OnlyAllowedTokensAreDrawnAndNoEndBesideThem) {
  const auto service = start();
  for (const CountedRequest& one : all_counted(5, {{"allowed_token_ids", {100, 101, 102}}})) {
    const Json answer = post(*service, one.path, one.body)->json();
    EXPECT_EQ(answer.value(Json::json_pointer(one.count), Json()), 5) << one.path << answer;
  }
  const Json body = {{"prompt", "Once"},
                     {"n_predict", 5},
                     {"return_tokens", true},
                     {"allowed_token_ids", {100, 101, 102}}};
  const Json tokens = post(*service, "/completion", body)->json()["tokens"];
  ASSERT_EQ(tokens.size(), 5u);
  for (const Json& token : tokens) {
    EXPECT_TRUE(token >= 100 && token <= 102) << token;
  }
}

TEST_F(ServiceTest, AToolWhoseArgumentsAreNoObjectIsRefusedByName) {
  if (testing::without_engine()) return;
  const auto service = start();
  const Json messages = Json::array({{{"role", "user"}, {"content", "q"}}});
  for (const Json& schema : {Json{{"type", "string"}}, Json{{"type", "array"}}, Json("x"),
                             Json::array(), Json(5), Json{{"enum", {1, 2}}}}) {
    const Json named = {{"name", "f"}, {"parameters", schema}};
    const Json wrapped = {{"type", "function"}, {"function", named}};
    const Json of_anthropic = {{"name", "f"}, {"input_schema", schema}};
    Json flat = named;
    flat["type"] = "function";
    const auto refused = [&](const char* path, Json body, const std::string& name) {
      body.update({{"messages", messages}, {"input", "q"}, {"max_tokens", 1}, {"stream", false}});
      const auto answer = post(*service, path, body);
      EXPECT_EQ(answer->status(), 400) << path << schema;
      EXPECT_NE(answer->wait().find(name + " is "), std::string::npos) << answer->wait();
    };
    const Json search = {{"type", "web_search"}};
    refused("/v1/chat/completions", {{"tools", {search, wrapped}}}, "tools[1].function.parameters");
    refused("/v1/chat/completions", {{"tools", {search, flat}}}, "tools[1].parameters");
    refused("/v1/chat/completions", {{"functions", Json::array({named})}},
            "functions[0].parameters");
    refused("/v1/responses", {{"tools", {search, flat}}}, "tools[1].parameters");
    refused("/v1/messages", {{"tools", Json::array({of_anthropic})}}, "tools[0].input_schema");
    refused("/api/chat", {{"tools", Json::array({wrapped})}}, "tools[0].function.parameters");
  }
}

TEST_F(ServiceTest, StopStringsWaitForTheLeastTokens) {
  const auto service = start();
  for (CountedRequest& one : all_counted(30, {{"min_tokens", 20}, {"ignore_eos", true}})) {
    Json& holder = one.body.contains("options") ? one.body["options"] : one.body;
    const std::string path = one.path;
    const char* stop = path == "/v1/messages" ? "stop_sequences" : "stop";
    holder[stop] = {" ", "a", "e"};
    const Json::json_pointer count(one.count);
    const Json held = post(*service, path, one.body)->json().value(count, Json());
    EXPECT_TRUE(held.is_number() && held > 20 && held < 30) << path << held;
    holder["min_tokens"] = 0;
    EXPECT_LT(post(*service, path, one.body)->json().value(count, Json(99)), 20) << path;
  }
}

TEST_F(ServiceTest, ATokenThatTheVocabularyHasNotIsRefusedByName) {
  const auto service = start();
  const std::pair<Json, std::string> fields[] = {
      {{{"allowed_token_ids", {100, 9999999}}}, "allowed_token_ids[1]: token 9999999"},
      {{{"logit_bias", Json{{"9999999", 1}}}}, "logit_bias: token 9999999"}};
  for (const auto& [field, named] : fields) {
    for (const CountedRequest& one : all_counted(5, field)) {
      const auto answer = post(*service, one.path, one.body);
      EXPECT_EQ(answer->status(), 400) << one.path;
      const std::string name = (one.body.contains("options") ? "options." : "") + named;
      EXPECT_NE(answer->wait().find(name), std::string::npos) << answer->wait();
      EXPECT_EQ(answer->wait().find("--"), std::string::npos) << answer->wait();
    }
  }
}

}  // namespace
}  // namespace moeflux::serve
