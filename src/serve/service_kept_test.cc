// Stored objects for clients: they are there, or the answer says that they are not.
#include <gtest/gtest.h>

#include <filesystem>

#include "serve/service_test_util.h"
#include "tests/support/temp_folder.h"

namespace moeflux::serve {
namespace {

constexpr const char* kTalk = "/v1/moeflux/conversations/talk";
const Json kEmpty = {{"messages", Json::array()}};

class KeptTest : public ServiceTest {
 protected:
  static Json turn(int tokens, bool stream) {
    Json body = question("Once upon a time", tokens);
    body["conversation"] = "talk";
    body["stream"] = stream;
    return body;
  }
  static Json response(int tokens) {
    return {{"input", "Once upon a time"}, {"max_output_tokens", tokens}, {"seed", 7}};
  }
  /// A stream whose reader waits.
  static std::shared_ptr<MemoryResponse> slow(Service& service, std::string path, Json body) {
    auto answer = std::make_shared<MemoryResponse>();
    answer->be_slow();
    body["stream"] = true;
    service.handle({.method = "POST", .path = std::move(path), .body = body.dump()}, answer);
    return answer;
  }
  static std::shared_ptr<MemoryResponse> erase(Service& service, std::string path,
                                               std::string owner = {}) {
    return ask(
        service,
        {.method = "DELETE", .path = std::move(path), .body = {}, .owner = std::move(owner)});
  }
  static size_t messages(Service& service) {
    return get(service, kTalk)->json()["messages"].size();
  }

