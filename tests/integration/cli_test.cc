// Every command does what its help says, on the embedded model.
#include <gtest/gtest.h>
#include <pwd.h>
#include <unistd.h>

#include <cstring>
#include <sstream>

#include "base/json.h"
#include "tests/integration/moeflux_program.h"
#include "tests/support/golden_file.h"
#include "tests/support/run_model.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {
namespace {

const std::vector<std::string> kCommands = {"run", "logits", "inspect", "tokenize", "perplexity"};
const std::string kPrompt = "Once upon a time";

TEST(Cli, VersionAndHelp) {
  const ProgramOutput version = moeflux({"--version"});
  expect_success(version);
  EXPECT_EQ(version.out.rfind("moeflux ", 0), 0u);
  const ProgramOutput help = moeflux({"--help"});
  expect_success(help);
  for (const std::string& command : kCommands) {
    EXPECT_TRUE(contains(help.out, command)) << command;
    const ProgramOutput of_command = moeflux({command, "--help"});
    expect_success(of_command);
    EXPECT_TRUE(contains(of_command.out, "--model")) << of_command.out;
  }
}

TEST(Cli, DevicesAreListedWithWhatAutoTakes) {
  const ProgramOutput list = moeflux({"devices"});
  expect_success(list);
  for (const char* piece : {"cpu ", "cuda:0", "metal", "reference", "<- auto"}) {
    EXPECT_TRUE(contains(list.out, piece)) << list.out;
  }
  const ProgramOutput json = moeflux({"devices", "--json"});
  expect_success(json);
  const Json devices = Json::parse(json.out);
  int taken = 0;
  for (const Json& device : devices) {
    if (!device["auto"].get<bool>()) continue;
    ++taken;
    EXPECT_TRUE(device["there"].get<bool>());
  }
  EXPECT_EQ(taken, 1);
}

TEST(Cli, RunContinuesThePromptAndEndsWithStatistics) {
  const ProgramOutput run = moeflux({"run", "-n", "20", kPrompt});
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.out.rfind(kPrompt, 0), 0u);
  EXPECT_GT(run.out.size(), kPrompt.size() + 20);
  EXPECT_EQ(run.out.back(), '\n');
  ASSERT_EQ(run.err_lines().size(), 1u);
  for (const char* piece : {"prefill 4 tokens", "decode 19 tokens", "expert hits", "peak memory"}) {
    EXPECT_TRUE(contains(run.err, piece)) << run.err;
  }
}

TEST(Cli, EmbedWritesALineOfJsonOrAnArrayForEachText) {
  const ProgramOutput lines = moeflux({"embed", "--dimensions", "8", "A fox", kPrompt});
  expect_success(lines);
  std::istringstream stream(lines.out);
  std::vector<Json> vectors;
  for (std::string line; std::getline(stream, line);) vectors.push_back(Json::parse(line));
  ASSERT_EQ(vectors.size(), 2u);
  for (size_t i = 0; i < vectors.size(); ++i) {
    EXPECT_EQ(vectors[i]["index"], i);
    EXPECT_EQ(vectors[i]["embedding"].size(), 8u);
  }
  const TempFolder folder;
  write_bytes(folder / "lines.txt", "A fox\r\n" + kPrompt + "\n");
  expect_success(
      moeflux({"embed", "--dimensions", "8", "-f", folder / "lines.txt", "-o", folder / "v.npy"}));
  const std::string file = read_bytes(folder / "v.npy");
  EXPECT_TRUE(contains(file, "'descr': '<f4', 'fortran_order': False, 'shape': (2, 8)")) << file;
  constexpr size_t kBytes = 2 * 8 * sizeof(float);
  ASSERT_EQ((file.size() - kBytes) % 64, 0u);
  std::vector<float> numbers(16);
  std::memcpy(numbers.data(), file.data() + file.size() - kBytes, kBytes);
  for (size_t i = 0; i < numbers.size(); ++i) {
    EXPECT_EQ(numbers[i], vectors[i / 8]["embedding"][i % 8].get<float>()) << i;
  }
  const ProgramOutput without = moeflux({"embed"});
  EXPECT_NE(without.status, 0);
  EXPECT_TRUE(contains(without.err, "texts or -f FILE")) << without.err;
}

