// One file for all interfaces, as they are compared: Anthropic's, Ollama's and OpenAI's further
// requests to a service with a model get the same text, and streams say what whole answers say.
#include <gtest/gtest.h>

#include <cctype>
#include <sstream>

#include "chat/conversation.h"
#include "io/file.h"
#include "serve/ollama/model_card.h"
#include "serve/service_test_util.h"
#include "tests/support/temp_folder.h"

namespace moeflux::serve {
namespace {

class ApisTest : public ServiceTest {
 protected:
  static std::vector<Json> lines_of(const std::string& stream, std::string_view prefix) {
    std::vector<Json> found;
    std::istringstream lines(stream);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with(prefix) && line.size() > prefix.size()) {
        found.push_back(Json::parse(line.substr(prefix.size())));
      }
    }
    return found;
  }
  static Json message(int tokens) {
    return {{"model", "fable-20m"},
            {"max_tokens", tokens},
            {"seed", 7},
            {"messages", Json::array({{{"role", "user"}, {"content", "Once upon a time"}}})}};
  }
  static Json responses(int tokens) {
    return {{"input", "Once upon a time"}, {"max_output_tokens", tokens}, {"seed", 7}};
  }
  static Json ollama(int tokens) {
    Json body = message(tokens);
    body["options"] = {{"num_predict", tokens}, {"seed", 7}};
    body["stream"] = false;
    return body;
  }
};

TEST_F(ApisTest, EveryInterfaceGivesTheSameText) {
  if (testing::without_engine()) return;
  const auto service = start();
  const std::string text =
      content(*post(*service, "/v1/chat/completions", question("Once upon a time", 12)));
  const Json whole = post(*service, "/v1/messages", message(12))->json();
  EXPECT_EQ(whole["content"][0]["text"], text);
  EXPECT_EQ(whole["stop_reason"], "max_tokens");
  EXPECT_EQ(whole["usage"]["output_tokens"], 12);
  const Json response = post(*service, "/v1/responses", responses(12))->json();
  EXPECT_EQ(response["output"][0]["content"][0]["text"], text);
  EXPECT_EQ(response["status"], "incomplete");
  const Json chat = post(*service, "/api/chat", ollama(12))->json();
  EXPECT_EQ(chat["message"]["content"], text);
  EXPECT_EQ(chat["eval_count"], 12);
  Json prompt = ollama(12);
  prompt["prompt"] = "Once upon a time";
  EXPECT_EQ(post(*service, "/api/generate", prompt)->json()["response"], text);
}

TEST_F(ApisTest, EveryInterfaceContinuesTheAssistantsText) {
  if (testing::without_engine()) return;
  const auto service = start();
  const Json messages = Json::array({{{"role", "user"}, {"content", "Once upon a time"}},
                                     {{"role", "assistant"}, {"content", "there was"}}});
  Json body = question("", 6);
  body["messages"] = messages;
  const std::string text = content(*post(*service, "/v1/chat/completions", body));
  const auto prompt = post(*service, "/apply-template", body)->json()["prompt"];
  EXPECT_TRUE(prompt.get<std::string>().ends_with("assistant: there was")) << prompt;
  body["continue_final_message"] = true;
  EXPECT_EQ(content(*post(*service, "/v1/chat/completions", body)), text);
  body["continue_final_message"] = false;
  EXPECT_EQ(post(*service, "/apply-template", body)->json()["prompt"],
            prompt.get<std::string>() + "\nassistant:");
  Json own = message(6);
  own["messages"] = messages;
  EXPECT_EQ(post(*service, "/v1/messages", own)->json()["content"][0]["text"], text);
  Json other = ollama(6);
  other["messages"] = messages;
  EXPECT_EQ(post(*service, "/api/chat", other)->json()["message"]["content"], text);
  Json items = responses(6);
  items["input"] = messages;
  EXPECT_EQ(post(*service, "/v1/responses", items)->json()["output"][0]["content"][0]["text"],
            text);
}

