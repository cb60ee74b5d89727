// Templates of ours over ten conversations, compared with what transformers rendered
// (tools/oracles/chat_template_golden.py).
#include <gtest/gtest.h>

#include "base/format.h"
#include "io/file.h"
#include "templates/engine_test_util.h"
#include "templates/template_engine.h"

namespace moeflux {
namespace {

constexpr TemplateTime kDay = {.year = 2027,
                               .month = 1,
                               .day = 3,
                               .hour = 4,
                               .minute = 5,
                               .second = 6,
                               .weekday = 0,
                               .day_of_year = 2};

std::string text_of(const std::string& name) {
  auto text = read_text_file(formatted("{}/tests/golden/templates/{}", MOEFLUX_SOURCE_DIR, name),
                             uint64_t{1} << 24);
  EXPECT_TRUE(text.ok());
  return text.ok() ? *text : std::string();
}

TEST(TemplateGolden, EveryRenderIsTransformersOwn) {
  if (testing::without_engine()) return;
  const auto golden = parse_json(text_of("golden.json"), "golden.json");
  ASSERT_TRUE(golden.ok());
  size_t compared = 0;
  for (const Json& entry : (*golden)["cases"]) {
    const auto name = entry["template"].get<std::string>();
    SCOPED_TRACE(name + ", " + entry["conversation"].get<std::string>());
    const auto engine = compile_template(text_of(name + ".jinja"), name);
    if (!engine.ok()) {
      EXPECT_TRUE(entry.contains("error")) << engine.error().message();
      continue;
    }
    const Json& context = (*golden)["contexts"][entry["conversation"].get<std::string>()];
    const auto rendered = (*engine)->render(context, kDay, {});
    if (entry.contains("error")) {
      ASSERT_FALSE(rendered.ok()) << *rendered;
      if (entry["error"] == "TemplateError") {
        EXPECT_NE(rendered.error().message().find(entry["message"].get<std::string>()),
                  std::string::npos)
            << rendered.error().message();
      }
      continue;
    }
    ASSERT_TRUE(rendered.ok()) << rendered.error().message();
    EXPECT_EQ(*rendered, entry["rendered"].get<std::string>());
    ++compared;
  }
  EXPECT_GE(compared, 100u);
}

}  // namespace
}  // namespace moeflux
