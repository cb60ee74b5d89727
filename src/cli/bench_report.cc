#include "cli/bench_report.h"

#include <algorithm>
#include <cmath>

#include "base/format.h"
#include "base/units.h"
#include "engine/cache_types.h"

namespace moeflux {
namespace {

std::vector<double> as_doubles(const std::vector<uint64_t>& values) {
  return {values.begin(), values.end()};
}

std::vector<double> speeds_of(std::span<const uint64_t> samples_ns, int64_t tokens) {
  std::vector<double> speeds;
  for (const uint64_t ns : samples_ns) {
    speeds.push_back(1e9 * static_cast<double>(tokens) /
                     static_cast<double>(std::max<uint64_t>(1, ns)));
  }
  return speeds;
}

uint64_t rounded(double value) { return static_cast<uint64_t>(std::llround(value)); }

double per_token(uint64_t total, const BenchResult& result) {
  const auto tokens = static_cast<double>(result.test.tokens()) *
                      static_cast<double>(std::max<size_t>(1, result.run.samples_ns.size()));
  return static_cast<double>(total) / tokens;
}

std::string csv_quoted(const std::string& text) {
  std::string quoted(1, '"');
  for (const char c : text) quoted.append(c == '"' ? 2 : 1, c);
  quoted += '"';
  return quoted;
}

std::string render_csv(std::span<const Json> results) {
  std::string text;
  for (const Json& fields : results) {
    std::string header;
    std::string row;
    for (const auto& [key, value] : fields.items()) {
      if (value.is_array()) continue;  // as llama-bench: samples are for JSON
      if (!header.empty()) {
        header += ',';
        row += ',';
      }
      header += key;
      row += csv_quoted(value.is_string() ? value.get<std::string>() : value.dump());
    }
    if (text.empty()) text = header + "\n";
    text += row + "\n";
  }
  return text;
}

std::string render_json(std::span<const Json> results) {
  const Json all(Json::array_t(results.begin(), results.end()));
  // A folder's name may be any bytes; what is not UTF-8 is replaced.
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string near_cache_text(const BenchResult& r) {
  return r.near_cache_bytes ? format_bytes(*r.near_cache_bytes) : "auto";
}

BenchRow markdown_row(const BenchResult& r, bool with_plans) {
  const SampleStats speed = summarize(r.samples_ts());
  BenchRow row = {bench_cell(r.model_type), format_bytes(r.model_size),
                  formatted("{:.2f} B", static_cast<double>(r.model_n_params) / 1e9), r.backend,
                  formatted("{}", r.threads)};
  if (with_plans) row.insert(row.end(), {near_cache_text(r), r.plan});
  row.insert(row.end(), {r.name(), formatted("{:.2f} ± {:.2f}", speed.mean, speed.deviation),
                         format_bytes(rounded(r.traffic.total())),
                         formatted("{:.2f}", r.bytes_per_second() / 1e9),
                         formatted("{:.0f} %", 100.0 * r.share_of_bound()),
                         formatted("{:.1f} %", 100.0 * r.expert_hit_rate()),
                         format_bytes(rounded(per_token(r.run.experts.bytes_read, r))),
                         formatted("{:.2f}", per_token(r.run.experts.stall_us, r) / 1e3)});
  return row;
}

// Columns of a terminal, not bytes: continuation bytes of UTF-8 take no room.
size_t width_of(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0u) != 0x80u;
  }));
}

// The first column is text and begins at the left, the others are numbers.
std::string markdown_line(const BenchRow& row, const std::vector<size_t>& widths) {
  std::string line;
  for (size_t i = 0; i < row.size(); ++i) {
    const std::string room(widths[i] - width_of(row[i]), ' ');
    line += i == 0 ? formatted("| {}{} ", row[i], room) : formatted("| {}{} ", room, row[i]);
  }
  return line + "|\n";
}

std::string markdown_rule(const std::vector<size_t>& widths) {
  std::string line;
  for (size_t i = 0; i < widths.size(); ++i) {
    line += formatted("| {}{} ", std::string(widths[i] - 1, '-'), i == 0 ? '-' : ':');
  }
  return line + "|\n";
}

// Below the table, of tests of several sequences.
std::string parallel_line(const BenchResult& r) {
  if (r.test.n_parallel == 0) return {};
  const auto a_step = [&](double token_bytes) {
    return format_bytes(rounded(token_bytes * static_cast<double>(r.test.n_parallel)));
  };
  return formatted(
      "\n{}: {:.2f} t/s a sequence, {:.3f} times what taking turns gives; bound {:.2f} t/s: {} of "
      "dense weights, {} of experts ({} routes) and {} of states a step\n",
      r.label(), summarize(r.samples_ts()).mean / static_cast<double>(r.test.n_parallel),
      r.over_turns(), r.bound_ts(), a_step(r.traffic.dense_bytes), a_step(r.traffic.expert_bytes),
      r.routes, a_step(r.traffic.state_bytes));
}