TEST_F(ApisTest, StreamsSayWhatWholeAnswersSay) {
  if (testing::without_engine()) return;
  const auto service = start();
  Json body = message(12);
  const Json whole = post(*service, "/v1/messages", body)->json();
  body["stream"] = true;
  std::string text;
  for (const Json& event : lines_of(post(*service, "/v1/messages", body)->wait(), "data: ")) {
    if (event["type"] == "content_block_delta") text += event["delta"]["text"].get<std::string>();
  }
  EXPECT_EQ(text, whole["content"][0]["text"].get<std::string>());
  body = responses(12);
  body["stream"] = true;
  const auto events = lines_of(post(*service, "/v1/responses", body)->wait(), "data: ");
  for (size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i]["sequence_number"], i);
  EXPECT_EQ(events.front()["type"], "response.created");
  EXPECT_EQ(events.back()["response"]["output"][0]["content"][0]["text"], text);
  body = ollama(12);
  body.erase("stream");
  const auto stream = post(*service, "/api/chat", body);
  std::string said;
  const auto lines = lines_of(stream->wait(), "");
  for (const Json& line : lines) said += line["message"]["content"].get<std::string>();
  EXPECT_EQ(said, text);
  EXPECT_EQ(lines.back()["done"], true);
  EXPECT_EQ(stream->header("Content-Type"), "application/x-ndjson");
}

TEST_F(ApisTest, AStreamOfAResponseTellsProgressAndTimingsWhereItIsAsked) {
  if (testing::without_engine()) return;
  const auto service = start();
  Json body = responses(4);
  body["stream"] = body["return_progress"] = body["timings_per_token"] = true;
  int progress = 0;
  int timings = 0;
  const auto events = lines_of(post(*service, "/v1/responses", body)->wait(), "data: ");
  for (const Json& event : events) {
    if (event.contains("prompt_progress")) ++progress;
    if (event["type"] == "response.output_text.delta") timings += event.contains("timings") ? 1 : 0;
  }
  EXPECT_GT(progress, 0);
  EXPECT_GT(timings, 0);
  EXPECT_EQ(events.back()["timings"]["predicted_n"], 4);
}

