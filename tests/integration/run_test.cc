// moeflux run beyond its text: prompts from files, seeds, the terminal, and errors and Ctrl-C at
// any time.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdio>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "tests/integration/moeflux_program.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {
namespace {

using Words = std::vector<std::string>;
const std::string kOnce = "Once upon a time";

TEST(Run, LastNewlineOfAFileIsNotOfThePrompt) {
  const TempFolder folder;
  const auto text = [&](const std::string& prompt, const Words& source) {
    write_bytes(folder / "prompt", prompt);
    Words words = {"run", "-n", "10"};
    words.insert(words.end(), source.begin(), source.end());
    return moeflux(words, {.standard_input = prompt}).out;
  };
  for (const Words& source : {Words{"-f", folder / "prompt"}, Words{"-f", "-"}, Words{}}) {
    const std::string expected = text(kOnce, source);
    EXPECT_EQ(text(kOnce + "\n", source), expected);
    EXPECT_EQ(text(kOnce + "\n\n", source).rfind(kOnce + "\n", 0), 0u);
    EXPECT_EQ(text(kOnce + " \n", source).rfind(kOnce + " ", 0), 0u);
  }
}

TEST(Run, AFullContextIsSaidWithTheOptionThatRaisesIt) {
  const Words base = {"run", "-q", "-n", "-1", "--ignore-eos", "-c", "16", kOnce};
  const ProgramOutput full = moeflux(base);
  EXPECT_EQ(full.status, 0);
  EXPECT_EQ(full.err,
            "warning: the context of 16 tokens is full; -c, --ctx-size raises it, up to 4096\n");
  Words json = base;
  json.push_back("--json");
  const ProgramOutput counted = moeflux(json);
  ASSERT_EQ(counted.err_lines().size(), 1u) << counted.err;
  EXPECT_TRUE(contains(counted.err, "context full")) << counted.err;
}

TEST(Run, SeedMinusOneIsDrawnAndPrintedAndCanBeRepeated) {
  const auto run = [](const Words& more) {
    Words words = {"run", "-q", "-n", "40", kOnce};
    words.insert(words.end(), more.begin(), more.end());
    return moeflux(words);
  };
  const ProgramOutput drawn = run({"-s", "-1"});
  ASSERT_EQ(drawn.status, 0) << drawn.err;
  ASSERT_EQ(drawn.err_lines().size(), 1u) << drawn.err;
  ASSERT_EQ(drawn.err.rfind("seed ", 0), 0u) << drawn.err;
  const std::string seed = drawn.err_lines()[0].substr(5);
  EXPECT_EQ(run({"-s", seed}).out, drawn.out);
  EXPECT_NE(run({"-s", "-1"}).err, drawn.err);  // once in 2^32 they may agree

  const ProgramOutput json = run({"-s", "-1", "--json"});
  ASSERT_EQ(json.err_lines().size(), 1u) << json.err;
  const auto statistics = parse_json(json.err, "statistics");
  ASSERT_TRUE(statistics.ok()) << json.err;
  EXPECT_EQ(run({"-s", (*statistics)["seed"].dump()}).out, json.out);
}

// The embedded model never reasons; what follows an open tag counts as that, wherever it comes
// from.
TEST(Run, ReasoningIsClosedWhenItsBudgetIsSpent) {
  const auto run = [](const std::string& prompt, const Words& more) {
    Words words = {"run", "-q", "-n", "24", "--temp", "0", prompt};
    words.insert(words.end(), more.begin(), more.end());
    return moeflux(words);
  };
  const std::string thinking = "<think>\nThe old king";
  const ProgramOutput budget = run(thinking, {"--reasoning-budget", "5"});
  if (budget.err.find("without Rust") != std::string::npos) return;
  ASSERT_EQ(budget.status, 0) << budget.err;
  const std::string close = "\n\n\n";  // </think> between lines is a special token, without text
  const size_t at = budget.out.find(close);
  ASSERT_NE(at, std::string::npos) << budget.out;
  EXPECT_GT(budget.out.size(), at + close.size() + 1) << "the text goes on behind it";
  const std::string unlimited = run(thinking, {}).out;
  EXPECT_EQ(unlimited.find(close), std::string::npos) << unlimited;
  EXPECT_EQ(unlimited.substr(0, at), budget.out.substr(0, at));
  // Without reasoning there is nothing to close.
  EXPECT_EQ(run(kOnce, {"--reasoning-budget", "5"}).out, run(kOnce, {}).out);
}

// A model whose weights are cut while its text is held back by a pipe that nobody reads.
TEST(Run, ErrorInMidTextIsFollowedByANewLineAndStatistics) {
  for (const bool as_json : {false, true}) {
    const TempFolder folder;
    std::filesystem::copy(fable(), folder / "model");
    Words words = {
        "run", "-m",          folder / "model", "-n", "-1", "--ignore-eos", "--expert-cache",
        "0",   "--expert-io", "pread",          kOnce};
    if (as_json) words.emplace_back("--json");
    BackgroundProgram program(MOEFLUX_PROGRAM, words);
    program.read_output(100);
    std::filesystem::resize_file(folder / "model/model.safetensors", 1 << 20);
    const ProgramOutput output = program.finish();
    EXPECT_EQ(output.status, 1) << output.err;
    EXPECT_GT(output.out.size(), 100u);
    EXPECT_EQ(output.out.back(), '\n');
    auto lines = output.err_lines();
    if (!as_json) {  // every expert comes from the drive
      EXPECT_TRUE(contains(output.err, "packed (moeflux pack)")) << output.err;
      ASSERT_FALSE(lines.empty());
      lines.erase(lines.begin());
    }
    ASSERT_EQ(lines.size(), 2u) << output.err;
    EXPECT_EQ(lines[1].rfind("error: ", 0), 0u) << lines[1];
    EXPECT_TRUE(contains(lines[1], "model.safetensors")) << lines[1];
    if (as_json) {
      const auto statistics = parse_json(lines[0], "statistics");
      ASSERT_TRUE(statistics.ok()) << lines[0];
      EXPECT_EQ((*statistics)["finish_reason"], "error");
      EXPECT_GT((*statistics)["decode"]["tokens"], 0);
    } else {
      EXPECT_EQ(lines[0].rfind("prefill 4 tokens", 0), 0u) << lines[0];
      EXPECT_TRUE(lines[0].ends_with(" | error")) << lines[0];
    }
  }
}

TEST(Run, TerminalShowsProgressUntilTheTextBegins) {
  TerminalProgram program(MOEFLUX_PROGRAM, {"run", "-n", "8", kOnce});
  const ProgramOutput output = program.finish();
  ASSERT_EQ(output.status, 0) << output.out;
  const std::string& shown = output.out;
  const size_t loading = shown.find("\rloading [");
  const size_t loaded = shown.find("\rloading: the last weights");
  const size_t reading = shown.find("\rprompt [");
  const size_t text = shown.find(kOnce);
  ASSERT_TRUE(text != std::string::npos && loading < loaded && loaded < reading && reading < text)
      << shown;
  EXPECT_TRUE(contains(shown.substr(loading, reading), " MiB of ")) << shown;
  EXPECT_TRUE(contains(shown.substr(reading, text - reading), "0 of 4 tokens")) << shown;
  const std::string clear = "\r\x1b[K";
  EXPECT_EQ(shown.substr(text - clear.size(), clear.size()), clear) << shown;
  EXPECT_EQ(shown.find("loading", text), std::string::npos);
  EXPECT_EQ(shown.find("\r", text), std::string::npos);
}

TEST(Run, TerminalOfOtherCommandsShowsProgressWhileLoading) {
  TerminalProgram program(MOEFLUX_PROGRAM, {"perplexity", "-f", "-", "-c", "32"});
  program.write_input(kOnce + " there was a king.");
  program.close_input();
  const ProgramOutput output = program.finish();
  ASSERT_EQ(output.status, 0) << output.out;
  EXPECT_LT(output.out.find("\rloading ["), output.out.find("\rperplexity ["));
}

// The terminal is held, so the program cannot get past the bar that it shows while loading.
TEST(Run, InterruptWhileLoadingEndsTheProgram) {
  for (const int signal : {SIGINT, SIGTERM}) {
    TerminalProgram program(MOEFLUX_PROGRAM, {"run", "-n", "8"}, TerminalProgram::Output::kHeld);
    std::string prompt;
    while (prompt.size() < 256 << 10) prompt += "a king and a queen ";
    program.write_input(prompt);  // more than a pipe holds: the program listens by now
    program.close_input();
    program.send_signal(signal);
    const ProgramOutput output = program.finish();
    EXPECT_EQ(output.signal, 0);
    EXPECT_EQ(output.status, 130);
    EXPECT_EQ(output.out, "");
  }
}

TEST(Run, APromptCacheChangesNoByteAndIsItsOwnersAlone) {
  const TempFolder folder;
  const std::string path = folder / "state";
  const std::string prompt = "Once upon a time there was a fox who lived in the forest";
  const auto run = [&](const std::string& text, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"run", "-n", "12", "--seed", "3", "--json", text};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return moeflux(arguments);
  };
  const std::string longer = prompt + " and was hungry";
  for (const std::string& text : {prompt, prompt, longer, prompt}) {
    const ProgramOutput plain = run(text, {});
    const ProgramOutput cached = run(text, {"--prompt-cache", path});
    EXPECT_EQ(cached.status, 0) << cached.err;
    EXPECT_EQ(cached.out, plain.out);
  }
  // One token of a known prompt is left to evaluate.
  EXPECT_EQ(Json::parse(run(prompt, {"--prompt-cache", path}).err)["prefill"]["tokens"], 1);
  const auto mode = std::filesystem::status(path).permissions();
  EXPECT_EQ(mode & (std::filesystem::perms::group_all | std::filesystem::perms::others_all),
            std::filesystem::perms::none);
  write_bytes(path, "no state");
  const ProgramOutput damaged = run(prompt, {"--prompt-cache", path});
  EXPECT_EQ(damaged.status, 1);
  EXPECT_TRUE(contains(damaged.err, path)) << damaged.err;
}