// Below the table, of tests that read experts.
std::string drive_line(const BenchResult& r) {
  if (r.run.experts.bytes_read == 0) return {};
  std::string line = formatted("\n{}: drive {:.2f} GB/s while reading", r.label(),
                               r.run.experts.read_bytes_per_second() / 1e9);
  if (r.drive_probe_bytes_per_second > 0.0) {
    line += formatted(", {:.0f} % of the {:.2f} GB/s it can", 100.0 * r.share_of_drive(),
                      r.drive_probe_bytes_per_second / 1e9);
  }
  if (r.run.experts.prefetches > 0) {
    line += formatted("; {} of {} prefetches useful", r.run.experts.prefetches_useful,
                      r.run.experts.prefetches);
  }
  return line + "\n";
}

// Below the table, of models with tables whose rows are read from the drive.
std::string table_line(const BenchResult& r) {
  if (r.run.experts.table_bytes_read == 0) return {};
  return formatted("\n{}: {} of rows of tables a token, {:.2f} ms waiting for them\n", r.label(),
                   format_bytes(rounded(per_token(r.run.experts.table_bytes_read, r))),
                   per_token(r.run.experts.table_stall_us, r) / 1e3);
}

// Below the table, of tests that read experts over a device's bus.
std::string bus_line(const BenchResult& r) {
  if (r.run.experts.bus_bytes == 0 && r.run.experts.helped_steps == 0) return {};
  return formatted(
      "\n{}: {} a token over the bus, {:.1f} % of choices in the device's memory, {} "
      "experts brought there, {} steps with the CPU's help\n",
      r.label(), format_bytes(static_cast<uint64_t>(per_token(r.run.experts.bus_bytes, r))),
      100.0 * r.run.experts.near_hit_rate(), r.run.experts.promotions, r.run.experts.helped_steps);
}

std::string render_markdown(std::span<const BenchResult> results) {
  const bool with_plans =
      std::ranges::any_of(results, [](const BenchResult& r) { return !r.plan.empty(); });
  BenchRow head = {"model", "size", "params", "backend", "threads"};
  if (with_plans) head.insert(head.end(), {"near cache", "plan"});
  head.insert(head.end(), {"test", "t/s", "bytes/token", "GB/s", "of bound", "hits", "read/token",
                           "stall ms/token"});
  std::vector<BenchRow> rows = {head};
  for (const BenchResult& result : results) rows.push_back(markdown_row(result, with_plans));
  std::string text = bench_table(rows);
  for (const BenchResult& r : results)
    text += parallel_line(r) + drive_line(r) + table_line(r) + bus_line(r);
  const BenchResult& last = results.back();
  return text + formatted(
                    "\nmemory bandwidth {:.2f} GB/s with {} threads | peak memory {} | "
                    "expert cache {} | {}\n",
                    last.bandwidth_bytes_per_second / 1e9, last.threads,
                    format_bytes(last.peak_memory_bytes), format_bytes(last.expert_cache_bytes),
                    last.device);
}

}  // namespace

