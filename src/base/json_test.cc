#include "base/json.h"

#include <gtest/gtest.h>

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
      {"", "f.json: not valid JSON at byte"},
      {"{} {}", "f.json: not valid JSON at byte 4"},
      {"{\"a\":\"\xff\"}", "f.json: not valid JSON at byte"},
      {"[1e999]", "f.json: not valid JSON at byte"},
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

}  // namespace
}  // namespace moeflux