TEST_F(ApisTest, APromptThatIsTooLongIsCalledAsTheClientCallsIt) {
  if (testing::without_engine()) return;
  const auto service = start();
  for (const char* words : {"a b ", "a "}) {  // refused by its bytes, and by its tokens
    std::string text;
    while (text.size() < (words[2] == 'b' ? 100'000u : 600u)) text += words;
    const auto param = [&](const char* path, const Json& body) {
      const Json error = post(*service, path, body)->json()["error"];
      EXPECT_EQ(error["code"], "context_length_exceeded") << error;
      return error["param"].get<std::string>();
    };
    EXPECT_EQ(param("/v1/chat/completions", question(text, 1)), "messages");
    EXPECT_EQ(param("/v1/completions", {{"prompt", text}}), "prompt");
    EXPECT_EQ(param("/v1/responses", {{"input", text}}), "input");
  }
}

TEST_F(ApisTest, NoMessagesAreForTheTemplateToJudge) {
  if (testing::without_engine()) return;
  const auto service = start();
  Json body = message(2);
  body["messages"] = Json::array();
  EXPECT_EQ(post(*service, "/v1/messages", body)->json()["usage"]["output_tokens"], 2);
  body.erase("messages");
  EXPECT_EQ(post(*service, "/v1/messages", body)->status(), 400);
}

TEST_F(ApisTest, InputItemsComeInPages) {
  if (testing::without_engine()) return;
  const auto service = start();
  Json body = responses(2);
  body["input"] = Json::array();
  for (const char* text : {"a", "b", "c"}) {
    body["input"].push_back({{"role", "user"}, {"content", text}});
  }
  const std::string id = post(*service, "/v1/responses", body)->json()["id"];
  const std::string path = "/v1/responses/" + id + "/input_items";
  const auto texts = [](const Json& list) {
    std::string joined;
    for (const Json& item : list["data"]) joined += item["content"][0]["text"].get<std::string>();
    return joined;
  };
  EXPECT_EQ(texts(get(*service, path)->json()), "cba");
  EXPECT_EQ(texts(get(*service, path, "order=asc")->json()), "abc");
  const Json first = get(*service, path, "limit=2")->json();
  EXPECT_EQ(texts(first), "cb");
  EXPECT_EQ(first["has_more"], true);
  const std::string last = first["last_id"];
  const Json rest = get(*service, path, "limit=2&after=" + last)->json();
  EXPECT_EQ(texts(rest), "a");
  EXPECT_EQ(rest["has_more"], false);
  for (const char* query : {"limit=0", "limit=x", "order=up", "after=nobody"}) {
    EXPECT_EQ(get(*service, path, query)->status(), 400) << query;
  }
}

TEST_F(ApisTest, AResponseGoesOnFromAnother) {
  if (testing::without_engine()) return;
  const auto service = start();
  const Json first = post(*service, "/v1/responses", responses(6))->json();
  const std::string id = first["id"];
  EXPECT_EQ(get(*service, "/v1/responses/" + id)->json(), first);
  const Json item = get(*service, "/v1/responses/" + id + "/input_items")->json()["data"][0];
  EXPECT_EQ(item["type"], "message");
  const Json part = {{"type", "input_text"}, {"text", "Once upon a time"}};
  EXPECT_EQ(item["content"], Json::array({part}));
  EXPECT_EQ(get(*service, "/v1/responses/" + id, "stream=true")->json()["error"]["param"],
            "stream");
  const Json second = {
      {"input", "And then?"}, {"previous_response_id", id}, {"max_output_tokens", 6}, {"seed", 7}};
  const Json went_on = post(*service, "/v1/responses", second)->json();
  // The same conversation, all of it said at once.
  Json all = second;
  all.erase("previous_response_id");
  all["input"] = Json::array({{{"role", "user"}, {"content", "Once upon a time"}},
                              first["output"][0],
                              {{"role", "user"}, {"content", "And then?"}}});
  const Json said = post(*service, "/v1/responses", all)->json();
  EXPECT_EQ(went_on["output"][0]["content"], said["output"][0]["content"]);
  EXPECT_EQ(went_on["usage"]["input_tokens"], said["usage"]["input_tokens"]);
  EXPECT_GT(went_on["usage"]["input_tokens_details"]["cached_tokens"], 5);
  // A deleted one is gone, its text goes on in the one behind it.
  auto response = std::make_shared<MemoryResponse>();
  service->handle({.method = "DELETE", .path = "/v1/responses/" + id}, response);
  EXPECT_EQ(response->json()["deleted"], true);
  EXPECT_EQ(get(*service, "/v1/responses/" + id)->status(), 404);
  EXPECT_EQ(post(*service, "/v1/responses", second)->status(), 404);
  Json third = second;
  third["previous_response_id"] = went_on["id"];
  const Json last = post(*service, "/v1/responses", third)->json();
  EXPECT_GT(last["usage"]["input_tokens"], went_on["usage"]["input_tokens"]);
  third["store"] = false;
  const std::string unstored = post(*service, "/v1/responses", third)->json()["id"];
  EXPECT_EQ(get(*service, "/v1/responses/" + unstored)->status(), 404);
}

TEST_F(ApisTest, AResponseOutlivesTheService) {
  if (testing::without_engine()) return;
  testing::TempFolder folder;
  std::vector<std::string> notes;
  const auto start_again = [&] {
    return start({.folder = folder.path(),
                  .on_note = [&](const std::string& line) { notes.push_back(line); }});
  };
  Json body = responses(4);
  body["stream"] = true;
  std::string id;
  Json second = {{"input", "And then?"}, {"max_output_tokens", 6}, {"seed", 7}};
  Json expected;
  {
    const auto service = start_again();
    const auto events = lines_of(post(*service, "/v1/responses", body)->wait(), "data: ");
    id = events.back()["response"]["id"];
    second["previous_response_id"] = id;
    expected = post(*service, "/v1/responses", second)->json();
    Json unstored = responses(1);
    unstored["store"] = false;
    post(*service, "/v1/responses", unstored)->wait();
  }
  EXPECT_EQ(list_files(folder / "responses")->size(), 2u);
  const auto service = start_again();
  EXPECT_EQ(get(*service, "/v1/responses/" + id)->json()["id"], id);
  const Json went_on = post(*service, "/v1/responses", second)->json();
  EXPECT_EQ(went_on["output"][0]["content"], expected["output"][0]["content"]);
  EXPECT_EQ(get(*service, "/v1/moeflux/conversations")->json()["stored_responses"], 3);
  // A damaged one is named and told as gone; the one behind it needs none.
  const std::string file = folder / "responses/" + id + ".json";
  testing::write_bytes(file, testing::read_bytes(file).substr(0, 100));
  EXPECT_TRUE(notes.empty());
  EXPECT_EQ(get(*service, "/v1/responses/" + id)->status(), 404);
  EXPECT_EQ(post(*service, "/v1/responses", second)->status(), 404);
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_NE(notes[0].find(file), std::string::npos) << notes[0];
  second["previous_response_id"] = expected["id"];
  EXPECT_EQ(post(*service, "/v1/responses", second)->status(), 200);
  auto erased = std::make_shared<MemoryResponse>();
  service->handle({.method = "DELETE", .path = "/v1/responses/" + id}, erased);
  EXPECT_EQ(erased->json()["deleted"], true);
  EXPECT_FALSE(path_exists(file));
}

TEST_F(ApisTest, WhatCannotBeKeptIsAnsweredAllTheSame) {
  if (testing::without_engine()) return;
  std::vector<std::string> notes;
  const auto service = start({.responses = {.bytes_max = 100, .count_max = 1},
                              .on_note = [&](const std::string& line) { notes.push_back(line); }});
  const Json response = post(*service, "/v1/responses", responses(2))->json();
  EXPECT_EQ(response["usage"]["output_tokens"], 2);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find(response["id"].get<std::string>()), std::string::npos) << notes[0];
}

TEST_F(ApisTest, AConversationIsSavedAndGoneOnFrom) {
  if (testing::without_engine()) return;
  testing::TempFolder folder;
  const auto service = start({.folder = folder.path()});
  const Json begun = {{"messages", Json::array({{{"role", "system"}, {"content", "Be kind."}}})}};
  const std::string path = "/v1/moeflux/conversations/talk";
  ASSERT_EQ(post(*service, path, begun)->status(), 200);
  Json body = question("Once upon a time", 6);
  body["conversation"] = "talk";
  const Json first = post(*service, "/v1/chat/completions", body)->json();
  Json messages = begun["messages"];
  const auto say = [&](const Json& answer, const std::string& text) {
    messages.push_back({{"role", "user"}, {"content", text}});
    messages.push_back({{"role", "assistant"}, {"content", answer}});
  };
  say(first["choices"][0]["message"]["content"], "Once upon a time");
  EXPECT_EQ(get(*service, path)->json()["messages"], messages);
  body["messages"][0]["content"] = "And then?";
  body["stream"] = true;
  const auto again = start({.folder = folder.path()});
  std::string text;
  for (const Json& frame : post(*again, "/v1/chat/completions", body)->frames()) {
    const Json& delta = frame["choices"][0]["delta"];
    if (delta.value("content", Json()).is_string()) text += delta["content"].get<std::string>();
  }
  Json all = question("", 6);
  all["messages"] = messages;
  all["messages"].push_back({{"role", "user"}, {"content", "And then?"}});
  EXPECT_EQ(content(*post(*service, "/v1/chat/completions", all)), text);
  say(text, "And then?");
  // The terminal's file, and what it loads.
  const auto saved =
      Conversation::parse(testing::read_bytes(folder / "conversations/talk.json"), "the file");
  ASSERT_TRUE(saved.ok());
  EXPECT_EQ(saved->messages(), messages);
  EXPECT_EQ(get(*again, "/v1/moeflux/conversations")->json()["conversations"][0]["id"], "talk");
  auto erased = std::make_shared<MemoryResponse>();
  again->handle({.method = "DELETE", .path = path}, erased);
  EXPECT_EQ(erased->json()["deleted"], true);
  EXPECT_EQ(post(*again, "/v1/chat/completions", body)->status(), 404);
}

TEST_F(ApisTest, WhatIsNoConversationIsNotSaved) {
  if (testing::without_engine()) return;
  std::vector<std::string> notes;
  testing::TempFolder folder;
  const auto service =
      start({.folder = folder.path(),
             .conversations = {.bytes_max = 1000, .count_max = 1, .makes_room = false},
             .on_note = [&](const std::string& line) { notes.push_back(line); }});
  const std::string path = "/v1/moeflux/conversations/";
  const Json empty = {{"messages", Json::array()}};
  EXPECT_EQ(post(*service, path + ".hidden", empty)->status(), 400);
  EXPECT_EQ(post(*service, path + "talk", {{"messages", 3}})->json()["error"]["param"], "messages");
  EXPECT_EQ(post(*service, path + "talk", empty)->status(), 200);
  EXPECT_EQ(post(*service, path + "other", empty)->json()["error"]["code"], "conversations_full");
  Json body = question("Once", 1);
  body["conversation"] = "talk";
  body["n"] = 2;
  EXPECT_EQ(post(*service, "/v1/chat/completions", body)->json()["error"]["param"], "n");
  testing::write_bytes(folder / "conversations/talk.json", "{\"messages\": [");
  body.erase("n");
  EXPECT_EQ(post(*service, "/v1/chat/completions", body)->status(), 404);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("conversations/talk.json"), std::string::npos) << notes[0];
}

