// synth and bench as a user meets them.
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "base/json.h"
#include "tests/integration/moeflux_program.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {
namespace {

using Words = std::vector<std::string>;

void expect_error_line(const Words& arguments, int status, const Words& pieces) {
  const ProgramOutput output = moeflux(arguments);
  EXPECT_EQ(output.status, status) << output.err;
  EXPECT_EQ(output.out, "");
  ASSERT_EQ(output.err_lines().size(), 1u) << output.err;
  EXPECT_EQ(output.err.rfind("error: ", 0), 0u) << output.err;
  for (const std::string& piece : pieces) {
    EXPECT_TRUE(contains(output.err, piece)) << "'" << piece << "' is not in: " << output.err;
  }
}

void synthesize(const std::string& directory, const Words& more = {}) {
  Words words = {"synth", "--like", "tiny", "-o", directory};
  words.insert(words.end(), more.begin(), more.end());
  expect_success(moeflux(words));
}

TEST(Synth, ListsShapesWithTheirSizes) {
  const ProgramOutput list = moeflux({"synth", "--list"});
  expect_success(list);
  for (const char* piece : {"qwen3.6-35b-a3b", "18.2 GiB", "qwen3.5-397b-a17b", "60 layers"}) {
    EXPECT_TRUE(contains(list.out, piece)) << list.out;
  }
  const ProgramOutput gguf = moeflux({"synth", "--list", "--layers", "4", "--gguf", "Q8_0"});
  expect_success(gguf);
  EXPECT_TRUE(contains(gguf.out, "mixtral-8x7b")) << gguf.out;
  EXPECT_FALSE(contains(gguf.out, "18.2 GiB")) << gguf.out;
}

TEST(Synth, ItsModelsRun) {
  const TempFolder folder;
  synthesize(folder / "model");
  const ProgramOutput run = moeflux({"run", "-q", "-n", "4", "-m", folder / "model", "Hello, Ä!"});
  expect_success(run);
  const ProgramOutput tokens =
      moeflux({"tokenize", "--ids", "-m", folder / "model", "Hello, \xc3\x84!"});
  expect_success(tokens);
  EXPECT_EQ(tokens.out, "72,101,108,108,111,44,32,195,132,33\n");
}

TEST(Synth, SameSeedSameBytes) {
  const TempFolder folder;
  synthesize(folder / "a", {"--seed", "3", "-t", "1"});
  synthesize(folder / "b", {"--seed", "3", "-t", "2"});
  synthesize(folder / "c", {"--seed", "4"});
  const std::string shard = "/model-00001-of-00001.safetensors";
  EXPECT_EQ(read_bytes(folder / "a" + shard), read_bytes(folder / "b" + shard));
  EXPECT_NE(read_bytes(folder / "a" + shard), read_bytes(folder / "c" + shard));
}

TEST(Synth, KeepsWhatIsInAFolderUnlessForced) {
  const TempFolder folder;
  write_bytes(folder / "notes.txt", "mine");
  write_bytes(folder / "model-00009-of-00009.safetensors", "old");
  expect_error_line({"synth", "--like", "tiny", "-o", folder.path()}, 1,
                    {folder.path(), "not empty", "--force"});
  EXPECT_EQ(read_bytes(folder / "model-00009-of-00009.safetensors"), "old");
  synthesize(folder.path(), {"--force"});
  synthesize(folder.path(), {"--force", "--layers", "2"});
  EXPECT_EQ(read_bytes(folder / "notes.txt"), "mine");
  EXPECT_EQ(read_bytes(folder / "model-00009-of-00009.safetensors"), "old");
  const ProgramOutput inspect = moeflux({"inspect", "--json", "-m", folder.path()});
  expect_success(inspect);
  const auto report = parse_json(inspect.out, "inspect");
  ASSERT_TRUE(report.ok());
  EXPECT_EQ((*report)["architecture"]["layers"], 2);
}

TEST(Synth, ForcedItReplacesNoModelThatItDidNotWrite) {
  const TempFolder folder;
  write_bytes(folder / "config.json", "{}");
  write_bytes(folder / "model-00001-of-00001.safetensors", "mine");
  for (const char* how : {"--force", "--pack"}) {
    expect_error_line({"synth", "--like", "tiny", "--force", how, "-o", folder.path()}, 1,
                      {folder.path(), "config.json and 1 more", "moeflux_files.json"});
  }
  EXPECT_EQ(read_bytes(folder / "config.json"), "{}");
  EXPECT_EQ(read_bytes(folder / "model-00001-of-00001.safetensors"), "mine");
}

TEST(Synth, ErrorsNameWhatIsWrong) {
  const TempFolder folder;
  const std::string out = folder / "x";
  expect_error_line({"synth"}, 1, {"--like", "--list"});
  expect_error_line({"synth", "--like", "tiny"}, 1, {"-o FOLDER"});
  expect_error_line({"synth", "--like", "huge", "-o", out}, 1, {"huge", "synth --list"});
  expect_error_line({"synth", "--like", "tiny", "--layers", "9", "-o", out}, 1, {"9 layers"});
  expect_error_line({"synth", "--like", "tiny", "--bits", "5", "-o", out}, 2, {"--bits"});
  expect_error_line({"synth", "--like", "tiny", "--group", "7", "-o", out}, 2, {"--group"});
  expect_error_line({"synth", "--like", "tiny", "--seed", "-1", "-o", out}, 2, {"--seed"});
  EXPECT_FALSE(std::filesystem::exists(out));
  expect_error_line({"synth", "--like", "tiny", "-o", out + "/y/z"}, 1, {"cannot create"});
  write_bytes(out, "");
  expect_error_line({"synth", "--like", "tiny", "-o", out}, 1, {"is a file"});
}

TEST(Synth, WritesOneGgufFileThatRuns) {
  const TempFolder folder;
  const std::string file = folder / "tiny.gguf";
  const Words words = {"synth", "--like", "tiny", "--gguf", "q4_k", "-o", file};
  expect_success(moeflux(words));
  const ProgramOutput inspected = moeflux({"inspect", "-m", file});
  expect_success(inspected);
  // Rows of 128 numbers are no whole blocks of 256.
  for (const char* piece : {"q5_0", "q8_0", "reads per expert                  3"}) {
    EXPECT_TRUE(contains(inspected.out, piece)) << inspected.out;
  }
  expect_success(moeflux({"bench", "-m", file, "-p", "4", "-n", "2", "-r", "1", "-t", "1"}));
  const std::string before = read_bytes(file);
  expect_error_line(words, 1, {"exists", "--force"});
  Words again = words;
  again.insert(again.end(), {"--force", "-s", "0", "-t", "3"});
  expect_success(moeflux(again));
  EXPECT_EQ(read_bytes(file), before);
}

TEST(Synth, MixesTypesByTensor) {
  const TempFolder folder;
  const std::string file = folder / "mixed.gguf";
  const Words begin = {"synth", "--like", "tiny", "-o", file};
  const auto with = [&](Words more) {
    more.insert(more.begin(), begin.begin(), begin.end());
    return more;
  };
  expect_success(moeflux(with({"--gguf", "IQ4_NL", "--mix", "ffn_down_exps=Q2_0,ffn_gate_exps=q5_1",
                               "--mix", "output=Q8_0"})));
  const ProgramOutput inspected = moeflux({"inspect", "-m", file});
  expect_success(inspected);
  for (const char* piece : {"iq4_nl", "q2_0", "q5_1", "q8_0"}) {
    EXPECT_TRUE(contains(inspected.out, piece)) << inspected.out;
  }
  expect_success(moeflux({"bench", "-m", file, "-p", "4", "-n", "2", "-r", "1", "-t", "1"}));
  std::filesystem::remove(file);
  expect_error_line(with({"--mix", "ffn_down_exps=Q2_0"}), 1, {"--mix", "--gguf"});
  expect_error_line(with({"--gguf", "Q4_0", "--mix", "Q2_0"}), 1, {"--mix Q2_0", "NAME=TYPE"});
  expect_error_line(with({"--gguf", "Q4_0", "--mix", "output=Q9"}), 1, {"output=Q9", "\"Q9\""});
  expect_error_line(with({"--gguf", "Q4_0", "--mix", "ffn_up_exps=IQ2_XS"}), 1,
                    {"ffn_up_exps.weight", "IQ2_XS", "256"});
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST(Synth, RefusesGgufThatItCannotWrite) {
  const TempFolder folder;
  const auto refuse = [&](const Words& more, int status, std::vector<std::string> pieces) {
    Words words = {"synth", "--like", "tiny", "-o", folder / "x.gguf"};
    words.insert(words.end(), more.begin(), more.end());
    expect_error_line(words, status, pieces);
  };
  refuse({"--gguf", "Q4_X"}, 1, {"Q4_X"});
  refuse({"--gguf", "NVFP4"}, 1, {"NVFP4"});
  refuse({"--gguf", "Q4_0", "--layers", "1"}, 1, {"attention"});
  refuse({"--gguf", "Q4_0", "--bits", "8"}, 2, {"--bits", "--gguf"});
  refuse({"--gguf", "Q4_0", "--pack"}, 2, {"--pack", "--gguf"});
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  write_bytes(folder / "x.gguf", "not a model");
  refuse({"--gguf", "Q4_0", "--force"}, 1, {"exists", "not a GGUF file"});
}

TEST(Synth, SaysWhatADiskLacksAndWritesNothing) {
  const TempFolder folder;
  const uintmax_t free = std::filesystem::space(folder.path()).available;
  if (free > uintmax_t{600} << 30) {
    GTEST_SKIP() << "hardware: " << free << " bytes are free, too many to run out of";
  }
  std::vector<std::string> arguments = {"synth", "--like", "deepseek-v3", "--bits", "8"};
  for (const char* option : {"--force", "--pack"}) {
    arguments.insert(arguments.end(), {option, "-o", folder / "x"});
    expect_error_line(arguments, 1, {"needs 6", "GiB are free"});
    EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << option;
    arguments.resize(5);
  }
}

TEST(Bench, SaysWhereAPackWouldBeFaster) {
  const TempFolder folder;
  synthesize(folder / "model");
  const auto hint_of = [&](const std::string& model, const char* cache) {
    const ProgramOutput bench = moeflux({"bench", "-m", model, "-p", "0", "-n", "1", "-r", "1",
                                         "-t", "1", "--expert-cache", cache});
    EXPECT_EQ(bench.status, 0) << bench.err;
    return contains(bench.err, "moeflux pack");
  };
  EXPECT_TRUE(hint_of(folder / "model", "100K"));
  EXPECT_FALSE(hint_of(folder / "model", "64M"));  // nothing streams
  expect_success(moeflux({"pack", "-m", folder / "model", "-o", folder / "packed"}));
  EXPECT_FALSE(hint_of(folder / "packed", "100K"));
}

TEST(Bench, JsonHasARowForEveryTest) {
  const TempFolder folder;
  synthesize(folder / "model");
  const ProgramOutput bench =
      moeflux({"bench", "-m", folder / "model", "-m", fable(), "-p", "8,16", "-n", "2", "-d",
               "0,10", "-r", "2", "-t", "1", "-o", "json"});
  expect_success(bench);
  const auto rows = parse_json(bench.out, "bench");
  ASSERT_TRUE(rows.ok()) << rows.error().to_string();
  ASSERT_EQ(rows->size(), 12u);
  EXPECT_EQ((*rows)[0]["model_filename"], folder / "model");
  EXPECT_EQ((*rows)[11]["model_filename"], fable());
  EXPECT_EQ((*rows)[1]["n_prompt"], 16);
  EXPECT_EQ((*rows)[5]["n_gen"], 2);
  EXPECT_EQ((*rows)[5]["n_depth"], 10);
  for (const Json& row : *rows) {
    EXPECT_EQ(row["samples_ns"].size(), 2u);
    EXPECT_EQ(row["n_threads"], 1);
    // Whichever of the two this machine's kernels are faster with.
    const bool is_int8 = contains(row["device"].get<std::string>(), " int8,");
    EXPECT_EQ(row["precision"], is_int8 ? "int8" : "f32");
    EXPECT_GT(row["avg_ts"].get<double>(), 0.0);
    EXPECT_GT(row["memory_bandwidth"].get<uint64_t>(), 0u);
    EXPECT_GT(row["expert_bytes_per_token"].get<uint64_t>(), 0u);
  }
}

TEST(Bench, ColdExpertsAreCountedAsReads) {
  const ProgramOutput bench = moeflux({"bench", "-p", "0", "-n", "4", "-r", "1", "--expert-cache",
                                       "0", "-o", "json", "--device", "reference"});
  EXPECT_EQ(bench.status, 0) << bench.err;
  const auto rows = parse_json(bench.out, "bench");
  ASSERT_TRUE(rows.ok());
  const Json& row = (*rows)[0];
  EXPECT_EQ(row["backends"], "reference");
  EXPECT_EQ(row["precision"], "f32");
  EXPECT_LT(row["expert_hit_rate"].get<double>(), 0.5);
  EXPECT_GT(row["storage_bytes_per_token"].get<uint64_t>(),
            row["expert_bytes_per_token"].get<uint64_t>() / 2);
}

// A trace of routes has the tokens of every repetition, whether it counts or not.
TEST(Bench, WithoutAWarmUpOnlyWhatCountsIsEvaluated) {
  const TempFolder folder;
  synthesize(folder / "model");
  const auto routes_of = [&](const Words& more) {
    const std::string trace = folder / "routes.csv";
    Words words = {"bench", "-m",  folder / "model", "-p", "0", "-n", "3", "-d", "5", "-r", "2",
                   "-o",    "csv", "--route-trace",  trace};
    words.insert(words.end(), more.begin(), more.end());
    expect_success(moeflux(words));
    int64_t routes = 0;
    std::istringstream rows(read_bytes(trace));
    for (std::string row; std::getline(rows, row);) routes += row.starts_with("#") ? 0 : 1;
    return routes - 1;  // the names of the columns
  };
  const int64_t counted = routes_of({"--no-warmup"});
  EXPECT_GT(counted, 0);
  // All repetitions go on from five tokens that are evaluated once.
  EXPECT_EQ((5 + 2 * 3) * routes_of({}), (5 + 3 * 3) * counted);
}

// Three experts of tiny's are 100 KiB: neither near cache holds all. The program's emulator has no
// matrix units, so nobody has its bits.
TEST(Bench, NearCachesAndPlansHaveRowsOfTheirOwn) {
  const TempFolder folder;
  synthesize(folder / "model");
  const Words base = {"bench",
                      "-m",
                      folder / "model",
                      "-p",
                      "0",
                      "-n",
                      "1",
                      "-r",
                      "2",
                      "-t",
                      "1",
                      "--device",
                      "emulator,memory=16",
                      "--near-cache",
                      "100K,200K",
                      "--plan",
                      "auto,resident,near,helper",
                      "-o"};
  Words json = base;
  json.emplace_back("json");
  const ProgramOutput bench = moeflux(json);
  EXPECT_EQ(bench.status, 0) << bench.err;
  EXPECT_TRUE(contains(bench.err, "left out: plan helper")) << bench.err;
  const auto rows = parse_json(bench.out, "bench");
  ASSERT_TRUE(rows.ok()) << rows.error().to_string();
  std::vector<std::string> cells;
  for (const Json& row : *rows) {
    EXPECT_EQ(row["samples_ns"].size(), 2u);
    cells.push_back(row["near_cache_bytes"].dump() + " " + row["plan"].get<std::string>());
  }
  EXPECT_EQ(cells,
            (Words{"102400 auto", "102400 near", "204800 auto", "204800 near", "null resident"}));
  Words table = base;
  table.emplace_back("md");
  const ProgramOutput text = moeflux(table);
  EXPECT_EQ(text.status, 0) << text.err;
  for (const char* piece : {"near cache |", "100.0 KiB |     near |", "auto | resident |"}) {
    EXPECT_TRUE(contains(text.out, piece)) << piece << " is not in\n" << text.out;
  }
}

TEST(Bench, APlanThatIsNotPossibleIsLeftOutOfSeveral) {
  const TempFolder folder;
  synthesize(folder / "model");
  const auto bench = [&](const char* plans) {
    return moeflux({"bench", "-m", folder / "model", "-p", "0", "-n", "1", "-r", "1", "-t", "1",
                    "--device", "emulator,memory=4", "--near-cache", "100K", "--plan", plans, "-o",
                    "csv"});
  };
  const ProgramOutput several = bench("near,resident");
  EXPECT_EQ(several.status, 0) << several.err;
  EXPECT_TRUE(contains(several.err, "left out: plan resident")) << several.err;
  const ProgramOutput one = bench("resident");
  EXPECT_EQ(one.status, 1);
  EXPECT_TRUE(contains(one.err, "plan resident")) << one.err;
}

TEST(Bench, TableAndCsvAreForPeopleAndSpreadsheets) {
  const TempFolder folder;
  write_bytes(folder / "text", "Once upon a time there was a bench.");
  const Words base = {"bench", "-p", "8", "-n", "2", "-r", "1", "-f", folder / "text", "-o"};
  const auto with = [&](const std::string& output) {
    Words words = base;
    words.push_back(output);
    const ProgramOutput bench = moeflux(words);
    expect_success(bench);
    return bench.out;
  };
  const std::string table = with("md");
  for (const char* piece : {"pp8", "tg2", "t/s", "memory bandwidth"}) {
    EXPECT_TRUE(contains(table, piece)) << table;
  }
  EXPECT_TRUE(contains(with("csv"), "n_prompt,n_gen,n_depth"));
}

TEST(Bench, ErrorsNameWhatIsWrong) {
  const TempFolder folder;
  write_bytes(folder / "empty", "");
  expect_error_line({"bench", "-p", "0", "-n", "0"}, 1, {"-p", "-n"});
  expect_error_line({"bench", "-p", "-4"}, 2, {"--n-prompt"});
  expect_error_line({"bench", "-p", "x"}, 2, {"x"});
  expect_error_line({"bench", "-r", "0"}, 2, {"--repetitions"});
  expect_error_line({"bench", "-o", "xml"}, 2, {"--output"});
  expect_error_line({"bench", "-m", ""}, 2, {"--model"});
  expect_error_line({"bench", "-m", folder / "none"}, 1, {"none"});
  expect_error_line({"bench", "-f", folder / "none"}, 1, {"none"});
  expect_error_line({"bench", "-f", folder / "empty"}, 1, {"no tokens"});
  expect_error_line({"bench", "-d", "99999"}, 1, {"4096"});
  expect_error_line({"bench", "-c", "16", "-p", "32"}, 1, {"context of 16"});
}

TEST(BenchText, ForcesATextWithoutAndWithDrafts) {
  const TempFolder folder;
  const std::string file = folder / "text.txt";
  const std::string sentence = "the cat sat on the mat and the dog sat on the log";
  write_bytes(file, "Copy this: " + sentence + "\f" + sentence);
  const Words words = {"bench", "--text", file, "-r", "1", "-t", "1", "--draft", "on"};
  const ProgramOutput table = moeflux(words);
  expect_success(table);
  for (const char* piece : {"| forced text", "| text.txt", "tokens/step", "forced text: each"}) {
    EXPECT_TRUE(contains(table.out, piece)) << table.out;
  }
  Words json = words;
  json.insert(json.end(), {"--text", file, "-o", "json"});
  const ProgramOutput output = moeflux(json);
  expect_success(output);
  const auto results = parse_json(output.out, "bench");
  ASSERT_TRUE(results.ok());
  ASSERT_EQ(results->size(), 2u);
  const Json& result = (*results)[0];
  EXPECT_EQ(result["forced_text"], file);
  EXPECT_EQ(result["draft"], "on");
  EXPECT_EQ(result["tokens"].get<int64_t>() - result["steps"].get<int64_t>(),
            result["draft_n_accepted"].get<int64_t>());
  EXPECT_GT(result["draft_n_accepted"], 0);
  EXPECT_EQ(result["samples_ns_without"].size(), 1u);
}

TEST(BenchText, ErrorsNameWhatIsWrong) {
  const TempFolder folder;
  const std::string file = folder / "text.txt";
  write_bytes(file, "one\f");
  expect_error_line({"bench", "--text", file}, 1, {file, "part 2", "form feeds"});
  expect_error_line({"bench", "--text", folder / "none"}, 1, {"none"});
  expect_error_line({"bench", "--text", file, "-n", "4"}, 2, {"--text", "--n-gen"});
  expect_error_line({"bench", "--text", file, "--plan", "near,helper"}, 1, {file});
}

}  // namespace
}  // namespace moeflux::testing
