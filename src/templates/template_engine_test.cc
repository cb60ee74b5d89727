#include "templates/template_engine.h"

#include <gtest/gtest.h>

#include "templates/engine_test_util.h"

namespace moeflux {
namespace {

using testing::without_engine;

Result<std::string> rendered(std::string_view text, const TemplateLimits& limits = {},
                             const Json& variables = Json::object()) {
  MF_ASSIGN_OR_RETURN(const auto engine, compile_template(text, "a template"));
  return engine->render(variables, {}, limits);
}

void expect_failure(const Result<std::string>& result, ErrorCode code, std::string_view words) {
  ASSERT_FALSE(result.ok()) << *result;
  EXPECT_EQ(result.error().code(), code) << result.error().message();
  EXPECT_NE(result.error().message().find(words), std::string::npos) << result.error().message();
}

TEST(TemplateEngine, NamesTheLineOfASyntaxError) {
  if (without_engine()) return;
  expect_failure(rendered("one\ntwo {{ \n"), ErrorCode::kInvalidArgument, "a template, line ");
  expect_failure(rendered("{% nonsense %}"), ErrorCode::kInvalidArgument, "nonsense");
}

TEST(TemplateEngine, SaysWhatTheTemplateRaised) {
  if (without_engine()) return;
  expect_failure(rendered("{{ raise_exception('no such role') }}"), ErrorCode::kInvalidArgument,
                 "a template refuses: no such role");
}

TEST(TemplateEngine, StopsWhatTakesTooManySteps) {
  if (without_engine()) return;
  expect_failure(rendered("{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}"
                          "{% endfor %}"),
                 ErrorCode::kResourceExhausted, "steps");
  expect_failure(rendered("{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}"),
                 ErrorCode::kInvalidArgument, "recursion");
}

TEST(TemplateEngine, StopsAnOutputThatGrows) {
  if (without_engine()) return;
  expect_failure(rendered("{% for a in range(1000) %}{{ 'x' * 1000 }}{% endfor %}",
                          {.output_bytes_max = 5000}),
                 ErrorCode::kResourceExhausted, "5000 bytes");
  expect_failure(rendered("{{ 'x' * 100000000000 }}"), ErrorCode::kResourceExhausted, "steps");
}

TEST(TemplateEngine, SurvivesValuesNestedVeryDeep) {
  if (without_engine()) return;
  const std::string nested =
      "{% set ns = namespace(x=1) %}{% for i in range(90000) %}{% set ns.x = [ns.x] %}{% endfor %}";
  EXPECT_TRUE(rendered(nested).ok());
  expect_failure(rendered(nested + "{{ ns.x | tojson }}"), ErrorCode::kInvalidArgument, "nested");
  expect_failure(rendered(nested + "{{ ns.x }}"), ErrorCode::kInvalidArgument, "nested");
  expect_failure(rendered(nested + "{{ ns.x | string }}"), ErrorCode::kInvalidArgument, "nested");
}

TEST(TemplateEngine, RefusesWhatWouldChangeItsInput) {
  if (without_engine()) return;
  const Json list = {{"list", Json::array({1})}};
  for (const char* change : {"append(2)", "pop()", "clear()", "extend([1])", "insert(0, 1)"}) {
    const std::string text = std::string("{% set _ = list.") + change + " %}";
    EXPECT_FALSE(rendered(text, {}, list).ok()) << change;
  }
}

TEST(TemplateEngine, TakesNoTemplateAboveOneMebibyte) {
  if (without_engine()) return;
  expect_failure(rendered(std::string((1 << 20) + 1, 'x')), ErrorCode::kInvalidArgument, "1048576");
}

}  // namespace
}  // namespace moeflux
