#include "serve/response_store.h"

#include <gtest/gtest.h>

namespace moeflux::serve {
namespace {

std::string item(const std::string& text) { return Json::array({{{"said", text}}}).dump(); }
std::string response(const std::string& text) {
  return Json{{"output", Json::parse(item(text))}}.dump();
}

TEST(ResponseStore, GivesAConversationInItsOrder) {
  ResponseStore store(1 << 20);
  store.keep("a", item("1"), response("2"), nullptr);
  store.keep("b", item("3"), response("4"), store.find("a"));
  store.keep("c", item("5"), response("6"), store.find("a"));
  EXPECT_EQ(store.find("b")->conversation(),
            Json::parse(R"([{"said": "1"}, {"said": "2"}, {"said": "3"}, {"said": "4"}])"));
  EXPECT_EQ(store.find("c")->conversation().back()["said"], "6");
  EXPECT_EQ(store.find("b")->input(), Json::parse(item("3")));
  EXPECT_EQ(store.find("d"), nullptr);
}

TEST(ResponseStore, WhatIsErasedStaysForThoseWhoGoOnFromIt) {
  ResponseStore store(1 << 20);
  store.keep("a", item("1"), response("2"), nullptr);
  store.keep("b", item("3"), response("4"), store.find("a"));
  EXPECT_TRUE(store.erase("a"));
  EXPECT_FALSE(store.erase("a"));
  EXPECT_EQ(store.find("a"), nullptr);
  EXPECT_EQ(store.find("b")->conversation().size(), 4u);
  EXPECT_TRUE(store.erase("b"));
  EXPECT_EQ(store.size_bytes(), 0u);
}

TEST(ResponseStore, WhoWasUsedLongestAgoMakesRoom) {
  const std::string text(1000, 'x');
  ResponseStore store(5000);
  store.keep("a", item(text), response("1"), nullptr);
  store.keep("b", item(text), response("2"), nullptr);
  store.keep("c", item(text), response("3"), nullptr);
  store.keep("d", item(text), response("4"), nullptr);
  store.find("a");
  store.keep("e", item(text), response("5"), nullptr);
  EXPECT_EQ(store.find("b"), nullptr);
  EXPECT_NE(store.find("a"), nullptr);
  EXPECT_LE(store.size_bytes(), 5000u);
  // One that is too large is not kept, whatever it goes on from.
  store.keep("f", item(std::string(6000, 'x')), response("6"), store.find("a"));
  EXPECT_EQ(store.find("f"), nullptr);
  EXPECT_LE(store.size_bytes(), 5000u);
}

TEST(ResponseStore, ALongConversationIsForgottenAtOnce) {
  ResponseStore store(size_t{1} << 30);
  for (int i = 0; i < 100000; ++i) {
    const auto last = store.find("a");
    store.erase("a");
    store.keep("a", "[]", "{}", last);
  }
  EXPECT_GT(store.size_bytes(), 100000u);
  store.erase("a");
  EXPECT_EQ(store.size_bytes(), 0u);
}

}  // namespace
}  // namespace moeflux::serve
