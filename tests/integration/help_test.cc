// Help, suggestions and settings of the program, as somebody meets them who has never seen it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "tests/integration/moeflux_program.h"
#include "tests/support/run_model.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {
namespace {

using Words = std::vector<std::string>;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

Words command_names() {
  Words names;
  for (const std::string& page : lines_of(moeflux({"man", "--list"}).out)) {
    if (page != "moeflux") names.push_back(page.substr(std::string("moeflux-").size()));
  }
  return names;
}

void expect_usage(const Words& arguments, const Words& pieces) {
  const ProgramOutput output = moeflux(arguments);
  EXPECT_EQ(output.status, 2) << output.err;
  EXPECT_EQ(output.out, "");
  for (const std::string& piece : pieces) {
    EXPECT_TRUE(contains(output.err, piece)) << "'" << piece << "' is not in: " << output.err;
  }
}

TEST(Help, EveryCommandFitsAScreenWithExamplesAndNothingIsLostBehindIt) {
  const Words commands = command_names();
  EXPECT_GE(commands.size(), 15u);
  for (const std::string& command : commands) {
    const ProgramOutput help = moeflux({command, "--help"});
    EXPECT_EQ(help.status, 0);
    const auto lines = lines_of(help.out);
    EXPECT_LE(lines.size(), 40u) << help.out;
    EXPECT_TRUE(contains(help.out, "\nExamples:\n  ")) << command;
    const ProgramOutput all = moeflux({command, "--help-all"});
    EXPECT_GE(lines_of(all.out).size(), lines.size());
    for (const std::string& line : lines_of(help.out + all.out)) {
      EXPECT_LE(line.size(), 100u) << line;
      EXPECT_FALSE(line.ends_with(' ')) << line;
    }
    EXPECT_EQ(moeflux({"help", command}).out, help.out);
  }
}

TEST(Help, LinesFitANarrowTerminalWhateverTheyHold) {
  ASSERT_EQ(setenv("COLUMNS", "40", 1), 0);
  std::string all = moeflux({"help"}).out;
  for (const std::string& command : command_names()) {
    all += moeflux({command, "--help"}).out + moeflux({command, "--help-all"}).out;
  }
  ASSERT_EQ(unsetenv("COLUMNS"), 0);
  for (const std::string& line : lines_of(all)) {
    const size_t begin = std::min(line.find_first_not_of(' '), line.size());
    const bool is_a_word = line.find(' ', begin) == std::string::npos;
    EXPECT_TRUE(line.size() <= 40 || is_a_word) << line;
  }
}

TEST(Help, TuneHelpListsEachKeyInALineWithItsDefault) {
  for (const Words& words : {Words{"run", "--tune", "help"}, Words{"bench", "--tune=help"}}) {
    const ProgramOutput help = moeflux(words);
    expect_success(help);
    const auto lines = lines_of(help.out);
    EXPECT_EQ(lines.size(), 19u) << help.out;
    for (size_t i = 1; i < lines.size(); ++i) {
      EXPECT_TRUE(contains(lines[i], "= ") && contains(lines[i], "default: ")) << lines[i];
    }
    EXPECT_TRUE(contains(help.out, "reader-threads=  ")) << help.out;
  }
}

TEST(Help, EveryCommandTakesQuiet) {
  for (const std::string& command : command_names()) {
    EXPECT_EQ(moeflux({command, "--quiet", "--help"}).status, 0) << command;
  }
}

TEST(Help, BoundsOfOptionsAreWrittenInFull) {
  expect_usage({"run", "-n", "2000000000", "x"}, {"2000000000 is not between -1 and 1000000000"});
  for (const std::string& command : command_names()) {
    const std::string all = moeflux({command, "--help-all"}).out;
    EXPECT_FALSE(contains(all, "e+0")) << all;
  }
}

TEST(Help, OptionsForMeasurementsAreKeysOfTuneAndTheirOldNamesWork) {
  const ProgramOutput all = moeflux({"run", "--help-all"});
  for (const char* key : {"cache-policy=", "cpu-isa=", "expert-io=", "lookahead=", "pin=",
                          "precision=", "prefill-chunk=", "reader-threads=", "trust-experts="}) {
    EXPECT_TRUE(contains(all.out, key)) << key;
  }
  const Words base = {"run", "-q", "-n", "4", "Once"};
  const auto text = [&](const Words& more) {
    Words words = base;
    words.insert(words.end(), more.begin(), more.end());
    const ProgramOutput output = moeflux(words);
    EXPECT_EQ(output.status, 0) << output.err;
    return output.out;
  };
  const std::string expected = text({});
  EXPECT_EQ(text({"--tune", "reader-threads=2,expert-io=pread,lookahead=off"}), expected);
  EXPECT_EQ(text({"--reader-threads", "2", "--expert-io", "pread", "--cache-policy", "lru",
                  "--lookahead", "off", "--trust-experts", "--prefill-chunk", "3"}),
            expected);
  EXPECT_EQ(text({"--cpu-isa", "portable"}), text({"--tune", "cpu-isa=portable"}));
  expect_usage({"run", "--tune", "reader=2", "x"}, {"--tune", "reader-threads"});
}

TEST(Help, VersionAndHelpComeByEveryName) {
  for (const char* name : {"version", "-v", "--version"}) {
    const ProgramOutput version = moeflux({name});
    EXPECT_EQ(version.status, 0);
    EXPECT_EQ(version.out.rfind("moeflux ", 0), 0u);
  }
  const ProgramOutput help = moeflux({"help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_LE(lines_of(help.out).size(), 40u) << help.out;
  EXPECT_TRUE(contains(help.out, "\nExamples:\n  moeflux run ")) << help.out;
  for (const std::string& line : lines_of(help.out)) EXPECT_LE(line.size(), 100u) << line;
  EXPECT_EQ(moeflux({"--help"}).out, help.out);
  for (const char* name : {"help", "version"}) EXPECT_EQ(moeflux({"help", name}).out, help.out);
  const ProgramOutput nothing = moeflux({});
  EXPECT_EQ(nothing.status, 2);
  EXPECT_EQ(nothing.out, "");
  EXPECT_EQ(nothing.err, help.out);
}

TEST(Help, AMisspeltCommandOrOptionNamesTheNearest) {
  expect_usage({"chta"}, {"no command 'chta'", "did you mean chat?"});
  expect_usage({"help", "srve"}, {"did you mean serve?"});
  expect_usage({"run", "--tmep", "0"}, {"--tmep", "did you mean --temp?"});
  expect_usage({"run", "-model", "x"}, {"-model", "did you mean --model?"});
  expect_usage({"-m", "x"}, {"no command before -m", "moeflux run"});
  EXPECT_TRUE(contains(moeflux({"plan", "--like", "qwen3-30b-a3"}).err, "qwen3-30b-a3b"));
  EXPECT_EQ(moeflux({"plan", "--like", "TINY", "--ram", "1G", "--drive", "1", "--memory-bandwidth",
                     "10", "--arithmetic", "10"})
                .status,
            0);
}

TEST(Help, OptionsOfLlamaCppGetAnAnswer) {
  expect_usage({"run", "-hff", "model.gguf", "x"}, {"-hff", "moeflux pull"});
  expect_usage({"serve", "-ts", "3,1"}, {"-ts", "--device"});
  const ProgramOutput taken =
      moeflux({"run", "-q", "-n", "2", "--jinja", "--no-mmap", "--mlock", "-b", "512", "-ub", "512",
               "-np", "1", "--color", "-v", "-fa", "on", "-e", "Once"});
  EXPECT_EQ(taken.status, 0) << taken.err;
  EXPECT_EQ(taken.out, moeflux({"run", "-q", "-n", "2", "Once"}).out);
  for (const std::string& line : taken.err_lines()) {
    EXPECT_TRUE(contains(line, " does nothing: ")) << line;
  }
  EXPECT_EQ(taken.err_lines().size(), 10u) << taken.err;
}

TEST(Help, SizesWithoutAUnitThatNobodyMeansAreRefused) {
  expect_usage({"plan", "--like", "tiny", "--ram", "8"}, {"--ram", "8 bytes", "8G"});
  expect_usage({"plan", "--like", "tiny", "--vram", "12"}, {"--vram", "12G"});
  expect_usage({"run", "--expert-cache", "4", "x"}, {"--expert-cache", "4G"});
  expect_usage({"run", "--near-cache", "4", "x"}, {"--near-cache", "4G"});
  expect_usage({"serve", "--states-size", "4"}, {"--states-size", "4G"});
}

TEST(Settings, AFileAndAVariableSetOptionsAndConfigSaysSo) {
  const TempFolder folder;
  const std::string path = folder / "c.toml";
  write_bytes(path, "n-predict = 3\n[run]\nquiet = true\n[serve]\napi-key = \"s3cret\"\n");
  const ProgramOutput run = moeflux({"run", "--config", path, "Once"});
  EXPECT_EQ(run.out, moeflux({"run", "-q", "-n", "3", "Once"}).out);
  const ProgramOutput config = moeflux({"config", "--config", path});
  EXPECT_EQ(config.status, 0) << config.err;
  EXPECT_TRUE(contains(config.out, "n-predict = 3  # " + path + ":1\n")) << config.out;
  EXPECT_TRUE(contains(config.out, "api-key = \"(hidden)\"")) << config.out;
  EXPECT_FALSE(contains(config.out, "s3cret")) << config.out;
  ASSERT_EQ(setenv("MOEFLUX_N_PREDICT", "2", 1), 0);
  const ProgramOutput variable = moeflux({"run", "--config", path, "Once"});
  const ProgramOutput line = moeflux({"run", "--config", path, "-n", "1", "Once"});
  ASSERT_EQ(unsetenv("MOEFLUX_N_PREDICT"), 0);
  EXPECT_EQ(variable.out, moeflux({"run", "-q", "-n", "2", "Once"}).out);
  EXPECT_EQ(line.out, moeflux({"run", "-q", "-n", "1", "Once"}).out);
  write_bytes(path, "n-predit = 3\n");
  expect_usage({"run", "--config", path, "Once"},
               {path + ":1", "'n-predit'", "did you mean n-predict?"});
}

TEST(Settings, AMisspeltVariableIsWarnedOf) {
  ASSERT_EQ(setenv("MOEFLUX_NPREDICT", "2", 1), 0);
  const ProgramOutput run = moeflux({"run", "-q", "-n", "1", "Once"});
  ASSERT_EQ(unsetenv("MOEFLUX_NPREDICT"), 0);
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.err,
            "warning: the variable MOEFLUX_NPREDICT sets no option; did you mean "
            "MOEFLUX_N_PREDICT?\n");
}

TEST(Settings, TheLogLevelSilencesNotes) {
  EXPECT_EQ(moeflux({"run", "-n", "2", "--log-level", "warn", "--mlock", "Once"}).err, "");
  expect_usage({"run", "--log-level", "loud", "x"}, {"--log-level", "'loud'", "debug"});
}

TEST(Completions, EveryShellKnowsCommandsOptionsAndChoices) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const ProgramOutput script = moeflux({"completion", shell});
    EXPECT_EQ(script.status, 0);
    for (const char* piece : {"run", "expert-cache", "resident near helper", "completion"}) {
      EXPECT_TRUE(contains(script.out, piece)) << shell << ": " << piece;
    }
  }
  EXPECT_EQ(moeflux({"completion", "powershell"}).status, 1);
}