TEST_F(ApisTest, AConversationIsAnsweredOnceAtATime) {
  if (testing::without_engine()) return;
  const auto service = start();
  const std::string path = "/v1/moeflux/conversations/talk";
  ASSERT_EQ(post(*service, path, {{"messages", Json::array()}})->status(), 200);
  Json body = question("Once", 100);
  body["conversation"] = "talk";
  body["stream"] = true;
  const auto first = std::make_shared<MemoryResponse>();
  first->be_slow();
  service->handle({.method = "POST", .path = "/v1/chat/completions", .body = body.dump()}, first);
  EXPECT_EQ(post(*service, "/v1/chat/completions", body)->status(), 409);
  EXPECT_EQ(post(*service, path, {{"messages", Json::array()}})->status(), 409);
  first->read_on();
  first->wait();
  EXPECT_EQ(get(*service, path)->json()["messages"].size(), 2u);
  EXPECT_EQ(post(*service, path, {{"messages", Json::array()}})->status(), 200);
}

TEST_F(ApisTest, ABillingHeaderCostsNoKeptState) {
  if (testing::without_engine()) return;
  const auto service = start();
  Json body = message(4);
  body["system"] = Json::array({{{"type", "text"}, {"text", ""}},
                                {{"type", "text"}, {"text", "You tell stories to children."}}});
  const auto cached = [&](const char* nonce) {
    body["system"][0]["text"] = std::string("x-anthropic-billing-header: cch=") + nonce + ";";
    const Json usage = post(*service, "/v1/messages", body)->json()["usage"];
    return usage["cache_read_input_tokens"].get<int>();
  };
  EXPECT_EQ(cached("aaaaa"), 0);
  const int prompt = post(*service, "/v1/messages/count_tokens", body)->json()["input_tokens"];
  EXPECT_EQ(cached("bbbbb"), prompt - 1);
}

