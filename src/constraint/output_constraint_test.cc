#include "constraint/output_constraint.h"

#include <gtest/gtest.h>

namespace moeflux {
namespace {

OutputConstraint lark(std::string text) {
  return {.kind = ConstraintKind::kLark, .text = std::move(text), .source = "grammar"};
}

TEST(CheckDialect, RefusesGbnfByName) {
  for (const char* text : {"root ::= \"yes\" | \"no\"", "# numbers\n  root-rule::= [0-9]+\n"}) {
    const Status status = check_dialect(lark(text));
    ASSERT_FALSE(status.ok()) << text;
    EXPECT_EQ(status.error().code(), ErrorCode::kUnsupported);
    EXPECT_NE(status.error().message().find("grammar: the grammar is GBNF"), std::string::npos);
  }
}

TEST(CheckDialect, LetsLarkPass) {
  for (const char* text : {"start: \"a ::= b\"", "start: /[a-z]+/\n", "", "rule::x : \"a\""}) {
    EXPECT_TRUE(check_dialect(lark(text)).ok()) << text;
  }
  EXPECT_TRUE(check_dialect({.kind = ConstraintKind::kRegex, .text = "a ::= b"}).ok());
}

}  // namespace
}  // namespace moeflux
