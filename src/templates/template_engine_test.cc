#include "templates/template_engine.h"

#include <gtest/gtest.h>

#include "base/format.h"
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

TEST(TemplateEngine, SplitsAtNamedArgumentsAndNotAtNothing) {
  if (without_engine()) return;
  const auto text = rendered(
      "{{ 'a b  c'.split(maxsplit=1) }}{{ 'a,b,c'.split(sep=',', maxsplit=1) }}"
      "{{ 'a,b,c'.split(',', maxsplit=-1) }}{{ ' a  b c '.rsplit(maxsplit=1) }}");
  ASSERT_TRUE(text.ok()) << text.error().message();
  EXPECT_EQ(*text, "['a', 'b  c']['a', 'b,c']['a', 'b', 'c'][' a  b', 'c']");
  for (const char* call : {"split", "rsplit", "partition", "rpartition"}) {
    expect_failure(rendered(formatted("{{{{ 'aaa'.{}('') }}}}", call)), ErrorCode::kInvalidArgument,
                   "empty separator");
  }
  expect_failure(rendered("{{ 'a'.split(by=',') }}"), ErrorCode::kInvalidArgument, "by");
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
  expect_failure(rendered("{{ 'x' * 100000000000 }}"), ErrorCode::kResourceExhausted, "too long");
}

TEST(TemplateEngine, SurvivesValuesNestedVeryDeep) {
  if (without_engine()) return;
  const std::string nested =
      "{% set ns = namespace(x=1) %}{% for i in range(90000) %}{% set ns.x = [ns.x] %}{% endfor %}";
  expect_failure(rendered(nested), ErrorCode::kResourceExhausted, "nested deeper than 200");
}

TEST(TemplateEngine, RefusesAChainThatWouldOverrunTheStack) {
  if (without_engine()) return;
  for (const auto& [first, step] :
       {std::pair{"1", "+1"}, std::pair{"1", " and 1"}, std::pair{"n", ".a"}, std::pair{"n", "|d"},
        std::pair{"n", " if n"}, std::pair{"n", "[0]"}, std::pair{"", "not "}}) {
    std::string text = std::string("one\n{{ ") + first;
    for (int i = 0; i < 25'000; ++i) text += step;
    expect_failure(rendered(text + "n }}"), ErrorCode::kInvalidArgument,
                   "a template, line 2: an expression has more than 400 steps");
  }
}

TEST(TemplateEngine, StopsValuesThatDouble) {
  if (without_engine()) return;
  const std::string begin =
      "{% set a = namespace(x=[1]) %}{% set b = namespace(x=[1]) %}{% for i in range(60) %}";
  expect_failure(rendered(begin + "{% set a.x = [a.x, a.x] %}{% set b.x = [b.x, b.x] %}{% endfor %}"
                                  "{{ a.x == b.x }}"),
                 ErrorCode::kResourceExhausted, "1000000 elements");
  expect_failure(rendered(begin + "{% set a.x = a.x + a.x %}{% endfor %}"),
                 ErrorCode::kResourceExhausted, "1000000 elements");
  expect_failure(rendered("{{ [1] * 100000000 == [1] * 100000000 }}"),
                 ErrorCode::kResourceExhausted, "a template");
}

TEST(TemplateEngine, LooksAtTheClockWhereNothingIsWritten) {
  if (without_engine()) return;
  // A letter of a long text is found by counting, for one step of fuel.
  expect_failure(rendered("{% set s = '\u00fc' * 2000000 %}{% for i in range(90000) %}"
                          "{% set t = s[1999999] %}{% endfor %}",
                          {.milliseconds_max = 100}),
                 ErrorCode::kResourceExhausted, "too long");
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
