#include "model/config/config.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace moeflux {
namespace {

using testing::expect_error;

Config parse(std::string_view text) {
  auto config = Config::parse(text);
  EXPECT_TRUE(config.ok()) << (config.ok() ? "" : config.error().to_string());
  return std::move(config).value();
}

std::vector<std::string> unread_names(const Config& config) {
  std::vector<std::string> names;
  for (const UnreadKey& unread : config.unread()) names.push_back(unread.name);
  return names;
}

constexpr std::string_view kFlat = R"({"model_type": "m", "layers": 4, "width": 2.5, "flag": true,
  "name": "silu", "list": ["a", "b"], "empty": null, "nested": {"theta": 1e4}, "whole": 8.0})";

TEST(Config, ReadsEveryKindOfValue) {
  Config c = parse(kFlat);
  EXPECT_EQ(c.model_type(), "m");
  EXPECT_EQ(c.require_int("layers"), 4);
  EXPECT_EQ(c.require_int("whole"), 8);
  EXPECT_EQ(c.require_number("width", 0, 10), 2.5);
  EXPECT_TRUE(c.bool_or("flag", false));
  EXPECT_EQ(c.string_or("name", ""), "silu");
  EXPECT_EQ(c.require_strings("list"), (std::vector<std::string>{"a", "b"}));
  Config nested = c.object("nested");
  EXPECT_EQ(nested.require_number("theta", 1, 1e9), 1e4);
  c.absorb(nested);
  EXPECT_TRUE(c.status().ok());
}

TEST(Config, AbsentAndNullFallBack) {
  Config c = parse(kFlat);
  for (const char* key : {"absent", "empty"}) {
    EXPECT_FALSE(c.has(key));
    EXPECT_EQ(c.int_or(key, -7), -7);  // a fallback need not be in the range
    EXPECT_EQ(c.number_or(key, 0.5, 1, 2), 0.5);
    EXPECT_TRUE(c.bool_or(key, true));
    EXPECT_EQ(c.string_or(key, "x"), "x");
    c.expect_string(key, "anything");
    c.expect_bool(key, true);
    EXPECT_FALSE(c.object(key).has("theta"));
  }
  EXPECT_TRUE(c.status().ok());
}

TEST(Config, MissingKeyIsNamed) {
  Config c = parse(kFlat);
  EXPECT_EQ(c.require_int("hidden_size", {3, 9}), 3);
  expect_error(c.status(), ErrorCode::kInvalidArgument, {"config.json", "hidden_size", "missing"});
}

TEST(Config, WrongTypeIsNamedWithWhatWasFound) {
  const auto status_after = [](auto read) {
    Config c = parse(kFlat);
    read(c);
    return c.status();
  };
  const auto invalid = ErrorCode::kInvalidArgument;
  expect_error(status_after([](Config& c) { c.require_int("name"); }), invalid,
               {"config.json", "name", "silu"});
  expect_error(status_after([](Config& c) { c.require_int("width"); }), invalid, {"width", "2.5"});
  expect_error(status_after([](Config& c) { c.require_number("flag", 0, 1); }), invalid,
               {"flag", "true", "number"});
  expect_error(status_after([](Config& c) { c.bool_or("layers", true); }), invalid,
               {"layers", "4", "true or false"});
  expect_error(status_after([](Config& c) { c.string_or("layers", ""); }), invalid,
               {"layers", "4", "string"});
  expect_error(status_after([](Config& c) { c.require_strings("name"); }), invalid,
               {"name", "silu", "list of strings"});
  expect_error(status_after([](Config& c) { c.object("list"); }), invalid, {"list", "object"});
}

TEST(Config, ListOfOtherThingsThanStringsIsRefused) {
  Config c = parse(R"({"model_type": "m", "list": ["a", 1]})");
  (void)c.require_strings("list");
  expect_error(c.status(), ErrorCode::kInvalidArgument, {"list", "strings"});
}

TEST(Config, ValueOutOfRangeIsNamedWithTheRange) {
  Config c = parse(kFlat);
  EXPECT_EQ(c.require_int("layers", {5, 6}), 5);
  expect_error(c.status(), ErrorCode::kInvalidArgument, {"layers is 4", "5 to 6"});
  Config d = parse(kFlat);
  EXPECT_EQ(d.require_number("width", 0, 1), 0);
  expect_error(d.status(), ErrorCode::kInvalidArgument, {"width is 2.5", "0 to 1"});
  Config huge = parse(R"({"model_type": "m", "layers": 1e300, "more": 18446744073709551615})");
  EXPECT_EQ(huge.require_int("layers"), 1);
  EXPECT_FALSE(huge.status().ok());
  EXPECT_EQ(huge.require_int("more"), 1);
}

