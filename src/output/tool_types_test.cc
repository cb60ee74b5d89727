#include "output/tool_types.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "output/value_reader.h"

namespace moeflux {
namespace {

TEST(TypedJson, ReadsTheFirstTypeThatFitsAndElseAString) {
  EXPECT_EQ(typed_json("12", kTypeString), R"("12")");
  EXPECT_EQ(typed_json(" 12\n", kTypeInteger), "12");
  EXPECT_EQ(typed_json("1.50", kTypeInteger), R"("1.50")");
  EXPECT_EQ(typed_json("1.50", kTypeNumber), "1.50");
  EXPECT_EQ(typed_json("True", kTypeBoolean), "true");
  EXPECT_EQ(typed_json("null", kTypeString | kTypeNull), "null");
  EXPECT_EQ(typed_json("nil", kTypeString | kTypeNull), R"("nil")");
  EXPECT_EQ(typed_json("{'a': [1, None]}", kTypeObject), R"({"a":[1,null]})");
  EXPECT_EQ(typed_json("{\"a\": 1", kTypeObject), R"("{\"a\": 1")");
  EXPECT_EQ(typed_json("\"x\"", kTypeAny), R"("\"x\"")");
  EXPECT_EQ(json_or_string("\"x\""), R"("x")");
  EXPECT_EQ(typed_json("", kTypeObject), R"("")");
}

TEST(ToolTypes, AreReadFromSchemasOfEveryShape) {
  const Json tools = Json::parse(R"([
    {"type": "function", "function": {"name": "f", "parameters": {"properties": {
      "s": {"type": "string"}, "either": {"type": ["integer", "null"]},
      "any_of": {"anyOf": [{"type": "number"}, {"type": "string"}]},
      "of_values": {"enum": ["a", 1]}, "free": {}, "far": {"$ref": "#/$defs/x"},
      "odd": {"type": 7}, "bad": 3}}}},
    {"name": "g", "parameters": {"properties": {"b": {"type": "boolean", "nullable": true}}}},
    {"name": 4}, 5, {"function": null}, {"name": "h", "parameters": []}])");
  const ToolTypes types = ToolTypes::of_tools(tools);
  EXPECT_EQ(types.types_of("f", "s"), TypeSet{kTypeString});
  EXPECT_EQ(types.types_of("f", "either"), TypeSet{kTypeInteger | kTypeNull});
  EXPECT_EQ(types.types_of("f", "any_of"), TypeSet{kTypeNumber | kTypeString});
  EXPECT_EQ(types.types_of("f", "of_values"), TypeSet{kTypeString | kTypeInteger});
  EXPECT_EQ(types.types_of("f", "free"), kTypeAny);
  EXPECT_EQ(types.types_of("f", "far"), kTypeAny);
  EXPECT_EQ(types.types_of("f", "odd"), kTypeAny);
  EXPECT_EQ(types.types_of("g", "b"), TypeSet{kTypeBoolean | kTypeNull});
  EXPECT_EQ(types.types_of("f", "none"), std::nullopt);
  EXPECT_EQ(types.types_of("none", "s"), std::nullopt);
  EXPECT_EQ(ToolTypes::of_tools(Json()).types_of("f", "s"), std::nullopt);
}

/// The JSON of a whole value, with a mark where it did not end well.
std::string read(ValueDialect dialect, std::string_view text) {
  ValueReader reader;
  reader.start(dialect);
  std::string json;
  for (const char c : text) {
    switch (reader.push(c, &json)) {
      case ValueReader::Outcome::kMore:
        break;
      case ValueReader::Outcome::kDone:
        return json;
      case ValueReader::Outcome::kDoneBefore:
        return json + "|";
      case ValueReader::Outcome::kBad:
        return json + "!";
    }
  }
  return reader.finish(&json) ? json : json + "...";
}

TEST(ValueReader, KeepsJsonAsItIsAndRepairsStrings) {
  EXPECT_EQ(read(ValueDialect::kJson, R"({ "a" : [1.0, -2e5, {}] })"),
            R"({ "a" : [1.0, -2e5, {}] })");
  EXPECT_EQ(read(ValueDialect::kJson, "[\"a\nb\"]"), R"(["a\nb"])");
  EXPECT_EQ(read(ValueDialect::kJson, R"(["\d\'\u00e4\u12"])"), R"(["\\d'\u00e4\\u12"])");
  EXPECT_EQ(read(ValueDialect::kJson, R"(["\ud83d\ude42","\uD83Dx\ude42\ud83d\n\ud83d"])"),
            R"(["\ud83d\ude42","\ufffdx\ufffd\ufffd\n\ufffd"])");
  EXPECT_EQ(read(ValueDialect::kJson, R"(["\ud83d\ud83d\ude42\ud83d\u0041\ud83d\uz"])"),
            R"(["\ufffd\ud83d\ude42\ufffd\u0041\ufffd\\uz"])");
  EXPECT_EQ(read(ValueDialect::kJson, "[1,]"), "[1,!");
  EXPECT_EQ(read(ValueDialect::kJson, "{\"a\":01}"), "{\"a\":!");
  EXPECT_EQ(read(ValueDialect::kJson, "True"), "...");
  EXPECT_EQ(read(ValueDialect::kJson, std::string(200, '[')), std::string(128, '[') + "!");
}

TEST(ValueReader, ReadsPythonAndCompactValues) {
  EXPECT_EQ(read(ValueDialect::kPython, R"({'a': (1, None,), "b": 'it\'s "x"'})"),
            R"({"a":[1,null],"b":"it's \"x\""})");
  EXPECT_EQ(read(ValueDialect::kPython, "'\\x41\\q'"), R"("\u0041\\q")");
  EXPECT_EQ(read(ValueDialect::kPython, "True)"), "true|");
  EXPECT_EQ(read(ValueDialect::kCompact, R"({a b:<|"|>x "<|y<|"|>,n:[1,true],w:two words})"),
            R"({"a b":"x \"<|y","n":[1,true],"w":"two words"})");
}

}  // namespace
}  // namespace moeflux