TEST_F(ApisTest, CountsWhatAPromptHas) {
  if (testing::without_engine()) return;
  const auto service = start();
  const int tokens =
      post(*service, "/v1/chat/completions/input_tokens", message(1))->json()["input_tokens"];
  EXPECT_EQ(post(*service, "/v1/messages/count_tokens", message(1))->json()["input_tokens"],
            tokens);
  EXPECT_EQ(post(*service, "/v1/responses/input_tokens", responses(1))->json()["input_tokens"],
            tokens);
  EXPECT_EQ(post(*service, "/api/chat", ollama(1))->json()["prompt_eval_count"], tokens);
}

TEST_F(ApisTest, AStreamIsComeBackTo) {
  if (testing::without_engine()) return;
  const auto service = start();
  Json body = question("Once upon a time", 8);
  body["stream"] = true;
  const std::string expected = post(*service, "/v1/chat/completions", body)->wait();
  auto first = std::make_shared<MemoryResponse>();
  service->handle({.method = "POST",
                   .path = "/v1/chat/completions",
                   .headers = {{"x-conversation-id", "talk"}},
                   .body = body.dump()},
                  first);
  first->leave();
  auto second = std::make_shared<MemoryResponse>();
  service->handle({.method = "GET", .path = "/v1/stream", .query = "conv_id=talk&from=1"}, second);
  const auto texts = [](const std::vector<Json>& frames) {
    std::vector<std::string> deltas;
    for (const Json& frame : frames) deltas.push_back(frame["choices"][0]["delta"].dump());
    return deltas;
  };
  std::string again = second->wait();
  EXPECT_EQ(again.rfind("id: 1\n", 0), 0u);
  again = again.substr(0, again.find("data: [DONE]"));
  auto frames = lines_of(expected.substr(0, expected.find("data: [DONE]")), "data: ");
  frames.erase(frames.begin());
  EXPECT_EQ(texts(lines_of(again, "data: ")), texts(frames));
  // Ids are all that keeps others out, so nobody is told of them.
  EXPECT_EQ(get(*service, "/v1/streams")->status(), 404);
}

