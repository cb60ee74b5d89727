// plan, expert profiles and replay's staging as a user meets them.
#include <gtest/gtest.h>

#include <sstream>

#include "base/format.h"
#include "base/json.h"
#include "plan/memory_plan.h"
#include "tests/integration/moeflux_program.h"
#include "tests/support/golden_file.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {
namespace {

using Words = std::vector<std::string>;

constexpr const char* kMachine[] = {"--drive",      "2",  "--memory-bandwidth", "30",
                                    "--arithmetic", "300"};

Json plan(Words words) {
  words.insert(words.begin(), {"plan", "--json"});
  const ProgramOutput output = moeflux(words);
  expect_success(output);
  auto json = parse_json(output.out, "plan");
  EXPECT_TRUE(json.ok()) << output.out;
  return json.ok() ? std::move(json).value() : Json::object();
}

Json plan_like(const std::string& name, const std::string& memory) {
  Words words = {"--like", name, "--ram", memory};
  words.insert(words.end(), std::begin(kMachine), std::end(kMachine));
  return plan(words);
}

TEST(Plan, PredictsAPublicModelOnADescribedMachine) {
  const Json json = plan_like("qwen3.6-35b-a3b", "8GiB");
  // 10,240 experts of 1,769,472 bytes; 320 of them a token.
  EXPECT_EQ(json["memory"]["experts_bytes"], uint64_t{10240} * 1769472);
  const double share = json["memory"]["cached_share"];
  EXPECT_GT(share, 0.30);
  EXPECT_LT(share, 0.40);
  const Json& uniform = json["decode"]["uniform"];
  EXPECT_EQ(uniform["hit_rate"], share);
  EXPECT_NEAR(uniform["read_bytes_per_token"].get<double>(), (1 - share) * 320 * 1769472, 1.0);
  EXPECT_NEAR(uniform["drive_seconds"].get<double>(), (1 - share) * 320 * 1769472 / 2e9, 1e-9);
  EXPECT_EQ(uniform["limit"], "drive");
  EXPECT_GT(json["decode"]["natural_high"]["tokens_per_second"],
            uniform["tokens_per_second"].get<double>());
  EXPECT_NEAR(json["prompt"]["cold"]["drive_seconds"].get<double>(), 10240.0 * 1769472 / 2e9, 0.01);
  EXPECT_EQ(json["speeds"]["drive_bytes"]["origin"], "given");
}

// A quarter of what state and experts share: 20,480 bytes a token and 62 MiB.
TEST(Plan, TheContextIsWhatMemoryAllowsUnlessItIsSaid) {
  for (const auto& [memory, context] :
       {std::pair{"6GiB", 32768}, {"12GiB", 65536}, {"24GiB", 262144}, {"64GiB", 262144}}) {
    const Json json = plan_like("qwen3.6-35b-a3b", memory);
    EXPECT_EQ(json["context"], context) << memory;
    EXPECT_EQ(json["memory"]["state_tokens"], 4096) << "no cache gives up more before it must";
  }
  Words words = {"--like", "qwen3.6-35b-a3b", "--ram", "6GiB", "-c", "100000"};
  words.insert(words.end(), std::begin(kMachine), std::end(kMachine));
  const Json asked = plan(words);
  EXPECT_EQ(asked["context"], 100000);
  EXPECT_EQ(asked["memory"]["state_tokens"], 100000);
}

TEST(Plan, KnowsEveryPublicModel) {
  const ProgramOutput unknown = moeflux({"plan", "--like", "gpt-5"});
  EXPECT_EQ(unknown.status, 1);
  EXPECT_TRUE(contains(unknown.err, "synth --list")) << unknown.err;
  const ProgramOutput listed = moeflux({"synth", "--list"});
  for (const char* name : {"qwen3-30b-a3b", "deepseek-v3", "kimi-k2", "gpt-oss-120b", "glm-4.5-air",
                           "minimax-m2", "mixtral-8x7b", "olmoe-1b-7b", "qwen3.6-35b-a3b"}) {
    EXPECT_TRUE(contains(listed.out, name)) << listed.out;
    EXPECT_GT(plan_like(name, "64GiB")["decode"]["uniform"]["tokens_per_second"], 0.0) << name;
  }
}

TEST(Plan, SaysWhatLimitsInWords) {
  const ProgramOutput text =
      moeflux({"plan", "--like", "qwen3-235b-a22b", "--ram", "24G", "--drive", "1",
               "--memory-bandwidth", "50", "--arithmetic", "900"});
  expect_success(text);
  for (const char* piece : {"expert cache", "assumed affine-4/64", "Text is limited by the drive",
                            "a faster drive or more memory", "given"}) {
    EXPECT_TRUE(contains(text.out, piece)) << "'" << piece << "' is not in: " << text.out;
  }
  const ProgramOutput small = moeflux({"plan", "--like", "deepseek-v3", "--ram", "8G", "--drive",
                                       "1", "--memory-bandwidth", "50", "--arithmetic", "900"});
  expect_success(small);
  EXPECT_TRUE(contains(small.out, "does not fit")) << small.out;
}

TEST(Plan, MeasuresWhatItIsNotTold) {
  const TempFolder folder;
  expect_success(moeflux({"synth", "--like", "tiny", "-o", folder / "model"}));
  const Json json = plan({"-m", folder / "model"});
  for (const char* speed : {"drive_bytes", "memory_bytes", "multiply_adds"}) {
    EXPECT_EQ(json["speeds"][speed]["origin"], "measured") << speed;
    EXPECT_GT(json["speeds"][speed]["per_second"], 0.0) << speed;
  }
  EXPECT_EQ(json["memory"]["cached_share"], 1.0);
  EXPECT_EQ(json["weights"], "as stored");
}

// A layer whose down matrices are Q5_0 and one with Q8_0, 8 experts each, 4 of them a token.
TEST(Plan, CountsTheBytesOfEveryTypeInAGgufFile) {
  const std::string split = tests_directory() + "/golden/formats/gguf-split";
  Words words = {"-m", split, "--expert-cache", "300K", "-c", "512"};
  words.insert(words.end(), std::begin(kMachine), std::end(kMachine));
  const Json json = plan(words);
  ASSERT_TRUE(json.contains("memory")) << split;
  const Json& memory = json["memory"];
  EXPECT_EQ(json["weights"], "as stored");
  EXPECT_EQ(memory["bytes_per_expert_by_format"],
            (Json{{"q4_k, q4_k, q5_0", 29696}, {"q4_k, q4_k, q8_0", 35840}}));
  EXPECT_EQ(memory["experts_bytes"], 8 * (29696 + 35840));
  EXPECT_GE(memory["slot_bytes"], 35840);  // has room for the largest
  const double share = memory["cached_share"];
  EXPECT_NEAR(share, 300 * 1024 / (16 * memory["slot_bytes"].get<double>()), 1e-9);
  EXPECT_NEAR(json["decode"]["uniform"]["read_bytes_per_token"].get<double>(),
              (1.0 - share) * 4 * (29696 + 35840), 1.0);
}

TEST(Plan, AssumesTheTypesThatAFileWillHave) {
  const TempFolder folder;
  const std::string file = folder / "model.gguf";
  // Rows of the tiny shape are too short for blocks of Q4_K and IQ3_S, which give way to others.
  for (const char* type : {"Q4_0", "IQ3_S", "MXFP4", "Q8_0", "Q4_K"}) {
    expect_success(moeflux({"synth", "--like", "tiny", "--gguf", type, "-o", file, "--force"}));
    Words words = {"-m", file, "--ram", "1GiB"};
    words.insert(words.end(), std::begin(kMachine), std::end(kMachine));
    const Json stored = plan(words);
    words = {"--like", "tiny", "--type", type, "--ram", "1GiB"};
    words.insert(words.end(), std::begin(kMachine), std::end(kMachine));
    const Json assumed = plan(words);
    EXPECT_EQ(assumed["weights"], formatted("assumed a GGUF file of mostly {}", type));
    for (const char* figure : {"bytes_per_expert_by_format", "experts_bytes", "dense_bytes"}) {
      EXPECT_EQ(assumed["memory"][figure], stored["memory"][figure]) << type << ", " << figure;
    }
  }
  const ProgramOutput unknown = moeflux({"plan", "--like", "tiny", "--type", "Q9"});
  EXPECT_EQ(unknown.status, 1);
  EXPECT_TRUE(contains(unknown.err, "--type Q9")) << unknown.err;
  const ProgramOutput alone = moeflux({"plan", "--type", "Q4_K"});
  EXPECT_EQ(alone.status, 1);
  EXPECT_TRUE(contains(alone.err, "--like NAME")) << alone.err;
}

TEST(Plan, DescribesAGpu) {
  const Words machine = {"plan", "--vram", "12G", "--vram-bandwidth",   "330", "--ram",
                         "28G",  "--pcie", "22",  "--memory-bandwidth", "46",  "--drive",
                         "3",    "--like"};
  Words words = machine;
  words.push_back("qwen3.6-35b-a3b");
  const ProgramOutput text = moeflux(words);
  expect_success(text);
  for (const char* piece :
       {"experts on the device", "ring", "experts on the host", "GPU  host", "22.00 GB/s  given",
        "assumed; see --arithmetic", "Text is limited by", "those used most on the device too"}) {
    EXPECT_TRUE(contains(text.out, piece)) << "'" << piece << "' is not in: " << text.out;
  }
  words = machine;
  words[2] = "8G";
  words.push_back("deepseek-v3");
  const ProgramOutput small = moeflux(words);
  expect_success(small);
  EXPECT_TRUE(contains(small.out, "does not fit")) << small.out;
  EXPECT_FALSE(contains(small.out, "tokens/s")) << small.out;
}

TEST(Plan, DenseModelsLargerThanMemoryHaveASpeedFromTheDrive) {
  Words words = {"--like", "qwen3.8-27b", "--ram", "12G", "-c", "4096"};
  words.insert(words.end(), std::begin(kMachine), std::end(kMachine));
  const Json refused = plan(words);
  EXPECT_EQ(refused["memory"]["fits"], false);
  EXPECT_EQ(refused["memory"]["streamed_bytes"], 0);
  words.emplace_back("--stream-dense");
  const Json streamed = plan(words);
  EXPECT_EQ(streamed["memory"]["fits"], true);
  const double read = streamed["memory"]["streamed_bytes"];
  EXPECT_GT(read, 2e9);
  EXPECT_EQ(streamed["decode"]["natural_low"]["read_bytes_per_token"], read);
  EXPECT_EQ(streamed["decode"]["natural_low"]["limit"], "drive");
  EXPECT_NEAR(streamed["decode"]["natural_low"]["tokens_per_second"].get<double>(), 2e9 / read,
              1e-9);
  words = {"plan"};
  words.insert(words.end(), {"--like", "qwen3.8-27b", "--ram", "12G"});
  words.insert(words.end(), std::begin(kMachine), std::end(kMachine));
  const ProgramOutput text = moeflux(words);
  expect_success(text);
  for (const char* piece : {"does not fit", "largest type that would fit", "with --stream-dense"}) {
    EXPECT_TRUE(contains(text.out, piece)) << "'" << piece << "' is not in: " << text.out;
  }
}

TEST(Plan, DenseModelsLargerThanAGpuAreReadOverTheBus) {
  const auto on_gpu = [](const char* vram, const char* ram) {
    Words words = {"--like", "qwen3.8-27b", "--vram", vram, "--ram", ram, "-c", "4096"};
    words.insert(words.end(), std::begin(kMachine), std::end(kMachine));
    return plan(words);
  };
  const Json all = on_gpu("24G", "64G");
  EXPECT_EQ(all["memory"]["dense_host_bytes"], 0);
  const Json part = on_gpu("12G", "64G");
  EXPECT_EQ(part["memory"]["fits"], true);
  EXPECT_GT(part["memory"]["dense_host_bytes"], 1e9);
  EXPECT_GT(part["decode"]["natural_low"]["bus_bytes"], 1e9);
  EXPECT_LT(part["decode"]["natural_low"]["tokens_per_second"],
            all["decode"]["natural_low"]["tokens_per_second"]);
  EXPECT_EQ(on_gpu("12G", "1G")["memory"]["fits"], false);
}

TEST(Plan, CountsWhatAStepReadsOfTablesAndTheKeysThatAGpuGathers) {
  const Json tables = plan_like("qwen3.8-flash-next", "64GiB");
  EXPECT_GT(tables["memory"]["table_rows_bytes"], 1 << 20);
  EXPECT_LT(tables["memory"]["table_rows_bytes"], 1 << 28);
  Words words = {"--like", "deepseek-v4-flash", "--vram", "32G", "--ram", "256G", "-c", "1048576"};
  words.insert(words.end(), std::begin(kMachine), std::end(kMachine));
  // 8,192 entries of 128 tokens and a window of as many: 33 tiles of 256 keys of 512 numbers in
  // f16.
  const Json listed = plan(words);
  EXPECT_EQ(listed["memory"]["listed_key_bytes"],
            uint64_t{4} * 33 * 256 * 512 * 2 + kListedTogetherBytes);
  EXPECT_GT(listed["memory"]["scratch_bytes"],
            listed["memory"]["listed_key_bytes"].get<uint64_t>());
}

// As the engine does: a small GPU would have nothing left for experts beside half a gigabyte.
TEST(Plan, LeavesAnEighthOfASmallGpuFree) {
  const auto reserve = [](const char* vram) {
    const ProgramOutput output =
        moeflux({"plan", "--like", "tiny", "--vram", vram, "--ram", "4G", "--vram-bandwidth", "100",
                 "--pcie", "10", "--memory-bandwidth", "20", "--drive", "1", "--json"});
    expect_success(output);
    const auto report = parse_json(output.out, "plan");
    EXPECT_TRUE(report.ok());
    return report.ok() ? (*report)["memory"]["reserve_bytes"].get<uint64_t>() : 0;
  };
  EXPECT_EQ(reserve("1G"), uint64_t{128} << 20);
  EXPECT_EQ(reserve("12G"), uint64_t{512} << 20);
}

TEST(Plan, ABusWithoutAGpuIsRefused) {
  const ProgramOutput output =
      moeflux({"plan", "--like", "tiny", "--device", "cpu", "--pcie", "25"});
  EXPECT_EQ(output.status, 1);
  EXPECT_TRUE(contains(output.err, "--vram")) << output.err;
}

TEST(Plan, RefusesTwoModels) {
  const ProgramOutput both = moeflux({"plan", "--like", "tiny", "-m", "somewhere"});
  EXPECT_EQ(both.status, 1);
  EXPECT_TRUE(contains(both.err, "not both")) << both.err;
}

TEST(ExpertProfile, IsMadeByRunAndGrows) {
  const TempFolder folder;
  const std::string path = folder / "uses.json";
  const Words run = {"run", "-q", "--ignore-eos", "-n", "5", "--expert-profile", path, "Once"};
  std::string first_text;
  uint64_t tokens = 0;
  for (int i = 0; i < 2; ++i) {
    const ProgramOutput output = moeflux(run);
    expect_success(output);
    if (i == 0) first_text = output.out;
    EXPECT_EQ(output.out, first_text);  // a profile changes no text
    const auto profile = parse_json(read_bytes(path), "profile");
    ASSERT_TRUE(profile.ok());
    const uint64_t now = (*profile)["tokens"];
    EXPECT_GT(now, tokens);
    tokens = now;
  }
}

TEST(ExpertProfile, AnotherFileIsAnErrorAndStays) {
  const TempFolder folder;
  const std::string path = folder / "notes.txt";
  write_bytes(path, "not a profile");
  const ProgramOutput output = moeflux({"run", "-n", "1", "--expert-profile", path, "Once"});
  EXPECT_EQ(output.status, 1);
  EXPECT_TRUE(contains(output.err, "notes.txt")) << output.err;
  EXPECT_EQ(read_bytes(path), "not a profile");
}

// A cache of a few tokens' experts sets slots aside; the replay does so when it is asked to. In a
// trace what was guessed in time is resident, though it counts as a miss: so no guesses here.
TEST(Replay, WithStagingHasTheVeryHitsOfTheRun) {
  const TempFolder folder;
  const std::string path = folder / "routes.csv";
  const Json plan_of_model = plan({});
  const uint64_t slot = plan_of_model["memory"]["slot_bytes"];
  constexpr int kSlots = 96;
  expect_success(
      moeflux({"run", "-q", "--ignore-eos", "-n", "20", "--route-trace", path, "--lookahead", "off",
               "--expert-cache", std::to_string(kSlots * slot), "Once upon a time"}));
  uint64_t hits = 0;
  uint64_t lookups = 0;
  std::istringstream rows(read_bytes(path));
  for (std::string row; std::getline(rows, row);) {
    if (row.starts_with("#") || row.starts_with("turn")) continue;
    std::vector<std::string> cells;
    std::istringstream columns(row);
    for (std::string cell; std::getline(columns, cell, ',');) cells.push_back(cell);
    if (cells.at(1) != "1") continue;
    ++lookups;
    if (cells.at(7) == "1") ++hits;
  }
  const ProgramOutput replayed =
      moeflux({"replay", path, "--staging", "--cache", std::to_string(kSlots), "--json"});
  expect_success(replayed);
  const auto json = parse_json(replayed.out, "replay");
  ASSERT_TRUE(json.ok());
  EXPECT_GT(lookups, 0u);
  EXPECT_EQ((*json)["caches"][0]["hits"], hits);
  EXPECT_EQ((*json)["caches"][0]["misses"], lookups - hits);
}

}  // namespace
}  // namespace moeflux::testing
