// Benchmark results as a table, JSON or CSV, in llama-bench's manner and under its names.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "lab/benchmark.h"
#include "lab/traffic.h"
#include "model/mixer.h"

namespace moeflux {

struct SampleStats {
  double mean = 0.0;
  double deviation = 0.0;  // of the sample: over n - 1; 0 for fewer than two
};
SampleStats summarize(std::span<const double> samples);

/// One test of one model.
struct BenchResult {
  std::string model_filename;
  std::string model_type;  // "family, format of the experts"
  uint64_t model_size = 0;
  uint64_t model_n_params = 0;
  std::string backend;
  std::string device;     // as it describes itself
  std::string precision;  // of activations against quantised weights: "f32", "int16", "q16", "int8"
  CacheTypes cache_types;
  std::string plan;  // who computes experts; empty where the device has no memory of its own
  std::optional<uint64_t> near_cache_bytes;  // asked for; none: what was free
  int threads = 0;
  int64_t batch = 0;
  BenchmarkTest test;
  std::string test_time;  // ISO 8601, UTC
  BenchmarkRun run;
  Traffic traffic;     // per token
  std::string routes;  // of Traffic's experts: "counted", "recorded" or "uniform"
  double bandwidth_bytes_per_second = 0.0;
  double drive_probe_bytes_per_second = 0.0;  // 0: nothing was read, nothing probed
  uint64_t expert_cache_bytes = 0;
  uint64_t peak_memory_bytes = 0;

  /// Tokens per second of each repetition, of all sequences.
  std::vector<double> samples_ts() const;
  /// The same tokens by turns; empty without BenchmarkTest::n_parallel.
  std::vector<double> turns_ts() const;
  /// How many times as fast common steps are: the median of the repetitions; 0 without them.
  double over_turns() const;
  /// "pp512", "tg32 @ d4096", "tg32 x8".
  std::string name() const;
  /// The same with plan and near cache, if there is a plan.
  std::string label() const;
  /// The least time per token, at the measured bandwidth, over the time it took.
  double share_of_bound() const;
  /// Tokens per second of all sequences in that time; 0 without a bandwidth.
  double bound_ts() const;
  double bytes_per_second() const;
  /// The drive's rate while reads were in flight, over its rate in the probe.
  double share_of_drive() const;
  double expert_hit_rate() const;  // 1 when nothing was looked up
};

enum class BenchFormat : uint8_t { kMarkdown, kJson, kCsv };

std::string render_bench(std::span<const BenchResult> results, BenchFormat format);

/// A line of a table in Markdown.
using BenchRow = std::vector<std::string>;
/// A name as a cell has it.
std::string bench_cell(std::string_view text);
/// The first row is the head; the first column is text, the others are numbers.
std::string bench_table(std::span<const BenchRow> rows);
/// Results by their fields; not in Markdown.
std::string render_fields(std::span<const Json> results, BenchFormat format);

/// The fields of one result, in llama-bench's order, ours at the end.
Json bench_fields(const BenchResult& result);

}  // namespace moeflux
