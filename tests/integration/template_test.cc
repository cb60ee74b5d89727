// moeflux template writes the prompt that a model's template makes, and nothing else.
#include <gtest/gtest.h>

#include "templates/engine_test_util.h"
#include "tests/integration/moeflux_program.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {
namespace {

constexpr const char* kTemplate =
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}[{{ name | default('assistant') }}]{% endif %}"
    "{% if tools %}{{ tools | tojson }}{% endif %}{{ eos_token }}";

std::vector<std::string> command(const TempFolder& folder, const std::string& messages) {
  write_bytes(folder / "messages.json", messages);
  return {"template", "-m", folder.path(), "--messages", folder / "messages.json"};
}

TEST(Template, APromptIsWrittenExactly) {
  if (without_engine()) return;
  const TempFolder folder;
  write_bytes(folder / "config.json", "{}");
  write_bytes(folder / "chat_template.jinja", kTemplate);
  write_bytes(folder / "tokenizer_config.json",
              R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>"})");
  ProgramOutput out = moeflux(command(folder, R"([{"role": "user", "content": "a <&> \u00e9"}])"));
  expect_success(out);
  EXPECT_EQ(out.out, "<s>[user]a <&> \xC3\xA9</s>");
  out = moeflux(command(folder, R"({"messages": [{"role": "user", "content": "b"}],
      "tools": [{"type": "function", "function": {"name": "f"}}], "add_generation_prompt": true,
      "chat_template_kwargs": {"name": "model"}, "bos_token": "^", "eos_token": "$"})"));
  expect_success(out);
  EXPECT_EQ(out.out, "^[user]b[model][{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]$");
  auto other = command(folder, R"([{"role": "user", "content": "c"}])");
  write_bytes(folder / "other.jinja", "{{ messages[0].content }}\n");
  other.insert(other.end(), {"--template", folder / "other.jinja"});
  EXPECT_EQ(moeflux(other).out, "c");
}

TEST(Template, ALastMessageIsContinued) {
  if (without_engine()) return;
  const TempFolder folder;
  write_bytes(folder / "config.json", "{}");
  write_bytes(folder / "chat_template.jinja",
              "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
              "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
  const auto prompt = [&](const std::string& more) {
    return moeflux(command(folder, R"({"messages": [{"role": "user", "content": "Say the days."},
        {"role": "assistant", "content": "Monday, Tues"}])" +
                                       more + "}"));
  };
  const std::string begin =
      "<|im_start|>user\nSay the days.<|im_end|>\n<|im_start|>assistant\nMonday, Tues";
  const ProgramOutput continued =
      prompt(R"(, "add_generation_prompt": false, "continue_final_message": true)");
  expect_success(continued);
  EXPECT_EQ(continued.out, begin);
  EXPECT_EQ(prompt("").out, begin);  // as the server has it
  EXPECT_EQ(prompt(R"(, "continue_final_message": false)").out, begin + "<|im_end|>\n");
  EXPECT_EQ(prompt(R"(, "add_generation_prompt": true)").out,
            begin + "<|im_end|>\n<|im_start|>assistant\n");
  const ProgramOutput both =
      prompt(R"(, "add_generation_prompt": true, "continue_final_message": true)");
  EXPECT_EQ(both.status, 1);
  EXPECT_TRUE(contains(both.err, "continue_final_message")) << both.err;
}

TEST(Template, WhatIsWrongIsNamed) {
  const TempFolder folder;
  write_bytes(folder / "config.json", "{}");
  const auto expect_failure = [&](const std::string& messages, const std::string& words) {
    const ProgramOutput out = moeflux(command(folder, messages));
    EXPECT_EQ(out.status, 1);
    EXPECT_EQ(out.out, "");
    EXPECT_TRUE(contains(out.err, words)) << out.err;
  };
  expect_failure("[", "messages.json: not valid JSON");
  expect_failure("{}", "has no messages");
  expect_failure(R"({"messages": [], "temperature": 1})", "key temperature");
  expect_failure(R"({"messages": [], "tools": 5})", "tools is 5");
  expect_failure("[]", "has no chat template");
  write_bytes(folder / "chat_template.jinja", "{{ raise_exception('never') }}");
  if (has_template_engine()) {
    expect_failure("[]", "refuses: never");
  } else {
    expect_failure("[]", "built without Rust");
  }
}

}  // namespace
}  // namespace moeflux::testing
