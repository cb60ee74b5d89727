#include "constraint/constraint.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace moeflux {
namespace {

constexpr TokenId kCall = 256;

/// A token for each byte, two words and a marker.
std::shared_ptr<const TokenTree> tree() {
  static const std::shared_ptr<const TokenTree> kTree = [] {
    std::string bytes;
    for (int byte = 0; byte < 256; ++byte) bytes.push_back(static_cast<char>(byte));
    std::vector<TokenShape> tokens;
    for (size_t i = 0; i < bytes.size(); ++i) {
      tokens.push_back({.bytes = std::string_view(bytes).substr(i, 1)});
    }
    tokens.push_back({.bytes = "<call>", .is_marker = true});
    tokens.push_back({.bytes = "\":1"});
    tokens.push_back({.bytes = "{\"a"});
    Result<std::shared_ptr<const TokenTree>> made = TokenTree::make(tokens);
    EXPECT_TRUE(made.ok());
    return made.ok() ? *made : nullptr;
  }();
  return kTree;
}

Result<std::shared_ptr<const Constraint>> compile(ConstraintKind kind, std::string text,
                                                  const ConstraintLimits& limits = {}) {
  return Constraint::compile(tree(), {.kind = kind, .text = std::move(text), .source = "field"},
                             limits);
}

std::unique_ptr<Matcher> start(ConstraintKind kind, std::string text) {
  const auto constraint = compile(kind, std::move(text));
  EXPECT_TRUE(constraint.ok()) << (constraint.ok() ? "" : constraint.error().message());
  return std::move((*constraint)->start()).value();
}

std::string refusal(ConstraintKind kind, std::string text, const ConstraintLimits& limits = {}) {
  const auto constraint = compile(kind, std::move(text), limits);
  EXPECT_FALSE(constraint.ok());
  return constraint.ok() ? "" : constraint.error().to_string();
}

void consume(Matcher& matcher, std::string_view text) {
  for (const char c : text) {
    const Status status = matcher.consume(static_cast<unsigned char>(c));
    ASSERT_TRUE(status.ok()) << status.error().message();
  }
}

class ConstraintTest : public ::testing::Test {};

TEST_F(ConstraintTest, MasksAreOfTokensWholeOrCut) {
  if (!has_constraints()) return;
  const auto matcher = start(ConstraintKind::kJsonSchema,
                             R"({"type": "object", "properties": {"a": {"type": "integer"}},
                                 "required": ["a"], "additionalProperties": false})");
  Matcher::Next next = matcher->next().value();
  EXPECT_TRUE(next.mask.allows('{'));
  EXPECT_TRUE(next.mask.allows(258));  // {"a
  EXPECT_FALSE(next.mask.allows(257));
  EXPECT_FALSE(next.mask.allows('['));
  EXPECT_FALSE(next.mask.allows(kCall));
  EXPECT_FALSE(next.mask.allows(100'000));
  EXPECT_FALSE(next.may_end);
  ASSERT_TRUE(matcher->consume(258).ok());
  ASSERT_TRUE(matcher->consume(257).ok());
  consume(*matcher, "2");
  EXPECT_FALSE(matcher->next()->may_end);
  consume(*matcher, "}");
  next = matcher->next().value();
  EXPECT_TRUE(next.may_end);
  EXPECT_TRUE(next.must_end);
  EXPECT_FALSE(next.mask.allows('}'));
}

TEST_F(ConstraintTest, ATokenThatCannotStandChangesNothing) {
  if (!has_constraints()) return;
  const auto matcher = start(ConstraintKind::kRegex, "[0-9]+");
  consume(*matcher, "1");
  const Status status = matcher->consume('x');
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::kInvalidArgument);
  consume(*matcher, "2");
  EXPECT_TRUE(matcher->next()->may_end);
  EXPECT_FALSE(matcher->next()->must_end);
}

TEST_F(ConstraintTest, RollbackIsAsIfTheTokensHadNotCome) {
  if (!has_constraints()) return;
  const auto matcher = start(ConstraintKind::kRegex, "a(bc)*d");
  consume(*matcher, "abcb");
  ASSERT_TRUE(matcher->rollback(3).ok());
  const auto fresh = start(ConstraintKind::kRegex, "a(bc)*d");
  consume(*fresh, "a");
  for (TokenId token = 0; token < 259; ++token) {
    EXPECT_EQ(matcher->next()->mask.allows(token), fresh->next()->mask.allows(token)) << token;
  }
  consume(*matcher, "d");
  EXPECT_TRUE(matcher->next()->must_end);
  ASSERT_TRUE(matcher->rollback(1).ok());
  EXPECT_TRUE(matcher->next()->mask.allows('b'));
}

TEST_F(ConstraintTest, TextsOfOneConstraintAreTheirOwn) {
  if (!has_constraints()) return;
  const auto constraint = compile(ConstraintKind::kRegex, "(ab)+");
  const auto first = (*constraint)->start().value();
  const auto second = (*constraint)->start().value();
  consume(*first, "a");
  EXPECT_TRUE(second->next()->mask.allows('a'));
  EXPECT_TRUE(first->next()->mask.allows('b'));
}

TEST_F(ConstraintTest, ObjectsOfAnyKindAreJson) {
  if (!has_constraints()) return;
  const auto matcher = start(ConstraintKind::kJsonObject, "");
  consume(*matcher, R"({"k": [1, null, {"x": "y"}]})");
  EXPECT_TRUE(matcher->next()->must_end);
}

TEST_F(ConstraintTest, RefusalsNameSourceAndPlace) {
  if (!has_constraints()) return;
  EXPECT_EQ(refusal(ConstraintKind::kJsonSchema, R"({"properties": {"a": {"not": {}}}})"),
            "unsupported: field#/properties/a/not: the keyword not is not supported");
  EXPECT_EQ(refusal(ConstraintKind::kJsonSchema, R"({"$ref": "#"})"),
            "invalid argument: field: no document is valid: each has to be, or contain, another of "
            "this schema");
  EXPECT_EQ(refusal(ConstraintKind::kRegex, "("),
            "invalid argument: field: regular expression: unclosed group");
  EXPECT_NE(refusal(ConstraintKind::kLark, "root ::= \"a\"").find("GBNF"), std::string::npos);
  const OutputConstraint parts{
      .kind = ConstraintKind::kParts,
      .text = R"([{"name": "a", "lark": "start: @b"}, {"name": "b", "schema": {"if": true}}])",
      .source = "field",
      .part_sources = {{"b", "tools[3]"}}};
  EXPECT_EQ(Constraint::compile(tree(), parts).error().message(),
            "tools[3]#/if: the keyword if is not supported");
}

TEST_F(ConstraintTest, CompilingHasLimits) {
  if (!has_constraints()) return;
  EXPECT_NE(refusal(ConstraintKind::kRegex, std::string(100, 'a'), {.text_bytes_max = 99})
                .find("100 bytes, at most 99"),
            std::string::npos);
}

/// `link` of 0 names `link` of 1, and so on.
template <typename Link>
std::string chain(int count, const Link& link, const std::string& end) {
  std::string text;
  for (int i = 0; i < count; ++i) text += link(std::to_string(i), std::to_string(i + 1));
  return text + end;
}

TEST_F(ConstraintTest, LongChainsAreRefusedAsTooDeep) {
  if (!has_constraints()) return;
  const std::string references = chain(
      20'000,
      [](const std::string& from, const std::string& to) {
        return "\"" + from + "\": {\"$ref\": \"#/$defs/" + to + "\"}, ";
      },
      "\"20000\": {}");
  const std::string rules = chain(
      5000,
      [](const std::string& from, const std::string& to) {
        return "r" + from + ": r" + to + " \"a\"\n";
      },
      "r5000: \"a\"\n");
  const std::string terminals = chain(
      5000,
      [](const std::string& from, const std::string& to) {
        return "T" + from + ": T" + to + " \"a\"\n";
      },
      "T5000: \"a\"\n");
  for (const auto& [kind, text] : std::vector<std::pair<ConstraintKind, std::string>>{
           {ConstraintKind::kJsonSchema,
            "{\"$ref\": \"#/$defs/0\", \"$defs\": {" + references + "}}"},
           {ConstraintKind::kLark, "start: r0\n" + rules},
           {ConstraintKind::kLark, "start: T0\n" + terminals}}) {
    const std::string said = refusal(kind, text);
    EXPECT_NE(said.find("resource exhausted: field: "), std::string::npos) << said;
    EXPECT_NE(said.find(" deep, "), std::string::npos) << said;
  }
}

TEST_F(ConstraintTest, IntersectionsAndDivisorsThatWouldNotEndAreRefused) {
  if (!has_constraints()) return;
  std::string both;
  std::string patterns;
  for (int i = 1; i < 40; ++i) {
    const std::string count = "[a-z]{" + std::to_string(i) + "}";
    both += (i > 1 ? " & /.*" : "/.*") + count + ".*/";
    patterns += (i > 1 ? ", {\"pattern\": \"" : "{\"pattern\": \"") + count + "\"}";
  }
  for (const auto& [kind, text] : std::vector<std::pair<ConstraintKind, std::string>>{
           {ConstraintKind::kLark, "start: A\nA: " + both},
           {ConstraintKind::kJsonSchema, "{\"allOf\": [" + patterns + "]}"},
           {ConstraintKind::kJsonSchema, R"({"type": "integer", "multipleOf": 2147483647})"}}) {
    const std::string said = refusal(kind, text);
    EXPECT_NE(said.find("resource exhausted: field"), std::string::npos) << said;
  }
}

TEST_F(ConstraintTest, ATextThatBecomesTooComplexIsNotToBeAskedForAgain) {
  if (!has_constraints()) return;
  const auto matcher = start(ConstraintKind::kLark,
                             "start: A\nA: ~/(?s:.*)a(?s:.){200}/ & ~/(?s:.*)b(?s:.){200}/ & "
                             "/(?s:.*)c(?s:.){100}/");
  for (int i = 0; i < 200; ++i) {
    const Result<Matcher::Next> next = matcher->next();
    if (next.ok()) {
      consume(*matcher, std::string_view("abc").substr(static_cast<size_t>(i % 3), 1));
      continue;
    }
    EXPECT_EQ(next.error().code(), ErrorCode::kUnsupported);
    return;
  }
  FAIL() << "200 tokens were taken";
}

TEST_F(ConstraintTest, AMatcherThatIsStoppedFails) {
  if (!has_constraints()) return;
  const auto constraint = compile(ConstraintKind::kRegex, "[ab]*");
  const auto stopped = (*constraint)->start().value();
  const auto other = (*constraint)->start().value();
  stopped->stop();
  EXPECT_EQ(stopped->next().error().code(), ErrorCode::kUnsupported);
  EXPECT_TRUE(other->next().ok());
}

TEST(ConstraintWithoutRust, IsRefused) {
  if (has_constraints()) return;
  const auto refused = Constraint::compile(nullptr, {.kind = ConstraintKind::kJsonObject});
  EXPECT_EQ(refused.error().code(), ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace moeflux