std::string bench_cell(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '|') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string bench_table(std::span<const BenchRow> rows) {
  std::vector<size_t> widths(rows[0].size(), 3);
  for (const BenchRow& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::string text;
  for (size_t line = 0; line < rows.size(); ++line) {
    text += markdown_line(rows[line], widths);
    if (line == 0) text += markdown_rule(widths);
  }
  return text;
}

SampleStats summarize(std::span<const double> samples) {
  if (samples.empty()) return {};
  const auto n = static_cast<double>(samples.size());
  double sum = 0.0;
  for (const double sample : samples) sum += sample;
  SampleStats stats{.mean = sum / n};
  if (samples.size() < 2) return stats;
  double squares = 0.0;
  for (const double sample : samples) squares += (sample - stats.mean) * (sample - stats.mean);
  stats.deviation = std::sqrt(squares / (n - 1.0));
  return stats;
}

std::vector<double> BenchResult::samples_ts() const {
  return speeds_of(run.samples_ns, test.tokens());
}

std::vector<double> BenchResult::turns_ts() const { return speeds_of(run.turns_ns, test.tokens()); }

double BenchResult::over_turns() const { return median_ratio(run.turns_ns, run.samples_ns); }

std::string BenchResult::name() const {
  std::string name;
  if (test.n_prompt > 0) name += formatted("pp{}", test.n_prompt);
  if (test.n_gen > 0) name += formatted("{}tg{}", name.empty() ? "" : "+", test.n_gen);
  if (test.n_parallel > 0) name += formatted(" x{}", test.n_parallel);
  return test.n_depth > 0 ? formatted("{} @ d{}", name, test.n_depth) : name;
}

std::string BenchResult::label() const {
  if (plan.empty()) return name();
  return formatted("{}, near cache {}, plan {}", name(), near_cache_text(*this), plan);
}

double BenchResult::bytes_per_second() const {
  const double ns = summarize(as_doubles(run.samples_ns)).mean;
  return ns > 0.0 ? traffic.total() * static_cast<double>(test.tokens()) * 1e9 / ns : 0.0;
}

double BenchResult::share_of_bound() const {
  return bandwidth_bytes_per_second > 0.0 ? bytes_per_second() / bandwidth_bytes_per_second : 0.0;
}

double BenchResult::bound_ts() const {
  return traffic.total() > 0.0 ? bandwidth_bytes_per_second / traffic.total() : 0.0;
}

double BenchResult::share_of_drive() const {
  return drive_probe_bytes_per_second > 0.0
             ? run.experts.read_bytes_per_second() / drive_probe_bytes_per_second
             : 0.0;
}

double BenchResult::expert_hit_rate() const {
  const uint64_t lookups = run.experts.hits + run.experts.misses;
  return lookups == 0 ? 1.0 : static_cast<double>(run.experts.hits) / static_cast<double>(lookups);
}

Json bench_fields(const BenchResult& r) {
  const SampleStats time = summarize(as_doubles(r.run.samples_ns));
  const SampleStats speed = summarize(r.samples_ts());
  Json json;
  json["build_commit"] = MOEFLUX_COMMIT;
  json["build_version"] = MOEFLUX_VERSION;
  json["backends"] = r.backend;
  json["device"] = r.device;
  json["precision"] = r.precision;
  json["model_filename"] = r.model_filename;
  json["model_type"] = r.model_type;
  json["model_size"] = r.model_size;
  json["model_n_params"] = r.model_n_params;
  json["n_batch"] = r.batch;
  json["n_ubatch"] = r.batch;
  json["n_threads"] = r.threads;
  json["type_k"] = cache_type_name(r.cache_types.keys);
  json["type_v"] = cache_type_name(r.cache_types.values);
  json["n_prompt"] = r.test.n_prompt;
  json["n_gen"] = r.test.n_gen;
  json["n_depth"] = r.test.n_depth;
  json["test_time"] = r.test_time;
  json["avg_ns"] = rounded(time.mean);
  json["stddev_ns"] = rounded(time.deviation);
  json["avg_ts"] = speed.mean;
  json["stddev_ts"] = speed.deviation;
  json["bytes_per_token"] = rounded(r.traffic.total());
  json["dense_bytes_per_token"] = rounded(r.traffic.dense_bytes);
  json["expert_bytes_per_token"] = rounded(r.traffic.expert_bytes);
  json["state_bytes_per_token"] = rounded(r.traffic.state_bytes);
  json["bytes_per_second"] = rounded(r.bytes_per_second());
  json["memory_bandwidth"] = rounded(r.bandwidth_bytes_per_second);
  json["share_of_bound"] = r.share_of_bound();
  json["bound_ts"] = r.bound_ts();
  json["routes"] = r.routes;
  json["expert_lookups"] = r.run.experts.hits + r.run.experts.misses;
  json["expert_hit_rate"] = r.expert_hit_rate();
  json["storage_bytes_per_token"] = rounded(per_token(r.run.experts.bytes_read, r));
  json["stall_ns_per_token"] = rounded(1e3 * per_token(r.run.experts.stall_us, r));
  json["table_bytes_per_token"] = rounded(per_token(r.run.experts.table_bytes_read, r));
  json["table_stall_ns_per_token"] = rounded(1e3 * per_token(r.run.experts.table_stall_us, r));
  json["drive_bytes_per_second"] = rounded(r.run.experts.read_bytes_per_second());
  json["drive_probe_bytes_per_second"] = rounded(r.drive_probe_bytes_per_second);
  json["share_of_drive"] = r.share_of_drive();
  json["prefetches"] = r.run.experts.prefetches;
  json["prefetches_useful"] = r.run.experts.prefetches_useful;
  json["lookahead_ns_per_token"] = rounded(1e3 * per_token(r.run.experts.lookahead_us, r));
  json["near_hit_rate"] = r.run.experts.near_hit_rate();
  json["promotions"] = r.run.experts.promotions;
  json["helped_steps"] = r.run.experts.helped_steps;
  json["bus_bytes_per_token"] = rounded(per_token(r.run.experts.bus_bytes, r));
  json["expert_cache_bytes"] = r.expert_cache_bytes;
  json["peak_memory_bytes"] = r.peak_memory_bytes;
  json["samples_ns"] = r.run.samples_ns;
  json["samples_ts"] = r.samples_ts();
  json["n_parallel"] = r.test.n_parallel;
  json["avg_ts_per_sequence"] = speed.mean / static_cast<double>(r.test.sequences());
  json["avg_turns_ts"] = summarize(r.turns_ts()).mean;
  json["over_turns"] = r.over_turns();
  json["turns_ns"] = r.run.turns_ns;
  json["plan"] = r.plan;
  json["near_cache_bytes"] = r.near_cache_bytes ? Json(*r.near_cache_bytes) : Json();
  return json;
}

std::string render_fields(std::span<const Json> results, BenchFormat format) {
  return format == BenchFormat::kJson ? render_json(results) : render_csv(results);
}

std::string render_bench(std::span<const BenchResult> results, BenchFormat format) {
  if (results.empty() && format != BenchFormat::kJson) return {};
  if (format == BenchFormat::kMarkdown) return render_markdown(results);
  std::vector<Json> fields;
  for (const BenchResult& result : results) fields.push_back(bench_fields(result));
  return render_fields(fields, format);
}

}  // namespace moeflux