// The layer was trained on what the model writes; this text is not of that. Greedy ones repeat
// themselves more than anybody's.
TEST(Run, TheEmbeddedModelDraftsWithItsMtpLayer) {
  for (const auto& [temperature, least] : {std::pair{"0.8", 0.3}, std::pair{"0", 0.5}}) {
    const Words base = {"run",    "-n",        "400",    "--device", "cpu",
                        "--temp", temperature, "--seed", "20250101", kOnce};
    const std::string expected = moeflux(base).out;
    for (const char* depth : {"1", "3"}) {
      Words words = base;
      words.insert(words.end(), {"--draft", "on", "--draft-mtp", depth});
      const ProgramOutput drafted = moeflux(words);
      EXPECT_EQ(drafted.out, expected);
      int accepted = 0;
      int drafts = 0;
      const size_t at = drafted.err.find("drafts ");
      ASSERT_NE(at, std::string::npos) << drafted.err;
      ASSERT_EQ(
          std::sscanf(drafted.err.c_str() + at, "drafts %d of %d accepted", &accepted, &drafts), 2);
      const bool is_one = std::string_view(depth) == "1";
      EXPECT_GT(accepted, is_one ? least * drafts : 0.0) << drafted.err;
      EXPECT_GT(accepted, 50) << drafted.err;
    }
  }
}

TEST(Run, AReversePromptEndsTheTextBeforeIt) {
  const std::vector<std::string> arguments = {"run", "-q", "-n", "20", "--seed", "3", "Once"};
  const std::string text = moeflux(arguments).out;
  const std::string stop = text.substr(text.size() / 2, 4);
  std::vector<std::string> stopped = arguments;
  stopped.insert(stopped.end(), {"-r", stop});
  EXPECT_EQ(moeflux(stopped).out, text.substr(0, text.find(stop)) + "\n");
}

}  // namespace
}  // namespace moeflux::testing
