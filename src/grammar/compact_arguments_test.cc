#include "grammar/compact_arguments.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace moeflux {
namespace {

using testing::expect_error;

// A token for each byte, spelled as GPT-2's alphabet has them.
const Tokenizer& tokenizer() {
  static const Tokenizer kTokenizer = [] {
    Json vocabulary = Json::object();
    int next = 256;
    for (int byte = 0; byte < 256; ++byte) {
      const bool is_plain = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
      const int code = is_plain ? byte : next++;
      std::string spelled(1, static_cast<char>(code));
      if (code >= 0x80) {
        spelled = {static_cast<char>(0xc0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3f))};
      }
      vocabulary[spelled] = byte;
    }
    const Json file = {
        {"added_tokens", Json::array()},
        {"normalizer", nullptr},
        {"pre_tokenizer",
         {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}},
        {"decoder", {{"type", "ByteLevel"}}},
        {"post_processor", nullptr},
        {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", Json::array()}}}};
    return std::move(Tokenizer::parse(file.dump(), "test")).value();
  }();
  return kTokenizer;
}

Result<std::string> rule_of(Json parameters) {
  LarkText text(tokenizer());
  return compact_argument_rule(
      {.name = "f", .parameters = std::move(parameters), .source = "tools[0]"}, text);
}

/// Definitions, each an array of the next.
Json chain(int count) {
  Json definitions = Json::object();
  for (int i = 0; i < count; ++i) {
    definitions[std::to_string(i)] = {{"type", "array"},
                                      {"items", {{"$ref", "#/$defs/" + std::to_string(i + 1)}}}};
  }
  definitions[std::to_string(count)] = {{"type", "null"}};
  return {{"type", "object"},
          {"properties", {{"a", {{"$ref", "#/$defs/0"}}}}},
          {"$defs", std::move(definitions)}};
}

TEST(CompactArguments, ChainsOfReferencesAreTakenUpToADepth) {
  EXPECT_TRUE(rule_of(chain(200)).ok());
  for (const int count : {600, 30'000}) {
    expect_error(rule_of(chain(count)), ErrorCode::kResourceExhausted,
                 {"tools[0]#", "nest deeper than 500"});
  }
}

TEST(CompactArguments, WhatOneSchemaMakesManyTimesHasABound) {
  Json words = Json::array();
  for (int i = 0; i < 2000; ++i) words.push_back("word " + std::to_string(i));
  Json properties = Json::object();
  for (int i = 0; i < 100; ++i) properties["p" + std::to_string(i)] = {{"enum", words}};
  expect_error(rule_of({{"type", "object"}, {"properties", properties}}),
               ErrorCode::kResourceExhausted, {"tools[0]: the grammar of its calls has"});
}

}  // namespace
}  // namespace moeflux
