#include "cli/run_report.h"

#include <gtest/gtest.h>

namespace moeflux {
namespace {

RunStatistics sample_run() {
  GenerateResult result{.prompt_tokens = 8,
                        .generated_tokens = 5,
                        .prefill_seconds = 2.0,
                        .decode_seconds = 0.5,
                        .decode_steps = 4};
  result.prefill_experts = {.misses = 10, .bytes_read = 1 << 20, .read_us = 1000};
  result.decode_experts = {.hits = 30,
                           .misses = 10,
                           .bytes_read = 4 << 20,
                           .stall_us = 8000,
                           .prefetches = 6,
                           .prefetches_useful = 4,
                           .read_us = 2000,
                           .lookahead_us = 500};
  return {.result = result, .seed = 7, .peak_memory_bytes = 3 << 20};
}

TEST(RunStatistics, WhatCutATextIsAnOptionOrTheContext) {
  EXPECT_EQ(cut_by(FinishReason::kTokensMax, 512, 2048), "-n, --n-predict");
  EXPECT_EQ(cut_by(FinishReason::kContextFull, 512, 2048),
            "the context of 512 tokens is full; -c, --ctx-size raises it, up to 2048");
  EXPECT_EQ(context_full_line(2048, 2048),
            "the context of 2048 tokens is full, the longest that the model takes");
}

TEST(RunStatistics, LineTellsSpeedHitsDriveStallAndPrefetches) {
  EXPECT_EQ(run_statistics_line(sample_run()),
            "prefill 8 tokens, 4.0 tokens/s | decode 4 tokens, 8.0 tokens/s | expert hits 75.0 % "
            "| read 1.00 MiB/token at 2.10 GB/s | stall 2.0 ms/token | prefetch 4 of 6 useful "
            "| prompt read 1.00 MiB | peak memory 3.00 MiB");
}

TEST(RunStatistics, LineTellsDraftsWhereThereWereAny) {
  RunStatistics run = sample_run();
  EXPECT_EQ(run_statistics_line(run).find("draft"), std::string::npos);
  run.result.drafts = {
      .drafts = 2, .drafted = 12, .accepted = 9, .seconds = 2.0, .plain_seconds = 3.0};
  const std::string line = run_statistics_line(run);
  EXPECT_NE(line.find("| drafts 9 of 12 accepted, 1.50 times as fast |"), std::string::npos)
      << line;
  EXPECT_EQ(run_statistics_json(run)["draft_n_accepted"], 9);
}

TEST(RunStatistics, LineIsSilentAboutADriveThatWasNotNeeded) {
  RunStatistics run = sample_run();
  run.result.decode_experts = {.hits = 40};
  const std::string line = run_statistics_line(run);
  EXPECT_EQ(line.find("stall"), std::string::npos) << line;
  EXPECT_EQ(line.find("prefetch"), std::string::npos) << line;
  EXPECT_NE(line.find("expert hits 100.0 %"), std::string::npos) << line;
}

TEST(RunStatistics, LineIsSilentAboutExpertsThatNobodyLooksUp) {
  RunStatistics run = sample_run();
  run.result.decode_experts = {};
  EXPECT_EQ(run_statistics_line(run).find("expert"), std::string::npos);
}

TEST(RunStatistics, RowsOfTablesAreToldApart) {
  RunStatistics run = sample_run();
  run.result.decode_experts.table_bytes_read = 4 << 12;
  run.result.decode_experts.table_stall_us = 2000;
  const std::string line = run_statistics_line(run);
  EXPECT_NE(line.find(" | rows of tables 4.00 KiB/token, stall 0.5 ms/token"), std::string::npos)
      << line;
  const Json json = run_statistics_json(run);
  EXPECT_DOUBLE_EQ(json["decode"]["table_bytes_per_token"].get<double>(), 4096.0);
  EXPECT_DOUBLE_EQ(json["decode"]["table_stall_seconds"].get<double>(), 2e-3);
  EXPECT_EQ(json["prefill"]["table_bytes"], 0);
}

TEST(RunStatistics, JsonHasTheSameFiguresUnrounded) {
  const Json json = run_statistics_json(sample_run());
  const Json& decode = json["decode"];
  EXPECT_DOUBLE_EQ(decode["expert_hit_rate"].get<double>(), 0.75);
  EXPECT_DOUBLE_EQ(decode["storage_bytes_per_token"].get<double>(), 1 << 20);
  EXPECT_DOUBLE_EQ(decode["drive_bytes_per_second"].get<double>(), (4 << 20) / 2e-3);
  EXPECT_DOUBLE_EQ(decode["stall_seconds_per_token"].get<double>(), 2e-3);
  EXPECT_EQ(decode["prefetches"], 6);
  EXPECT_EQ(decode["prefetches_useful"], 4);
  EXPECT_DOUBLE_EQ(decode["lookahead_seconds"].get<double>(), 5e-4);
  EXPECT_DOUBLE_EQ(json["prefill"]["tokens_per_second"].get<double>(), 4.0);
  EXPECT_EQ(json["seed"], 7);
  EXPECT_EQ(json["finish_reason"], "length");
}

TEST(RunStatistics, AnErrorIsTheEndOfTheText) {
  RunStatistics run = sample_run();
  run.failed = true;
  EXPECT_TRUE(run_statistics_line(run).ends_with(" | error"));
  EXPECT_EQ(run_statistics_json(run)["finish_reason"], "error");
}

TEST(RunStatistics, NothingDividesByZero) {
  const Json json = run_statistics_json({});
  EXPECT_EQ(json["decode"]["tokens_per_second"], 0.0);
  EXPECT_EQ(json["decode"]["expert_hit_rate"], 1.0);
  EXPECT_FALSE(run_statistics_line({}).empty());
}

}  // namespace
}  // namespace moeflux
