#include "cli/bench_report.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace moeflux {
namespace {

BenchResult sample() {
  BenchResult result{.model_filename = "folder with \"quotes\", and | bars",
                     .model_type = "family affine-4/64",
                     .model_size = 5'000'000,
                     .model_n_params = 9'000'000,
                     .backend = "cpu",
                     .device = "cpu (generic f32, 2 threads)",
                     .precision = "f32",
                     .threads = 2,
                     .batch = 512,
                     .test = {.n_gen = 4, .n_depth = 100},
                     .test_time = "2026-01-02T03:04:05Z",
                     .traffic = {.dense_bytes = 1000, .expert_bytes = 400, .state_bytes = 100},
                     .routes = "uniform",
                     .bandwidth_bytes_per_second = 15e9,
                     .expert_cache_bytes = 4096,
                     .peak_memory_bytes = 8192};
  result.run.samples_ns = {1000, 3000};  // 4 and 1.333 tokens a microsecond
  result.run.experts = {.hits = 6,
                        .misses = 2,
                        .bytes_read = 800,
                        .stall_us = 16,
                        .prefetches = 5,
                        .prefetches_useful = 3,
                        .read_us = 8,
                        .lookahead_us = 24,
                        .table_bytes_read = 1600,
                        .table_stall_us = 4};
  result.drive_probe_bytes_per_second = 2e8;
  return result;
}

TEST(BenchStatistics, MeanAndDeviationOfTheSample) {
  const std::vector<double> samples = {2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0};
  EXPECT_DOUBLE_EQ(summarize(samples).mean, 5.0);
  EXPECT_NEAR(summarize(samples).deviation, 2.13809, 1e-5);  // sqrt(32 / 7)
  EXPECT_EQ(summarize(std::vector<double>{3.0}).mean, 3.0);
  EXPECT_EQ(summarize(std::vector<double>{3.0}).deviation, 0.0);
  EXPECT_EQ(summarize({}).mean, 0.0);
}

TEST(BenchResultNames, AreLlamaBenchs) {
  EXPECT_EQ(sample().name(), "tg4 @ d100");
  EXPECT_EQ((BenchResult{.test = {.n_prompt = 512}}.name()), "pp512");
  EXPECT_EQ((BenchResult{.test = {.n_prompt = 512, .n_gen = 32}}.name()), "pp512+tg32");
}

TEST(BenchResultNames, SayPlanAndNearCacheWhereThereIsAChoice) {
  BenchResult result = sample();
  EXPECT_EQ(result.label(), "tg4 @ d100");
  result.plan = "helper";
  EXPECT_EQ(result.label(), "tg4 @ d100, near cache auto, plan helper");
  result.near_cache_bytes = uint64_t{1} << 30;
  EXPECT_EQ(result.label(), "tg4 @ d100, near cache 1.00 GiB, plan helper");
  EXPECT_EQ(bench_fields(result)["near_cache_bytes"], 1 << 30);
  const BenchResult cpu = sample();
  const std::vector<BenchResult> both = {cpu, result};
  EXPECT_NE(render_bench(both, BenchFormat::kMarkdown).find("near cache"), std::string::npos);
  EXPECT_EQ(render_bench(std::span(&cpu, 1), BenchFormat::kMarkdown).find("near cache"),
            std::string::npos);
}

TEST(BenchResultRates, AddUp) {
  // 1500 bytes for each of 4 tokens in 2 microseconds on average: 3 GB/s, a fifth of 15.
  EXPECT_DOUBLE_EQ(sample().bytes_per_second(), 3e9);
  EXPECT_DOUBLE_EQ(sample().share_of_bound(), 0.2);
  EXPECT_DOUBLE_EQ(sample().bound_ts(), 1e7);  // 15 GB/s over 1500 bytes
  EXPECT_EQ(BenchResult{}.bound_ts(), 0.0);
  EXPECT_DOUBLE_EQ(sample().expert_hit_rate(), 0.75);
  EXPECT_DOUBLE_EQ(sample().share_of_drive(), 0.5);  // 100 MB/s of 200
  EXPECT_EQ(BenchResult{}.share_of_drive(), 0.0);
  EXPECT_EQ(BenchResult{}.expert_hit_rate(), 1.0);
  EXPECT_EQ(BenchResult{}.share_of_bound(), 0.0);
}

TEST(BenchJson, HasLlamaBenchsFieldsAndOurs) {
  const BenchResult result = sample();
  const auto json = parse_json(render_bench({&result, 1}, BenchFormat::kJson), "report");
  ASSERT_TRUE(json.ok()) << json.error().to_string();
  ASSERT_TRUE(json->is_array());
  ASSERT_EQ(json->size(), 1u);
  const Json& fields = (*json)[0];
  for (const char* key : {"build_commit",
                          "model_filename",
                          "model_type",
                          "model_size",
                          "model_n_params",
                          "n_batch",
                          "n_ubatch",
                          "n_threads",
                          "n_prompt",
                          "n_gen",
                          "n_depth",
                          "test_time",
                          "avg_ns",
                          "stddev_ns",
                          "avg_ts",
                          "stddev_ts",
                          "samples_ns",
                          "samples_ts",
                          "bytes_per_token",
                          "dense_bytes_per_token",
                          "expert_bytes_per_token",
                          "state_bytes_per_token",
                          "bytes_per_second",
                          "memory_bandwidth",
                          "share_of_bound",
                          "bound_ts",
                          "routes",
                          "expert_hit_rate",
                          "stall_ns_per_token",
                          "storage_bytes_per_token",
                          "peak_memory_bytes"}) {
    EXPECT_TRUE(fields.contains(key)) << key;
  }
  EXPECT_EQ(fields["model_filename"], result.model_filename);
  EXPECT_EQ(fields["n_depth"], 100);
  EXPECT_EQ(fields["avg_ns"], 2000);
  EXPECT_EQ(fields["stddev_ns"], 1414);
  EXPECT_NEAR(fields["avg_ts"].get<double>(), (4e6 + 4e6 / 3) / 2, 1.0);
  EXPECT_EQ(fields["bytes_per_token"], 1500);
  EXPECT_EQ(fields["storage_bytes_per_token"], 100);  // 800 over 2 repetitions of 4 tokens
  EXPECT_EQ(fields["stall_ns_per_token"], 2000);
  EXPECT_EQ(fields["table_bytes_per_token"], 200);
  EXPECT_EQ(fields["table_stall_ns_per_token"], 500);
  EXPECT_EQ(fields["drive_bytes_per_second"], 100'000'000);
  EXPECT_EQ(fields["drive_probe_bytes_per_second"], 200'000'000);
  EXPECT_EQ(fields["prefetches"], 5);
  EXPECT_EQ(fields["prefetches_useful"], 3);
  EXPECT_EQ(fields["lookahead_ns_per_token"], 3000);
  EXPECT_EQ(fields["samples_ns"], Json({1000, 3000}));
}

TEST(BenchParallel, TellsTheRateOfAllOfEachAndOfTakingTurns) {
  BenchResult result = sample();
  result.test = {.n_gen = 4, .n_parallel = 8};
  result.run.samples_ns = {1000, 4000, 2000};
  result.run.turns_ns = {2000, 6000, 6000};
  EXPECT_EQ(result.name(), "tg4 x8");
  EXPECT_EQ(result.samples_ts()[0], 32e6);  // 32 tokens in a microsecond
  EXPECT_EQ(result.turns_ts()[0], 16e6);
  EXPECT_DOUBLE_EQ(result.over_turns(), 2.0);  // of 2, 1.5 and 3
  const auto json = parse_json(render_bench({&result, 1}, BenchFormat::kJson), "report");
  ASSERT_TRUE(json.ok()) << json.error().to_string();
  const Json& fields = (*json)[0];
  EXPECT_EQ(fields["n_parallel"], 8);
  EXPECT_EQ(fields["over_turns"], 2.0);
  EXPECT_EQ(fields["turns_ns"], Json({2000, 6000, 6000}));
  EXPECT_DOUBLE_EQ(fields["avg_ts_per_sequence"].get<double>(), fields["avg_ts"].get<double>() / 8);
  const std::string table = render_bench({&result, 1}, BenchFormat::kMarkdown);
  EXPECT_NE(table.find("tg4 x8: 2333333.33 t/s a sequence, 2.000 times what taking turns gives; "
                       "bound 10000000.00 t/s: 7.81 KiB of dense weights, 3.12 KiB of experts "
                       "(uniform routes) and 800 B of states a step"),
            std::string::npos)
      << table;
}

TEST(BenchJson, NamesThatAreNotUtf8DoNotBreakIt) {
  BenchResult result = sample();
  result.model_filename = "bad \xff name";
  const auto json = parse_json(render_bench({&result, 1}, BenchFormat::kJson), "report");
  ASSERT_TRUE(json.ok()) << json.error().to_string();
}

TEST(BenchCsv, QuotesEveryValueUnderOneHeader) {
  const std::vector<BenchResult> results = {sample(), sample()};
  const std::string csv = render_bench(results, BenchFormat::kCsv);
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 3);
  EXPECT_EQ(csv.rfind("build_commit,", 0), 0u);
  EXPECT_NE(csv.find(R"("folder with ""quotes"", and | bars")"), std::string::npos) << csv;
  const std::string header = csv.substr(0, csv.find('\n'));
  EXPECT_EQ(header.find("samples_ns"), std::string::npos);
  EXPECT_NE(header.find("avg_ts,stddev_ts"), std::string::npos);
}

TEST(BenchMarkdown, RowsHaveTheColumnsOfTheHeader) {
  BenchResult other = sample();
  other.model_type = "a|b";
  other.test = {.n_prompt = 512};
  const std::vector<BenchResult> results = {sample(), other};
  const std::string table = render_bench(results, BenchFormat::kMarkdown);
  EXPECT_NE(table.find("tg4 @ d100"), std::string::npos) << table;
  EXPECT_NE(table.find("pp512"), std::string::npos);
  EXPECT_NE(table.find("a\\|b"), std::string::npos);
  EXPECT_NE(table.find("20 %"), std::string::npos);
  EXPECT_NE(table.find("memory bandwidth 15.00 GB/s with 2 threads"), std::string::npos);
  std::vector<int64_t> bars;
  for (size_t begin = 0; table[begin] == '|';) {
    const size_t end = table.find('\n', begin);
    bars.push_back(std::count(table.begin() + static_cast<int64_t>(begin),
                              table.begin() + static_cast<int64_t>(end), '|'));
    begin = end + 1;
  }
  EXPECT_EQ(bars, (std::vector<int64_t>{14, 14, 14, 15}));  // one is escaped
}

}  // namespace
}  // namespace moeflux
