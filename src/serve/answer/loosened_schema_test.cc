#include "serve/answer/loosened_schema.h"

#include <gtest/gtest.h>

namespace moeflux::serve {
namespace {

TEST(LoosenedSchema, LosesTheKeywordThatARefusalNames) {
  const Json schema = Json::parse(R"({"properties": {
      "a/b: c": {"type": "string", "format": "path", "maxLength": 3},
      "list": {"type": "array", "uniqueItems": true, "items": {"type": "integer"}}},
      "required": ["list"]})");
  const auto left = without_refused(
      schema, "tools[0]#/properties/a~1b: c/format: the format \"path\" is not supported");
  ASSERT_TRUE(left);
  Json expected = schema;
  expected["properties"]["a/b: c"].erase("format");
  EXPECT_EQ(*left, expected);
}

TEST(LoosenedSchema, KeepsTheNameAndTypeOfAPropertyThatCannotBeHeldTo) {
  const Json schema = Json::parse(
      R"({"properties": {"a": {"type": "string", "pattern": "\\b"}}, "required": ["a"]})");
  const auto left = without_refused(schema, "#/properties/a: \\b is not supported");
  ASSERT_TRUE(left);
  EXPECT_EQ((*left)["properties"]["a"], Json({{"type", "string"}}));
  EXPECT_EQ((*left)["required"], Json::array({"a"}));
  const auto less = without_refused(*left, "#/properties/a: no");
  ASSERT_TRUE(less);
  EXPECT_EQ((*less)["properties"]["a"], Json::object());
  EXPECT_FALSE(without_refused(*less, "#/properties/a: no"));
}

TEST(LoosenedSchema, NeedsAPlaceOfTheSchema) {
  const Json schema = Json::parse(R"({"anyOf": [{"not": {}}]})");
  EXPECT_EQ(*without_refused(schema, "#/anyOf/0/not: no"), Json::parse(R"({"anyOf": [{}]})"));
  for (const char* refusal :
       {"too long", "#/nowhere/a: no", "#/anyOf/1/not: no", "#/anyOf/x: no"}) {
    EXPECT_FALSE(without_refused(schema, refusal)) << refusal;
  }
}

TEST(LoosenedSchema, MayBeTypesAlone) {
  const Json schema = Json::parse(
      R"({"properties": {"a": {"type": "string", "pattern": "b"}, "c": true}, "required": ["a"]})");
  EXPECT_EQ(types_alone(schema), Json::parse(R"({"type": "object", "properties":
      {"a": {"type": "string"}, "c": {}}, "required": ["a"]})"));
}

}  // namespace
}  // namespace moeflux::serve