TEST(Cli, SameSeedSameTextWhateverTheThreadsAndTheCache) {
  const auto text = [](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"run", "-q", "-n", "40"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    arguments.push_back(kPrompt);
    const ProgramOutput run = moeflux(arguments);
    expect_success(run);
    return run.out;
  };
  const std::string expected = text({});
  EXPECT_EQ(text({"-t", "1"}), expected);
  EXPECT_EQ(text({"-t", "3", "--expert-cache", "0"}), expected);
  EXPECT_EQ(text({"--expert-cache", "64MiB", "--reader-threads", "1"}), expected);
  EXPECT_EQ(text({"-s", "0"}), expected);
  EXPECT_NE(text({"-s", "6"}), expected);
}

TEST(Cli, RunOfNoTokensPrintsThePrompt) {
  const ProgramOutput run = moeflux({"run", "-n", "0", kPrompt});
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.out, kPrompt + "\n");
  EXPECT_EQ(run.err_lines().size(), 1u);
  EXPECT_FALSE(contains(run.err, "decode"));
}

TEST(Cli, PromptComesFromArgumentFlagFileOrStandardInput) {
  const TempFolder folder;
  write_bytes(folder / "prompt", kPrompt);
  const std::vector<std::string> base = {"run", "-n", "10"};
  const auto text = [&](std::vector<std::string> more, const std::string& input) {
    more.insert(more.begin(), base.begin(), base.end());
    return moeflux(more, {.standard_input = input}).out;
  };
  const std::string expected = text({kPrompt}, "");
  EXPECT_EQ(expected.rfind(kPrompt, 0), 0u);
  EXPECT_EQ(text({"-p", kPrompt}, ""), expected);
  EXPECT_EQ(text({"-f", folder / "prompt"}, ""), expected);
  EXPECT_EQ(text({"-f", "-"}, kPrompt), expected);
  EXPECT_EQ(text({}, kPrompt), expected);
}

TEST(Cli, BannedTokenIsNeverChosen) {
  const ProgramOutput greedy = moeflux({"run", "-q", "--temp", "0", "-n", "1", kPrompt});
  const ProgramOutput ids =
      moeflux({"tokenize", "--ids", greedy.out.substr(0, greedy.out.size() - 1)});
  expect_success(ids);
  const std::string id = ids.out.substr(0, ids.out.find_first_of(",\n"));
  const ProgramOutput other =
      moeflux({"run", "-q", "--temp", "0", "-n", "1", "--logit-bias", id + "-inf", kPrompt});
  expect_success(other);
  EXPECT_NE(other.out, greedy.out);
}

TEST(Cli, LogitsOfBothDevicesAreThoseOfTheLibrary) {
  const TempFolder folder;
  const std::vector<TokenId> tokens = {430, 1, 77, 8191, 0};
  for (const std::string device : {"cpu", "reference"}) {
    const std::string path = folder / device;
    expect_success(moeflux({"logits", "--device", device, "--precision", "f32", "--tokens",
                            "430,1,77,8191,0", "-o", path}));
    const auto file = read_golden(path);
    ASSERT_TRUE(file.contains("logits"));
    EXPECT_EQ(file.at("logits").shape, (std::vector<int64_t>{5, 8192}));
    EXPECT_EQ(file.at("logits").floats, run_model(fable(), tokens, {.device = device}).logits);
  }
}

