#include "cli/settings.h"

#include <gtest/gtest.h>

#include <map>

#include "cli/config_report.h"
#include "tests/support/expect_error.h"
#include "tests/support/golden_file.h"
#include "tests/support/temp_folder.h"

namespace moeflux {
namespace {

using testing::expect_error;

/// A command, and the variables and the file that set its options.
class SettingsTest : public ::testing::Test {
 protected:
  SettingsTest() {
    command_.add("-t,--threads", threads_, "");
    command_.add("--ctx-size", context_, "");
    command_.add("-q,--quiet", quiet_, "");
    command_.add("--api-key", keys_, "").secret();
    command_.add("prompt,-p,--prompt", prompt_, "").command_line_only();
    other_.add("--port", port_, "");
  }

  Status give(const std::string& text) {
    testing::write_bytes(folder_ / "config.toml", text);
    MF_ASSIGN_OR_RETURN(const ConfigFile file, read_config_file(folder_ / "config.toml", read_));
    const std::array<const CommandOptions*, 2> commands = {&command_, &other_};
    MF_RETURN_IF_ERROR(check_config(file, commands));
    give_settings(file, read_, command_);
    for (const Option& option : command_.options()) MF_RETURN_IF_ERROR(option.apply());
    return {};
  }

  const testing::TempFolder folder_;
  std::map<std::string, std::string> variables_;
  ReadVariable read_ = [this](const std::string& name) {
    const auto found = variables_.find(name);
    return found == variables_.end() ? nullptr : found->second.c_str();
  };
  int threads_ = 0;
  int64_t context_ = 0;
  int port_ = 0;
  bool quiet_ = false;
  std::vector<std::string> keys_;
  std::string prompt_;
  CommandOptions command_{"run", ""};
  CommandOptions other_{"serve", ""};
};

TEST_F(SettingsTest, APresetHasOptionsOfServe) {
  EXPECT_TRUE(give("[model.small]\nport = 1\n[model.'org/name: x']\nport = 2\n").ok());
  expect_error(give("[model.small]\nthreads = 1\n"), ErrorCode::kInvalidArgument,
               {"config.toml:2", "no option 'threads'"});
  EXPECT_FALSE(give("[other.small]\nport = 1\n").ok());
  EXPECT_EQ(preset_name("model.org/name: x"), "org/name: x");
  EXPECT_EQ(preset_name("serve"), std::nullopt);
}

TEST(ConfigReport, ANegativeNumberIsOne) {
  int limit = -1;
  std::string mode = "auto";
  CommandOptions command("x", "");
  command.add("--limit", limit, "");
  command.add("--mode", mode, "").default_text("-");
  EXPECT_EQ(config_report(command, true), "[x]\n# limit = -1\n# mode = \"-\"\n");
}

TEST_F(SettingsTest, AVariableThatSetsNothingIsNamedWithTheNearest) {
  const std::array<const CommandOptions*, 2> commands = {&command_, &other_};
  const std::vector<std::string> names = {
      "HOME",         "MOEFLUX_CTX_SIZE", "MOEFLUX_CTXSIZE",  "MOEFLUX_TEST_X", "MOEFLUX_PROMPT",
      "MOEFLUX_PORT", "MOEFLUX_threads",  "MOEFLUX_WHATEVER", "MOEFLUXCTX_SIZE"};
  EXPECT_EQ(unknown_variables(names, commands),
            (std::vector<std::string>{
                "the variable MOEFLUX_CTXSIZE sets no option; did you mean MOEFLUX_CTX_SIZE?",
                "the variable MOEFLUX_PROMPT sets no option",
                "the variable MOEFLUX_threads sets no option; did you mean MOEFLUX_THREADS?",
                "the variable MOEFLUX_WHATEVER sets no option"}));
}

TEST_F(SettingsTest, AVariableCountsMoreThanAFileAndASectionMoreThanTheTop) {
  variables_["MOEFLUX_CTX_SIZE"] = "300";
  const Status given = give(
      "threads = 1\nctx-size = 100\nquiet = true  # no more\n[run]\nthreads = 2\n"
      "api-key = [\"one\", 'two']\n[serve]\nport = 80\n");
  ASSERT_TRUE(given.ok()) << given.error().message();
  EXPECT_EQ(threads_, 2);
  EXPECT_EQ(context_, 300);
  EXPECT_TRUE(quiet_);
  EXPECT_EQ(keys_, (std::vector<std::string>{"one", "two"}));
}

TEST_F(SettingsTest, ACommandLineCountsMost) {
  command_.find("--ctx-size")->give("7", OptionOrigin::kCommandLine);
  variables_["MOEFLUX_CTX_SIZE"] = "300";
  ASSERT_TRUE(give("ctx_size = 100\n").ok());
  EXPECT_EQ(context_, 7);
}

TEST_F(SettingsTest, AnEmptyVariableSetsNothing) {
  variables_["MOEFLUX_CTX_SIZE"] = "";
  ASSERT_TRUE(give("ctx-size = 100\n").ok());
  EXPECT_EQ(context_, 100);
}

TEST_F(SettingsTest, MistakesNameTheFileAndTheLineOrTheVariable) {
  expect_error(give("thread = 1\n"), ErrorCode::kInvalidArgument,
               {"config.toml:1: no option 'thread'", "did you mean threads?"});
  expect_error(give("\n[rum]\nthreads = 1\n"), ErrorCode::kInvalidArgument,
               {"config.toml:3: no command [rum]", "did you mean run?"});
  expect_error(give("prompt = \"x\"\n"), ErrorCode::kInvalidArgument, {"no option 'prompt'"});
  expect_error(give("threads = \"many\"\n"), ErrorCode::kInvalidArgument,
               {"config.toml:1: threads: 'many' is not a whole number"});
  variables_["MOEFLUX_THREADS"] = "lots";
  expect_error(give(""), ErrorCode::kInvalidArgument, {"MOEFLUX_THREADS: 'lots'"});
}

TEST_F(SettingsTest, AFileThatWasNamedHasToBeThere) {
  EXPECT_FALSE(read_config_file(folder_ / "absent.toml", read_).ok());
  variables_["XDG_CONFIG_HOME"] = folder_.path();
  const Result<ConfigFile> absent = read_config_file(std::nullopt, read_);
  ASSERT_TRUE(absent.ok());
  EXPECT_EQ(absent->path, "");
}

TEST_F(SettingsTest, TheReportSaysWhereValuesComeFromButNoKeys) {
  variables_["MOEFLUX_API_KEY"] = "s3cret";
  ASSERT_TRUE(give("threads = 4\n").ok());
  const std::string report = config_report(command_, false);
  EXPECT_EQ(report, "[run]\nthreads = 4  # " + (folder_ / "config.toml") +
                        ":1\napi-key = \"(hidden)\"  # MOEFLUX_API_KEY\n");
  EXPECT_NE(config_report(command_, true).find("# ctx-size = 0\n"), std::string::npos);
}

TEST(ConfigFile, ReadsTextsNumbersBooleansAndArrays) {
  const auto entries = parse_config(
      "# settings\na = \"x \\\"y\\\"\\n\"\nb = 1_000\nc = [\n  'p', # one\n  \"q\",\n]\nd=false\n"
      "e = -1.5e3\n",
      "f");
  ASSERT_TRUE(entries.ok()) << entries.error().message();
  ASSERT_EQ(entries->size(), 5u);
  EXPECT_EQ((*entries)[0].values, (std::vector<std::string>{"x \"y\"\n"}));
  EXPECT_EQ((*entries)[1].values, (std::vector<std::string>{"1000"}));
  EXPECT_EQ((*entries)[2].values, (std::vector<std::string>{"p", "q"}));
  EXPECT_EQ((*entries)[2].line, 4);
  EXPECT_EQ((*entries)[3].values, (std::vector<std::string>{"false"}));
  EXPECT_EQ((*entries)[4].values, (std::vector<std::string>{"-1.5e3"}));
}

TEST(ConfigFile, MayBeginWithAByteOrderMark) {
  const auto entries = parse_config("\xef\xbb\xbf[run]\na = 1\n", "f");
  ASSERT_TRUE(entries.ok()) << entries.error().message();
  ASSERT_EQ(entries->size(), 1u);
  EXPECT_EQ((*entries)[0].section, "run");
  expect_error(parse_config("a = 1\n\xef\xbb\xbf b = 2\n", "f"), ErrorCode::kInvalidArgument,
               {"f:2"});
}

TEST(ConfigFile, AKeyStandsOnceInASection) {
  const auto fails = [](std::string_view text, std::initializer_list<std::string_view> pieces) {
    expect_error(parse_config(text, "f"), ErrorCode::kInvalidArgument, pieces);
  };
  fails("a = 1\nb = 2\na = 1\n", {"f:3", "a stands in line 1"});
  fails("[run]\nctx-size = 1\n[serve]\nctx-size = 2\n[run]\nctx_size = 3\n",
        {"f:6", "ctx_size stands in line 2"});
  EXPECT_TRUE(parse_config("a = 1\n[run]\na = 2\n[serve]\na = 3\n", "f").ok());
}

TEST(ConfigFile, NamesTheLineAndWhatWasExpected) {
  const auto fails = [](std::string_view text, std::initializer_list<std::string_view> pieces) {
    expect_error(parse_config(text, "f"), ErrorCode::kInvalidArgument, pieces);
  };
  fails("a\n", {"f:1", "= behind a"});
  fails("\na = word\n", {"f:2", "a text in quotes"});
  fails("a = \"x\n", {"f:1", "a quote"});
  fails("a = 1 2\n", {"f:1", "the end of the line"});
  fails("[x\n", {"f:1", "]"});
  fails("[x.\n", {"f:1", "a name"});
  fails("[x.\"y]\n", {"f:1", "a quote"});
  fails("a = [1 2]\n", {"f:1", ","});
  fails("a = [1\n", {", or ]"});
  fails("= 1\n", {"a name"});
  fails("a = \"\\u0041\"\n", {"f:1"});
}

}  // namespace
}  // namespace moeflux