TEST_F(ApisTest, ErrorsAreInTheWordsOfTheInterface) {
  if (testing::without_engine()) return;
  const auto service = start();
  Json body = message(1);
  body["model"] = "other";
  const auto unknown = post(*service, "/v1/messages", body);
  EXPECT_EQ(unknown->status(), 404);
  EXPECT_EQ(unknown->json()["error"]["type"], "not_found_error");
  EXPECT_EQ(unknown->json()["type"], "error");
  EXPECT_TRUE(post(*service, "/api/chat", body)->json()["error"].is_string());
  EXPECT_EQ(post(*service, "/api/pull", {{"model", "x"}})->status(), 403);
  EXPECT_EQ(post(*service, "/v1/responses", body)->json()["error"]["param"], "model");
  body.erase("model");
  EXPECT_EQ(post(*service, "/v1/responses", body)->json()["error"]["param"], "input");
}

}  // namespace

TEST_F(ServiceTest, LlamaCppsClientsHearOfTheModelOfAdaptersAndSlots) {
  const auto service = start({.model_name = "teller"});
  const Json meta = get(*service, "/v1/models/teller")->json()["meta"];
  EXPECT_EQ(meta["n_embd"], 256);
  EXPECT_EQ(meta["vocab_type"], 2);
  for (const char* name : {"n_vocab", "n_ctx", "n_ctx_train", "n_params", "size"}) {
    EXPECT_GT(meta[name], 0) << name;
  }
  EXPECT_EQ(get(*service, "/lora-adapters")->json(), Json::array());
  EXPECT_EQ(post(*service, "/lora-adapters", Json::array())->status(), 200);
  EXPECT_EQ(post(*service, "/lora-adapters", Json::array({{{"id", 0}}}))->status(), 501);
  EXPECT_EQ(post(*service, "/slots/0?action=erase", Json())->status(), 501);
}

TEST_F(ServiceTest, OllamaHearsOfADenseModelsFormat) {
  const std::string source = MOEFLUX_SOURCE_DIR;
  auto model = open_model(source + "/tests/golden/models/llama", {.device = {.threads = 1}},
                          load_model_text(source + "/models/fable-20m").value());
  ASSERT_TRUE(model.ok()) << model.error().message();
  EXPECT_EQ(model_details(*model.value()->engine)["quantization_level"], "BF16");
}