TEST(Cli, InspectShowsTheModelAsTextAndAsJson) {
  const ProgramOutput text = moeflux({"inspect"});
  expect_success(text);
  for (const char* piece : {"qwen3_5_moe_text", "experts per layer", "memory plan"}) {
    EXPECT_TRUE(contains(text.out, piece)) << piece;
  }
  const ProgramOutput dump =
      moeflux({"inspect", "--json", "-m", fable(), "-c", "100", "--expert-cache", "3MiB"});
  expect_success(dump);
  const auto json = parse_json(dump.out, "inspect");
  ASSERT_TRUE(json.ok()) << json.error().to_string();
  EXPECT_EQ((*json)["architecture"]["layers"], 8);
  EXPECT_EQ((*json)["architecture"]["experts_per_layer"], 32);
  EXPECT_EQ((*json)["experts"]["count"], 8 * 32);
  EXPECT_EQ((*json)["memory_plan"]["context"], 100);
  EXPECT_EQ((*json)["memory_plan"]["expert_cache_bytes"], 3 << 20);
  EXPECT_TRUE((*json)["architecture"]["unread_config_keys"].empty());
}

TEST(Cli, TokenizeShowsIdsAndPieces) {
  const ProgramOutput ids = moeflux({"tokenize", "--ids", kPrompt});
  expect_success(ids);
  EXPECT_EQ(std::count(ids.out.begin(), ids.out.end(), ','), 3);
  const ProgramOutput pieces = moeflux({"tokenize", "-f", "-"}, {.standard_input = kPrompt});
  expect_success(pieces);
  EXPECT_EQ(std::count(pieces.out.begin(), pieces.out.end(), '\n'), 4);
  EXPECT_TRUE(contains(pieces.out, "\" upon\"")) << pieces.out;
}

TEST(Cli, TokenizeMaySpellSpecialTokensOut) {
  const std::string text = "<|endoftext|>";
  const ProgramOutput special = moeflux({"tokenize", "--ids", text});
  EXPECT_FALSE(contains(special.out, ","));
  EXPECT_TRUE(contains(moeflux({"tokenize", "--ids", "--no-parse-special", text}).out, ","));
}

TEST(Cli, PerplexityTellsTextFromNoise) {
  const std::string story =
      "Once upon a time there was a king who had three sons. The eldest went out into the world "
      "to seek his fortune, and he came to a great forest.";
  std::string noise = story;
  for (size_t i = 0; i < noise.size(); ++i) noise[i] = story[i * 89 % story.size()];
  const auto perplexity = [](const std::string& text) {
    const ProgramOutput output =
        moeflux({"perplexity", "-f", "-", "-c", "32"}, {.standard_input = text});
    expect_success(output);
    EXPECT_EQ(output.out.rfind("perplexity ", 0), 0u) << output.out;
    EXPECT_TRUE(contains(output.out, "windows of 32")) << output.out;
    return std::stod(output.out.substr(11));
  };
  const double of_story = perplexity(story);
  EXPECT_GT(of_story, 1.0);
  EXPECT_LT(of_story, 200.0);
  EXPECT_GT(perplexity(noise), 2 * of_story);
}

TEST(Cli, WithoutHomeTheSystemsListOfUsersSaysWhereDownloadsLie) {
  const passwd* const user = getpwuid(getuid());
  if (user == nullptr) GTEST_SKIP() << "hardware: this system does not list the user";
  for (const char* home : {"-uHOME", "HOME="}) {
    const ProgramOutput output =
        run_program("/usr/bin/env",
                    {"-uHF_HOME", "-uHF_HUB_CACHE", "-uHUGGINGFACE_HUB_CACHE", "-uXDG_CACHE_HOME",
                     home, "HF_HUB_OFFLINE=1", MOEFLUX_PROGRAM, "pull", "nobody/nothing"});
    EXPECT_EQ(output.status, 1);
    const std::string cache = std::string(user->pw_dir) + "/.cache/huggingface/hub";
    EXPECT_TRUE(contains(output.err, "nobody/nothing is not in " + cache + ":")) << output.err;
  }
}

}  // namespace
}  // namespace moeflux::testing