  testing::TempFolder folder_;
};

TEST_F(KeptTest, AnAnswerThatIsNotSavedSaysSoAndIsThere) {
  if (testing::without_engine()) return;
  const auto service =
      start({.conversations = {.bytes_max = 60, .count_max = 4, .makes_room = false}});
  ASSERT_EQ(post(*service, kTalk, kEmpty)->status(), 200);
  const auto whole = post(*service, "/v1/chat/completions", turn(4, false));
  EXPECT_EQ(whole->status(), 409);
  EXPECT_EQ(whole->json()["error"]["code"], "conversations_full");
  EXPECT_EQ(whole->header("x-should-retry"), "false");
  const auto text = content(*whole);
  EXPECT_FALSE(text.empty());
  const std::string stream = post(*service, "/v1/chat/completions", turn(4, true))->wait();
  EXPECT_NE(stream.find("conversations_full"), std::string::npos) << stream;
  EXPECT_EQ(stream.find("[DONE]"), std::string::npos) << stream;
  EXPECT_EQ(messages(*service), 0u);
}

TEST_F(KeptTest, AnAnswerThatContinuesAMessageIsOneWithIt) {
  if (testing::without_engine()) return;
  const auto service = start({.folder = folder_.path()});
  ASSERT_EQ(post(*service, kTalk, kEmpty)->status(), 200);
  Json body = turn(4, false);
  body["messages"].push_back({{"role", "assistant"}, {"content", "Mon"}});
  std::string said = "Mon" + content(*post(*service, "/v1/chat/completions", body));
  EXPECT_EQ(get(*service, kTalk)->json()["messages"][1]["content"], said);
  body["messages"] = Json::array();
  said += content(*post(*service, "/v1/chat/completions", body));
  const Json messages = get(*service, kTalk)->json()["messages"];
  ASSERT_EQ(messages.size(), 2u) << messages;
  EXPECT_EQ(messages[1]["content"], said);
  // A new turn is a message of its own.
  body["continue_final_message"] = false;
  post(*service, "/v1/chat/completions", body)->wait();
  EXPECT_EQ(this->messages(*service), 3u);
}

TEST_F(KeptTest, ASavedConversationTakesWhatChatTakes) {
  if (testing::without_engine()) return;
  const auto service = start();
  const Json parts = Json::parse(R"([{"type": "text", "text": "Be "},
                                     {"type": "text", "text": "kind."}])");
  const Json begun = {{"messages", Json::array({{{"role", "developer"}, {"content", parts}}})}};
  ASSERT_EQ(post(*service, kTalk, begun)->status(), 200);
  Json body = turn(2, false);
  body["messages"][0]["content"] = Json::parse(R"([{"type": "input_text", "text": "Once"}])");
  ASSERT_EQ(post(*service, "/v1/chat/completions", body)->status(), 200);
  const Json messages = get(*service, kTalk)->json()["messages"];
  ASSERT_EQ(messages.size(), 3u) << messages;
  EXPECT_EQ(messages[0], begun["messages"][0]);
  EXPECT_EQ(messages[1]["content"], Json::parse(R"([{"type": "text", "text": "Once"}])"));
  body["messages"] = Json::parse(R"([{"role": "user", "content": "a"}, {"role": "king"}])");
  EXPECT_EQ(post(*service, "/v1/chat/completions", body)->json()["error"]["param"],
            "messages[1].role");
  body["messages"][1] = {{"role", "user"}, {"content", 3}};
  const Json error = post(*service, "/v1/chat/completions", body)->json()["error"];
  EXPECT_EQ(error["param"], "messages[1].content") << error;
  EXPECT_EQ(post(*service, kTalk, body)->json()["error"]["param"], "messages[1].content");
  EXPECT_EQ(this->messages(*service), 3u);
}

TEST_F(KeptTest, AnAnswerThatIsHeldToAConstraintIsSavedOnce) {
  if (testing::without_engine() || !has_constraints()) return;
  const auto service = start();
  ASSERT_EQ(post(*service, kTalk, kEmpty)->status(), 200);
  Json body = turn(4, false);
  body["regex"] = "[a-z]{2}";
  EXPECT_EQ(post(*service, "/v1/chat/completions", body)->status(), 200);
  EXPECT_EQ(messages(*service), 2u);
}

TEST_F(KeptTest, AResponseThatContinuesAMessageIsGoneOnFromAsOne) {
  if (testing::without_engine()) return;
  const auto service = start();
  Json body = response(4);
  body["input"] = Json::array({{{"role", "user"}, {"content", "Once upon a time"}},
                               {{"role", "assistant"}, {"content", "Mon"}}});
  const Json first = post(*service, "/v1/responses", body)->json();
  const std::string written = first["output"][0]["content"][0]["text"];
  const Json next = {{"role", "user"}, {"content", "And then?"}};
  const auto tokens = [&](const Json& asked) {
    return post(*service, "/v1/responses/input_tokens", asked)->json()["input_tokens"];
  };
  body["input"][1]["content"] = "Mon" + written;
  body["input"].push_back(next);
  const Json gone_on = {{"previous_response_id", first["id"]}, {"input", Json::array({next})}};
  EXPECT_EQ(tokens(gone_on), tokens(body));
}

TEST_F(KeptTest, AFolderThatGoesIsToldOf) {
  if (testing::without_engine()) return;
  const auto service = start({.folder = folder_.path()});
  ASSERT_EQ(post(*service, kTalk, kEmpty)->status(), 200);
  const auto answer = slow(*service, "/v1/chat/completions", turn(20, true));
  std::filesystem::remove_all(folder_ / "conversations");
  std::filesystem::remove_all(folder_ / "responses");
  answer->read_on();
  const std::string stream = answer->wait();
  EXPECT_NE(stream.find("\"error\""), std::string::npos) << stream;
  EXPECT_EQ(stream.find(folder_.path()), std::string::npos) << stream;
  EXPECT_GE(post(*service, "/v1/chat/completions", turn(1, false))->status(), 400);
  EXPECT_EQ(post(*service, kTalk, kEmpty)->status(), 500);
  const Json unkept = post(*service, "/v1/responses", response(4))->json();
  EXPECT_EQ(unkept["store"], false);
  EXPECT_FALSE(unkept["output"][0]["content"][0]["text"].get<std::string>().empty());
  EXPECT_NE(unkept["moeflux"]["not_stored"], Json());
  EXPECT_EQ(unkept.dump().find(folder_.path()), std::string::npos) << unkept;
}

TEST_F(KeptTest, WhatIsDeletedWhileItIsAnsweredStaysAway) {
  if (testing::without_engine()) return;
  for (const std::string& folder : {std::string(), folder_.path()}) {
    const auto service = start({.folder = folder});
    ASSERT_EQ(post(*service, kTalk, kEmpty)->status(), 200);
    const auto answer = slow(*service, "/v1/chat/completions", turn(200, true));
    EXPECT_EQ(erase(*service, kTalk)->json()["deleted"], true);
    EXPECT_EQ(get(*service, kTalk)->status(), 404);
    EXPECT_NE(answer->wait().find("deleted"), std::string::npos);
    EXPECT_EQ(get(*service, kTalk)->status(), 404);
    EXPECT_EQ(erase(*service, kTalk)->status(), 404);
    EXPECT_EQ(get(*start({.folder = folder}), kTalk)->status(), 404);
    EXPECT_EQ(post(*service, kTalk, kEmpty)->status(), 200);  // the name is free
  }
}

TEST_F(KeptTest, AResponseThatIsDeletedWhileItIsMadeIsNotKept) {
  if (testing::without_engine()) return;
  const auto service = start({.folder = folder_.path()});
  const auto answer = slow(*service, "/v1/responses", response(200));
  const std::string begun = answer->begun();
  const size_t at = begun.find("resp_");
  const std::string path = "/v1/responses/" + begun.substr(at, begun.find('"', at) - at);
  EXPECT_EQ(erase(*service, path)->json()["deleted"], true);
  EXPECT_NE(answer->wait().find("response.failed"), std::string::npos);
  EXPECT_EQ(get(*service, path)->status(), 404);
  EXPECT_EQ(erase(*service, path)->status(), 404);
}

TEST_F(KeptTest, AnotherServiceDeletesAResponseThatIsBeingMade) {
  if (testing::without_engine()) return;
  const auto one = start({.folder = folder_.path()});
  const auto other = start({.folder = folder_.path()});
  const auto answer = slow(*one, "/v1/responses", response(20));
  const std::string begun = answer->begun();
  const size_t at = begun.find("resp_");
  const std::string path = "/v1/responses/" + begun.substr(at, begun.find('"', at) - at);
  EXPECT_EQ(get(*other, path)->status(), 404);
  EXPECT_EQ(erase(*other, path)->json()["deleted"], true);
  EXPECT_EQ(erase(*other, path)->status(), 404);
  answer->read_on();
  EXPECT_NE(answer->wait().find("deleted"), std::string::npos) << answer->wait();
  EXPECT_EQ(get(*one, path)->status(), 404);
  EXPECT_EQ(get(*other, path)->status(), 404);
  EXPECT_TRUE(std::filesystem::is_empty(folder_ / "responses"));
}

TEST_F(KeptTest, TwoServicesWithOneFolderLoseNoTurn) {
  if (testing::without_engine()) return;
  const auto one = start({.folder = folder_.path()});
  const auto other = start({.folder = folder_.path()});
  ASSERT_EQ(post(*one, kTalk, kEmpty)->status(), 200);
  const auto answer = slow(*one, "/v1/chat/completions", turn(20, true));
  EXPECT_EQ(post(*other, "/v1/chat/completions", turn(1, false))->status(), 409);
  EXPECT_EQ(post(*other, kTalk, kEmpty)->status(), 409);
  EXPECT_EQ(erase(*other, kTalk)->status(), 409);
  answer->read_on();
  answer->wait();
  EXPECT_EQ(post(*other, "/v1/chat/completions", turn(1, false))->status(), 200);
  EXPECT_EQ(messages(*one), 4u);
}

TEST_F(KeptTest, FilesAreWhatWasKeptOrNothing) {
  if (testing::without_engine()) return;
  const auto service = start({.folder = folder_.path()});
  const Json said = {
      {"messages", Json::array({{{"role", "user"}, {"content", "I owe you 100 apples"}}})}};
  ASSERT_EQ(post(*service, kTalk, said)->status(), 200);
  const std::string file = folder_ / "conversations/talk.json";
  std::string bad = testing::read_bytes(file);
  bad[bad.find("100") + 1] ^= 1;
  testing::write_bytes(file, bad);
  EXPECT_EQ(get(*service, kTalk)->status(), 404);
  EXPECT_EQ(post(*service, "/v1/chat/completions", turn(1, false))->status(), 404);
  // One that an older server or the terminal wrote has no checksum, and gets one.
  testing::write_bytes(file, said.dump());
  EXPECT_EQ(get(*service, kTalk)->json()["messages"], said["messages"]);
  bad = testing::read_bytes(file);
  bad[bad.find("100") + 1] ^= 1;
  testing::write_bytes(file, bad);
  EXPECT_EQ(get(*service, kTalk)->status(), 404);
}

TEST_F(KeptTest, AFileUnderAnotherNameIsNotServed) {
  if (testing::without_engine()) return;
  std::vector<std::string> notes;
  const auto service = start({.folder = folder_.path(),
                              .on_note = [&](const std::string& line) { notes.push_back(line); }});
  const auto copy = [&](const std::string& from, const std::string& to) {
    testing::write_bytes(folder_ / to, testing::read_bytes(folder_ / from));
  };
  ASSERT_EQ(post(*service, kTalk, kEmpty)->status(), 200);
  copy("conversations/talk.json", "conversations/other.json");
  EXPECT_EQ(get(*service, "/v1/moeflux/conversations/other")->status(), 404);
  EXPECT_EQ(messages(*service), 0u);
  const std::string id = post(*service, "/v1/responses", response(1))->json()["id"];
  copy("responses/" + id + ".json", "responses/resp_1.json");
  // One without a seal knows its id.
  std::string text = testing::read_bytes(folder_ / "responses/resp_1.json");
  text[text.find("checksum")] = 'C';
  testing::write_bytes(folder_ / "responses/resp_2.json", text);
  Json next = response(1);
  for (const std::string other : {"resp_1", "resp_2"}) {
    EXPECT_EQ(get(*service, "/v1/responses/" + other)->status(), 404);
    EXPECT_EQ(get(*service, "/v1/responses/" + other + "/input_items")->status(), 404);
    next["previous_response_id"] = other;
    EXPECT_EQ(post(*service, "/v1/responses", next)->status(), 404);
    EXPECT_NE(notes.back().find(other + ".json"), std::string::npos) << notes.back();
  }
  EXPECT_EQ(notes.size(), 7u);
  EXPECT_EQ(get(*service, "/v1/responses/" + id)->json()["id"], id);
}

TEST_F(KeptTest, AResponseThatIsNotThereIsNamedByTheFieldThatNamesIt) {
  if (testing::without_engine()) return;
  const auto service = start();
  const std::string path = "/v1/responses/resp_none";
  for (const auto& answer :
       {get(*service, path), get(*service, path + "/input_items"), erase(*service, path)}) {
    EXPECT_EQ(answer->json()["error"]["param"], Json());
    EXPECT_EQ(answer->status(), 404);
  }
  Json body = response(1);
  body["previous_response_id"] = "resp_none";
  const Json error = post(*service, "/v1/responses", body)->json()["error"];
  EXPECT_EQ(error["param"], "previous_response_id");
}

TEST_F(KeptTest, AnIdThatNoResponseCanHaveIsAWrongField) {
  if (testing::without_engine()) return;
  const auto service = start();
  Json body = response(1);
  for (const char* id : {"", "chatcmpl-1"}) {
    body["previous_response_id"] = id;
    const auto answer = post(*service, "/v1/responses", body);
    EXPECT_EQ(answer->status(), 400) << id;
    EXPECT_EQ(answer->json()["error"]["param"], "previous_response_id");
    EXPECT_EQ(answer->json()["error"]["message"],
              "previous_response_id is \"" + std::string(id) +
                  "\", expected the id of a response, which begins with resp_");
  }
}

TEST_F(KeptTest, IsUnknownToOtherKeys) {
  if (testing::without_engine()) return;
  const auto service = start({.folder = folder_.path()});
  const auto as = [&](std::string owner, std::string method, std::string path, const Json& body) {
    Request request{.method = std::move(method),
                    .path = std::move(path),
                    .body = body.is_null() ? "" : body.dump(),
                    .owner = std::move(owner)};
    return ask(*service, std::move(request));
  };
  ASSERT_EQ(as("a", "POST", kTalk, kEmpty)->status(), 200);
  const std::string id = as("a", "POST", "/v1/responses", response(2))->json()["id"];
  Json next = response(1);
  next["previous_response_id"] = id;
  const std::string all = "/v1/moeflux/conversations";
  for (const char* other : {"b", ""}) {
    EXPECT_EQ(as(other, "GET", kTalk, {})->status(), 404);
    EXPECT_EQ(as(other, "DELETE", kTalk, {})->status(), 404);
    EXPECT_EQ(as(other, "POST", "/v1/chat/completions", turn(1, false))->status(), 404);
    EXPECT_EQ(as(other, "GET", "/v1/responses/" + id, {})->status(), 404);
    EXPECT_EQ(as(other, "GET", "/v1/moeflux/conversations/a.talk", {})->status(), 404);
    EXPECT_EQ(as(other, "DELETE", "/v1/responses/" + id, {})->status(), 404);
    EXPECT_EQ(as(other, "POST", "/v1/responses", next)->status(), 404);
    EXPECT_EQ(as(other, "GET", all, {})->json()["conversations"].size(), 0u);
    EXPECT_EQ(as(other, "GET", all, {})->json()["stored_responses"], 0);
  }
  EXPECT_EQ(as("b", "POST", kTalk, kEmpty)->status(), 200);  // a name of its own
  EXPECT_EQ(as("a", "POST", "/v1/chat/completions", turn(1, false))->status(), 200);
  EXPECT_EQ(as("b", "GET", kTalk, {})->json()["messages"].size(), 0u);
  EXPECT_EQ(as("a", "GET", all, {})->json()["conversations"][0]["id"], "talk");
  EXPECT_EQ(as("a", "POST", "/v1/responses", next)->status(), 200);
  EXPECT_EQ(as("a", "DELETE", "/v1/responses/" + id, {})->status(), 200);
}

TEST_F(KeptTest, AStreamIsComeBackToByItsKeyAlone) {
  if (testing::without_engine()) return;
  const auto service = start();
  Json body = question("Once", 4);
  body["stream"] = true;
  ask(*service, {.method = "POST",
                 .path = "/v1/chat/completions",
                 .headers = {{"x-conversation-id", "talk"}},
                 .body = body.dump(),
                 .owner = "a"})
      ->wait();
  const auto as = [&](std::string owner, std::string method) {
    return ask(*service, {.method = std::move(method),
                          .path = "/v1/stream",
                          .query = "conv_id=talk",
                          .body = {},
                          .owner = std::move(owner)});
  };
  EXPECT_EQ(as("b", "GET")->status(), 404);
  EXPECT_EQ(as("b", "DELETE")->status(), 404);
  EXPECT_EQ(as("", "GET")->status(), 404);
  EXPECT_EQ(as("a", "GET")->status(), 200);
  EXPECT_EQ(as("a", "DELETE")->status(), 204);
  EXPECT_EQ(as("a", "GET")->status(), 404);
  EXPECT_EQ(as("a", "DELETE")->status(), 404);
}

TEST_F(KeptTest, NoMessageNamesAFolderOfTheServer) {
  if (testing::without_engine()) return;
  const auto service =
      start({.template_text = "{{ raise_exception('roles must alternate user/assistant') }}"});
  const std::string told =
      post(*service, "/v1/chat/completions", question("Once", 1))->json()["error"]["message"];
  EXPECT_NE(told.find("roles must alternate user/assistant"), std::string::npos) << told;
  EXPECT_EQ(told.find(MOEFLUX_SOURCE_DIR), std::string::npos) << told;
  EXPECT_EQ(told.find("models/"), std::string::npos) << told;
}

}  // namespace
}  // namespace moeflux::serve