TEST_F(ServiceTest, OllamaHearsOfTheModel) {
  const auto service = start({.model_name = "teller"});
  EXPECT_EQ(get(*service, "/")->status(), 200);
  EXPECT_EQ(get(*service, "/api/tags")->json()["models"][0]["name"], "teller:latest");
  EXPECT_EQ(get(*service, "/api/ps")->json()["models"][0]["context_length"], 256);
  EXPECT_TRUE(get(*service, "/api/version")->json()["version"].is_string());
  const Json shown = post(*service, "/api/show", {{"model", "teller:latest"}})->json();
  EXPECT_EQ(shown["capabilities"][0], "completion");
  const std::string family = shown["details"]["family"];
  EXPECT_EQ(shown["model_info"][family + ".context_length"], 256);
  EXPECT_EQ(shown["model_info"]["general.basename"], "teller");
  EXPECT_EQ(shown["details"]["parameter_size"].get<std::string>().back(), 'M');
  EXPECT_EQ(get(*service, "/api/tags")->json()["models"][0]["model"], "teller:latest");
  const Json raw = {{"prompt", "Once"},
                    {"raw", true},
                    {"stream", false},
                    {"options", {{"num_predict", 3}, {"seed", 1}}}};
  const Json plain = {{"prompt", "Once"}, {"max_tokens", 3}, {"seed", 1}};
  EXPECT_EQ(post(*service, "/api/generate", raw)->json()["response"],
            post(*service, "/v1/completions", plain)->json()["choices"][0]["text"]);
  EXPECT_EQ(post(*service, "/api/generate", Json::object())->json()["done_reason"], "load");
}

TEST_F(ServiceTest, AContextThatOllamasClientsAskForIsAtMostTheServers) {
  std::vector<std::string> notes;
  const auto service = start({.on_note = [&](const std::string& line) { notes.push_back(line); }});
  Json body = {{"prompt", "Once"},
               {"stream", false},
               {"options", {{"num_ctx", 32768}, {"num_predict", 2}, {"seed", 1}}}};
  const std::string path = "/api/generate";
  const Json answer = post(*service, path, body)->json();
  EXPECT_EQ(answer["eval_count"], 2);
  EXPECT_EQ(post(*service, path, body)->json()["response"], answer["response"]);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("num_ctx 32768"), std::string::npos) << notes[0];
  body["options"]["num_ctx"] = 16;
  EXPECT_EQ(post(*service, path, body)->json()["response"], answer["response"]);
  EXPECT_EQ(notes.size(), 1u);
  // This vocabulary has no tokens around a gap.
  body["suffix"] = "the end";
  const auto refused = post(*service, path, body);
  EXPECT_EQ(refused->status(), 400);
  EXPECT_NE(refused->json()["error"].get<std::string>().find("suffix"), std::string::npos);
}

TEST_F(ServiceTest, IsWatched) {
  const auto service = start();
  EXPECT_EQ(get(*service, "/v1/models/fable-20m")->json()["type"], "model");
  EXPECT_EQ(get(*service, "/v1/models/other")->status(), 404);
  EXPECT_EQ(get(*service, "//v1/models/")->json()["data"][0]["id"], "fable-20m");
  const Json unknown = get(*service, "/v1/models/org/other")->json();
  EXPECT_NE(unknown["error"]["message"].get<std::string>().find("org/other"), std::string::npos);
  EXPECT_GT(get(*service, "/v1/moeflux/plan")->json()["experts_bytes"], 0);
  EXPECT_EQ(get(*service, "/v1/moeflux/conversations")->json()["running"], 0);
  const auto watcher = get(*service, "/v1/moeflux/telemetry");
  const Json body = {{"prompt", "Once"}, {"max_tokens", 3}};
  post(*service, "/v1/completions", body)->wait();
  const Json sample = Json::parse(watcher->speech().substr(6));
  EXPECT_GT(sample["tok_s"], 0);
  EXPECT_GT(sample["cache_bytes"], 0);
  service->end_watching();
  EXPECT_EQ(watcher->wait().rfind("data: {\"t\":", 0), 0u);
  const std::string metrics = get(*service, "/metrics")->wait();
  EXPECT_NE(metrics.find("moeflux_http_requests_total{method=\"POST\",path=\"/completions\"} 1\n"),
            std::string::npos)
      << metrics;
}

TEST_F(ServiceTest, ToolsThatNobodyCanRunAreToldOfOnce) {
  if (testing::without_engine()) return;
  std::vector<std::string> notes;
  const auto service = start({.on_note = [&](const std::string& line) { notes.push_back(line); }});
  const Json body = {{"input", "Once"},
                     {"max_output_tokens", 1},
                     {"tools", Json::array({{{"type", "web_search"}}})}};
  for (int i = 0; i < 2; ++i) EXPECT_EQ(post(*service, "/v1/responses", body)->status(), 200);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("web_search"), std::string::npos);
}

}  // namespace moeflux::serve
