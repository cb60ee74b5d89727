// Keys of config.json that nobody knows: one line of warning from every command that evaluates, or
// an error where they are known to change what is computed.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/json.h"
#include "tests/integration/moeflux_program.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {
namespace {

using Words = std::vector<std::string>;

class UnknownKeys : public ::testing::Test {
 protected:
  /// The embedded model with more in its config.
  void add(const std::string& key, const Json& value) {
    auto config = parse_json(read_bytes(fable() + "/config.json"), "config.json");
    ASSERT_TRUE(config.ok());
    for (const auto& entry : std::filesystem::directory_iterator(fable())) {
      const std::filesystem::path link = folder_ / entry.path().filename().string();
      if (!std::filesystem::exists(link)) std::filesystem::create_symlink(entry.path(), link);
    }
    std::filesystem::remove(folder_ / "config.json");
    added_[key] = value;
    config->update(added_);
    write_bytes(folder_ / "config.json", config->dump());
  }
  std::vector<Words> commands() const {
    const std::string model = folder_.path();
    return {{"run", "-q", "-m", model, "-n", "1", "Once"},
            {"bench", "-m", model, "-p", "4", "-n", "0", "-r", "1"},
            {"logits", "-m", model, "--tokens", "1,2", "-o", folder_ / "logits"},
            {"perplexity", "-m", model, "-f", "-"}};
  }

  TempFolder folder_;
  Json added_ = Json::object();
};

TEST_F(UnknownKeys, AreNamedInOneLine) {
  add("frobnication_rate", 3);
  add("quux_enabled", false);
  add("chatty\x1b[31m", 1);
  for (const Words& command : commands()) {
    const ProgramOutput output = moeflux(command, {.standard_input = "Once upon a time"});
    EXPECT_EQ(output.status, 0) << output.err;
    const auto lines = output.err_lines();
    ASSERT_EQ(lines.size(), 1u) << command[0] << ": " << output.err;
    EXPECT_EQ(lines[0].rfind("warning: " + folder_.path(), 0), 0u) << lines[0];
    EXPECT_TRUE(contains(lines[0], "frobnication_rate, quux_enabled, chatty?[31m")) << lines[0];
  }
}

TEST_F(UnknownKeys, ThatChangeTheComputationAreRefused) {
  add("router_logit_softcapping", 30.0);
  for (const Words& command : commands()) {
    const ProgramOutput output = moeflux(command, {.standard_input = "Once upon a time"});
    EXPECT_EQ(output.status, 1);
    const auto lines = output.err_lines();
    ASSERT_EQ(lines.size(), 1u) << command[0] << ": " << output.err;
    EXPECT_TRUE(contains(lines[0], "router_logit_softcapping is 30.0")) << lines[0];
  }
}

TEST_F(UnknownKeys, WithValuesThatChangeNothingAreNotWorthAWord) {
  add("router_logit_softcapping", nullptr);
  add("residual_scale", 1.0);
  for (const Words& command : commands()) {
    if (command[0] == "bench") continue;  // takes a second to measure the memory
    expect_success(moeflux(command, {.standard_input = "Once upon a time"}));
  }
}

}  // namespace
}  // namespace moeflux::testing
