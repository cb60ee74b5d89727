// Streams that are left and come back to: what their readers are told of their end, and what is no
// place in them.
#include "serve/metrics.h"
#include "serve/service_test_util.h"

namespace moeflux::serve {
namespace {

class StreamsTest : public ServiceTest {
 protected:
  // A stream that waits for its reader, so that it ends when something ends it.
  static std::shared_ptr<MemoryResponse> begin(Service& service) {
    auto reader = std::make_shared<MemoryResponse>();
    reader->be_slow();
    Json body = question("Once upon a time", 200);
    body["stream"] = true;
    service.handle({.method = "POST",
                    .path = "/v1/chat/completions",
                    .headers = {{"x-conversation-id", "talk"}},
                    .body = body.dump()},
                   reader);
    reader->begun();
    return reader;
  }
  static std::shared_ptr<MemoryResponse> stream(Service& service, std::string method,
                                                std::string query, Headers headers = {}) {
    return ask(service, {.method = std::move(method),
                         .path = "/v1/stream",
                         .query = std::move(query),
                         .headers = std::move(headers)});
  }
};

// With several keys a request names the clients that it shares states with.
TEST_F(StreamsTest, OtherClientsSeeThatASlotIsTakenAndNoMore) {
  const std::vector<ActiveText> texts = {{.id = 3, .prompt_tokens = 12, .client = "a"}};
  const Json own = slots_json(texts, {.count = 1, .context_length = 256, .client = "a"})[0];
  EXPECT_EQ(own["n_prompt_tokens"], 12);
  const Json others = slots_json(texts, {.count = 1, .context_length = 256, .client = "b"})[0];
  EXPECT_EQ(others["id_task"], 3);
  for (const char* name :
       {"n_prompt_tokens", "n_prompt_tokens_cached", "n_prompt_tokens_processed", "n_decoded"}) {
    EXPECT_FALSE(others.contains(name)) << others;
  }
}

TEST_F(StreamsTest, TheListingTellsNoClientWhatOthersHaveSent) {
  if (testing::without_engine()) return;
  const auto service = start();
  const auto listing = [&](const std::string& client) {
    return ask(*service, {.method = "GET",
                          .path = "/v1/moeflux/conversations",
                          .owner = client,
                          .shares_with = client})
        ->json();
  };
  EXPECT_FALSE(listing("b").contains("kept_tokens"));
  EXPECT_TRUE(listing("").contains("kept_tokens"));
}

TEST_F(StreamsTest, AStreamThatIsDeletedOrReplacedSaysSo) {
  if (testing::without_engine()) return;
  const auto service = start();
  const auto deleted = begin(*service);
  EXPECT_EQ(stream(*service, "DELETE", "conv_id=talk")->status(), 204);
  EXPECT_NE(deleted->wait().find("was deleted"), std::string::npos) << deleted->wait();
  const auto replaced = begin(*service);
  const auto last = begin(*service);
  EXPECT_NE(replaced->wait().find("another request took"), std::string::npos) << replaced->wait();
  for (const auto& reader : {deleted, replaced}) {
    EXPECT_EQ(reader->wait().find("stopping"), std::string::npos) << reader->wait();
    EXPECT_EQ(reader->wait().find("unavailable_error"), std::string::npos) << reader->wait();
  }
  stream(*service, "DELETE", "conv_id=talk")->wait();
  last->wait();
}

TEST_F(StreamsTest, WhatIsNoPlaceInAStreamIsRefusedByItsName) {
  if (testing::without_engine()) return;
  const auto service = start();
  Json body = question("Once", 2);
  body["stream"] = true;
  ask(*service, {.method = "POST",
                 .path = "/v1/chat/completions",
                 .headers = {{"x-conversation-id", "talk"}},
                 .body = body.dump()})
      ->wait();
  const auto refused = [&](const std::string& method, const std::string& query,
                           const Headers& headers = {}) {
    const auto answer = stream(*service, method, query, headers);
    EXPECT_EQ(answer->status(), 400) << method << query;
    return answer->json()["error"].value("param", "");
  };
  for (const char* method : {"GET", "DELETE"}) {
    EXPECT_EQ(refused(method, ""), "conv_id");
    EXPECT_EQ(refused(method, "conv_id="), "conv_id");
  }
  for (const char* from : {"x", "-1", "1x", "", "%201", "99999999999999999999", "99"}) {
    EXPECT_EQ(refused("GET", std::string("conv_id=talk&from=") + from), "from") << from;
  }
  for (const char* seen : {"x", "-1", "18446744073709551615", "99"}) {
    EXPECT_EQ(refused("GET", "conv_id=talk", {{"last-event-id", seen}}), "Last-Event-ID") << seen;
  }
  EXPECT_EQ(stream(*service, "GET", "conv_id=talk", {{"last-event-id", "0"}})->status(), 200);
  EXPECT_EQ(stream(*service, "GET", "conv_id=talk&from=1", {{"last-event-id", "x"}})->status(),
            200);
}

}  // namespace
}  // namespace moeflux::serve
