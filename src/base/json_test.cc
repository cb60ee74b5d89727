#include "base/json.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/format.h"

namespace moeflux {
namespace {

TEST(ParseJson, KeepsKeyOrderOrSortsIt) {
  const std::string text = R"({"b":1,"a":{"a":2,"b":[3,{"a":4}]}})";
  EXPECT_EQ(parse_json(text, "x")->dump(), text);
  EXPECT_EQ(parse_sorted_json(text, "x")->begin().key(), "a");
}

TEST(ParseJson, RefusalsNameSourceAndProblem) {
  const std::string deep_ok = std::string(128, '[') + std::string(128, ']');
  const std::string too_deep = std::string(129, '[') + std::string(129, ']');
  const std::pair<std::string, std::string> cases[] = {
      {"", "f.json: not valid JSON at byte 1: unexpected end of input"},
      {"{} {}", "f.json: not valid JSON at byte 4: unexpected '{'"},
      {"{\"a\":\"\xff\"}",
       "f.json: not valid JSON at byte 7: invalid string: ill-formed UTF-8 byte"},
      {R"(["\ud800"])",
       "f.json: not valid JSON at byte 9: invalid string: surrogate U+D800..U+DBFF "
       "must be followed by U+DC00..U+DFFF"},
      {R"(["\udc00 - ;"])",
       "f.json: not valid JSON at byte 8: invalid string: surrogate "
       "U+DC00..U+DFFF must follow U+D800..U+DBFF"},
      {"[1e999]", "f.json: not valid JSON at byte 6: a number too great"},
      {R"({"a":1,"b":{"c":1,"c":2}})", "f.json: key \"c\" appears twice"},
      {R"({"\u001b":1,"\u001b":2})", "f.json: key \"\\u001b\" appears twice"},
      {too_deep, "f.json: nested deeper than 128"},
      {std::string(1'000'000, '['), "f.json: nested deeper than 128"},
  };
  for (const auto& [text, message] : cases) {
    for (const Error& error :
         {parse_json(text, "f.json").error(), parse_sorted_json(text, "f.json").error()}) {
      EXPECT_EQ(error.code(), ErrorCode::kCorruption);
      EXPECT_EQ(error.message().rfind(message, 0), 0u) << error.message();
    }
  }
  EXPECT_TRUE(parse_json(deep_ok, "f.json").ok());
}

TEST(ParseJson, OneKeyInSeveralObjectsIsNoDuplicate) {
  EXPECT_TRUE(parse_json(R"({"a":{"a":1},"b":[{"a":1},{"a":1}]})", "x").ok());
}

// 200,000 keys looked up in a list are 20 billion comparisons.
TEST(ParseJson, AnObjectOfManyKeysIsReadCopiedAndAskedWithoutWalkingIt) {
  constexpr int kKeys = 200'000;
  std::string text = "{";
  for (int i = 0; i < kKeys; ++i) text += formatted("{}\"k{}\":{}", i == 0 ? "" : ",", i, i);
  text += "}";
  const Json json = *parse_json(text, "x");
  const Json copy = json;
  Json built = Json::object();
  for (const auto& [key, value] : copy.items()) built[key] = value;
  ASSERT_EQ(built.size(), size_t{kKeys});
  for (int i = 0; i < kKeys; ++i) ASSERT_EQ(built[formatted("k{}", i)], i);
  EXPECT_EQ(built.dump(), text);
  EXPECT_EQ(parse_sorted_json(text, "x")->size(), size_t{kKeys});
}

// Each object's keys behind a large first value would copy it whenever they outgrow their room.
TEST(ParseJson, AGrowingObjectDoesNotCopyWhatItHolds) {
  std::string text = "[0";
  for (int i = 0; i < 300'000; ++i) text += ",0";
  text += "]";
  std::string behind;
  for (int i = 0; i < 64; ++i) behind += formatted(",\"b{}\":0", i);
  for (int depth = 0; depth < 100; ++depth) text = "{\"a\":" + text + behind + "}";
  const auto json = parse_json(text, "x");
  ASSERT_TRUE(json.ok()) << json.error().message();
  EXPECT_EQ(json->size(), 65u);
}

TEST(ParseJson, ValuesAreCountedAndTheReaderIsAskedWhetherItGoesOn) {
  EXPECT_TRUE(parse_json(R"({"a":[1,2],"b":{}})", "x", {.values = 5}).ok());
  const Error many = parse_json("[[],[],[]]", "x", {.values = 3}).error();
  EXPECT_EQ(many.code(), ErrorCode::kResourceExhausted);
  EXPECT_EQ(many.message(), "x: over 3 values");
  std::string text = "[0";
  for (int i = 0; i < 100'000; ++i) text += ",0";
  text += "]";
  int questions = 0;
  const JsonLimits limits{.is_given_up = [&] { return ++questions == 3; }};
  EXPECT_EQ(parse_json(text, "x", limits).error().code(), ErrorCode::kCancelled);
  EXPECT_EQ(questions, 3);
}

TEST(OrderedMap, AnswersAsAListAndAMapDoWhateverIsAddedAndErased) {
  std::mt19937 random(1);
  Json json = Json::object();
  std::vector<std::string> order;
  std::map<std::string, int> values;
  for (int step = 0; step < 5000; ++step) {
    const std::string key = formatted("{}", random() % 60);
    if (random() % 3 != 0) {
      if (values.count(key) == 0) order.push_back(key);
      json[key] = values[key] = step;
    } else {
      EXPECT_EQ(json.erase(key), values.erase(key));
      std::erase(order, key);
    }
    if (step % 7 == 0) json = Json(json);
    if (step % 11 == 0) {
      Json moved = std::move(json);
      std::swap(json, moved);
    }
    ASSERT_EQ(json.size(), order.size());
    size_t at = 0;
    for (const auto& [name, value] : json.items()) {
      ASSERT_EQ(name, order[at++]);
      ASSERT_EQ(value, values[name]);
    }
    for (int i = 0; i < 60; ++i) {
      const std::string name = formatted("{}", i);
      ASSERT_EQ(json.contains(name), values.count(name) == 1);
    }
  }
}

}  // namespace
}  // namespace moeflux