TEST(Config, FirstProblemStays) {
  Config c = parse(kFlat);
  (void)c.require_int("first");
  (void)c.require_int("second");
  c.fail(ErrorCode::kUnsupported, "third");
  Config nested = c.object("nested");
  (void)nested.require_int("fourth");
  c.absorb(nested);
  expect_error(c.status(), ErrorCode::kInvalidArgument, {"first"});
}

TEST(Config, NestedProblemsCarryTheirPath) {
  Config c = parse(kFlat);
  Config nested = c.object("nested");
  nested.expect_string("rope_type", "default");
  (void)nested.require_number("theta", 0, 1);
  c.absorb(nested);
  expect_error(c.status(), ErrorCode::kInvalidArgument, {"config.json: nested", "theta"});
}

TEST(Config, UnsupportedValuesAreNamed) {
  Config c = parse(kFlat);
  c.expect_string("name", "gelu");
  expect_error(c.status(), ErrorCode::kUnsupported, {"name", "silu", "gelu"});
  Config d = parse(kFlat);
  d.expect_bool("flag", false);
  expect_error(d.status(), ErrorCode::kUnsupported, {"flag", "true", "false"});
}

TEST(Config, TextConfigComesBeforeTheTopLevel) {
  Config c = parse(R"({"model_type": "outer", "hidden_size": 1, "vocab_size": 2,
                       "text_config": {"model_type": "inner", "hidden_size": 3, "extra": 0}})");
  EXPECT_EQ(c.model_type(), "inner");
  EXPECT_EQ(c.require_int("hidden_size"), 3);
  EXPECT_EQ(c.require_int("vocab_size"), 2);
  EXPECT_EQ(unread_names(c), (std::vector<std::string>{"extra"}));
}

TEST(Config, TextConfigWithoutModelTypeUsesTheTopLevels) {
  EXPECT_EQ(parse(R"({"model_type": "outer", "text_config": {}})").model_type(), "outer");
}

TEST(Config, UnreadKeysAreThoseNobodyAskedFor) {
  Config c = parse(R"({"model_type": "m", "b": 1, "a": 2, "c": 3, "torch_dtype": "bfloat16"})");
  (void)c.require_int("a");
  c.ignore("c");
  EXPECT_EQ(unread_names(c), (std::vector<std::string>{"b"}));
}

TEST(Config, UnreadKeysBesideTextConfigCountToo) {
  const Config c = parse(R"({"model_type": "outer", "far": 1, "both": 1, "image_token_id": 7,
                             "text_config": {"near": 2, "both": 2, "eos_token_id": 3}})");
  EXPECT_EQ(unread_names(c), (std::vector<std::string>{"near", "both", "far"}));
  EXPECT_EQ(c.unread()[1].value, 2);
}

TEST(Config, UnreadKeysOfNestedObjectsAreNamedByTheirPath) {
  Config c = parse(R"({"model_type": "m", "rope": {"type": "x", "beta": 0.5, "gone": null}})");
  Config rope = c.object("rope");
  (void)rope.string_or("type", "");
  c.absorb(rope);
  ASSERT_EQ(unread_names(c), (std::vector<std::string>{"rope: beta"}));
  EXPECT_EQ(c.unread()[0].key, "beta");
  EXPECT_EQ(c.unread()[0].value, 0.5);
}

TEST(Config, BrokenTextsAreRefused) {
  expect_error(Config::parse("{\"model_type\": "), ErrorCode::kCorruption, {"config.json"});
  expect_error(Config::parse(""), ErrorCode::kCorruption, {"config.json"});
  expect_error(Config::parse("[1]"), ErrorCode::kCorruption, {"array", "object"});
  expect_error(Config::parse(R"({"model_type": "m", "text_config": 5})"), ErrorCode::kCorruption,
               {"text_config", "number"});
  expect_error(Config::parse("{}"), ErrorCode::kInvalidArgument, {"model_type", "missing"});
  expect_error(Config::parse(R"({"model_type": 7})"), ErrorCode::kInvalidArgument,
               {"model_type", "7"});
  expect_error(Config::parse(R"({"a": 1, "a": 2})"), ErrorCode::kCorruption, {"a"});
}

}  // namespace
}  // namespace moeflux