TEST(Completions, EveryPageOfTheManualIsThere) {
  for (const std::string& page : lines_of(moeflux({"man", "--list"}).out)) {
    const ProgramOutput text = moeflux({"man", page});
    EXPECT_EQ(text.status, 0);
    EXPECT_EQ(text.out.rfind(".TH ", 0), 0u) << page;
  }
}

TEST(Constrained, ADocumentThatIsCutSaysSoAndExitsWithThree) {
  const Words base = {"run",
                      "-q",
                      "--temp",
                      "0",
                      "--json-schema",
                      R"({"type":"array","items":{"type":"integer"},"minItems":40,"maxItems":40})"};
  Words cut = base;
  cut.insert(cut.end(), {"-n", "5", "Numbers:"});
  const ProgramOutput short_one = moeflux(cut);
  EXPECT_EQ(short_one.status, 3) << short_one.err;
  EXPECT_TRUE(contains(short_one.err, "cut after 5 tokens")) << short_one.err;
  const ProgramOutput whole =
      moeflux({"run", "-q", "--temp", "0", "--regex", "[ab]", "-n", "50", "Letter:"});
  EXPECT_EQ(whole.status, 0) << whole.err;
  EXPECT_EQ(whole.err, "");
}

TEST(Constrained, WhatCutsADocumentIsNamedByRunAndChat) {
  const TempFolder folder;
  write_bytes(folder / "t.jinja", "{% for m in messages %}{{ m.content }}\n{% endfor %}");
  const auto expect_cut = [&](const Words& command, const Words& more, const std::string& by) {
    Words words = command;
    words.insert(words.end(), {"--temp", "0", "--regex", "[ab]{4000}"});
    words.insert(words.end(), more.begin(), more.end());
    const ProgramOutput cut = moeflux(words);
    EXPECT_EQ(cut.status, 3) << cut.err;
    EXPECT_TRUE(contains(cut.err, "before it was whole (" + by)) << cut.err;
    EXPECT_FALSE(contains(cut.err, "--regex")) << cut.err;
  };
  const Words run = {"run", "-q", "Letters:"};
  const Words chat = {"chat", "-q", "--chat-template-file", folder / "t.jinja", "Letters:"};
  for (const Words& command : {run, chat}) {
    expect_cut(command, {"-n", "5"}, "-n, --n-predict)");
    expect_cut(command, {"-n", "-1", "-c", "32"},
               "the context of 32 tokens is full; -c, --ctx-size raises it, up to ");
  }
}

}  // namespace
}  // namespace moeflux::testing
