#include "cli/forced_report.h"

#include <string_view>
#include <vector>

#include "base/format.h"
#include "chat/model_text.h"
#include "cli/text_input.h"

namespace moeflux {
namespace {

std::vector<double> speeds(const std::vector<ForcedRun>& runs) {
  std::vector<double> speeds;
  for (const ForcedRun& run : runs) {
    if (run.ns > 0) speeds.push_back(1e9 * static_cast<double>(run.tokens) / double(run.ns));
  }
  return speeds;
}

std::vector<uint64_t> samples(const std::vector<ForcedRun>& runs, uint64_t ForcedRun::*time) {
  std::vector<uint64_t> samples;
  for (const ForcedRun& run : runs) samples.push_back(run.*time);
  return samples;
}

std::string_view file_name(std::string_view path) {
  return path.substr(path.find_last_of('/') + 1);  // 0 without one
}

std::string speed_text(const std::vector<ForcedRun>& runs) {
  const SampleStats speed = summarize(speeds(runs));
  return formatted("{:.2f} ± {:.2f}", speed.mean, speed.deviation);
}

BenchRow row_of(const ForcedResult& r) {
  const ForcedRun& run = r.pairs.with.back();
  return {bench_cell(file_name(r.file)),
          bench_cell(r.of.model_type),
          formatted("{}", r.prompt_tokens),
          formatted("{}", run.tokens),
          formatted("{}", run.steps),
          formatted("{}", run.drafts.drafted),
          formatted("{}", run.drafts.accepted),
          formatted("{:.2f}", run.tokens_per_step()),
          speed_text(r.pairs.with),
          speed_text(r.pairs.without),
          formatted("{:.3f}", r.pairs.gain())};
}

std::string render_markdown(std::span<const ForcedResult> results) {
  std::vector<BenchRow> rows = {{"forced text", "model", "prompt", "tokens", "steps", "drafted",
                                 "accepted", "tokens/step", "t/s", "t/s without", "gain"}};
  for (const ForcedResult& result : results) rows.push_back(row_of(result));
  const ForcedResult& last = results.back();
  return bench_table(rows) +
         formatted(
             "\nforced text: each next token is the text's own, whatever the model's logits | "
             "gain: median of {} pairs | {}\n",
             last.pairs.with.size(), last.of.device);
}

Json sizes_of(const ForcedRun& run) {
  Json sizes = Json::object();
  for (const auto& [rows, size] : run.sizes) {
    sizes[formatted("{}", rows)] = {
        {"steps", size.steps}, {"seconds", size.seconds}, {"least_seconds", size.least_seconds}};
  }
  return sizes;
}

Json fields_of(const ForcedResult& r) {
  const ForcedRun& run = r.pairs.with.back();
  const Json of = bench_fields(r.of);
  Json json;
  for (const char* name :
       {"build_commit", "build_version", "backends", "device", "precision", "model_filename",
        "model_type", "model_size", "n_threads", "type_k", "type_v", "test_time"}) {
    json[name] = of[name];
  }
  json["forced_text"] = r.file;
  json["n_prompt"] = r.prompt_tokens;
  json["n_gen"] = r.written_tokens;
  json["draft"] = r.drafts.mode == DraftMode::kOn ? "on" : "auto";
  json["draft_max"] = r.drafts.tokens_max;
  json["steps"] = run.steps;
  json["rows"] = run.rows;
  json["tokens"] = run.tokens;
  json["draft_n"] = run.drafts.drafted;
  json["draft_n_accepted"] = run.drafts.accepted;
  json["sizes"] = sizes_of(run);
  json["tokens_per_step"] = run.tokens_per_step();
  json["avg_ts"] = summarize(speeds(r.pairs.with)).mean;
  json["avg_ts_without"] = summarize(speeds(r.pairs.without)).mean;
  json["gain"] = r.pairs.gain();
  json["cpu_gain"] = r.pairs.cpu_gain();
  json["samples_ns"] = samples(r.pairs.with, &ForcedRun::ns);
  json["samples_ns_without"] = samples(r.pairs.without, &ForcedRun::ns);
  json["samples_cpu_ns"] = samples(r.pairs.with, &ForcedRun::cpu_ns);
  json["samples_cpu_ns_without"] = samples(r.pairs.without, &ForcedRun::cpu_ns);
  return json;
}

}  // namespace

Result<std::vector<ForcedPart>> read_forced_text(const std::string& file,
                                                 const std::string& directory) {
  MF_ASSIGN_OR_RETURN(const std::string text, read_text_input(file));
  MF_ASSIGN_OR_RETURN(const Tokenizer tokenizer, load_tokenizer(directory));
  Result<std::vector<ForcedPart>> parts = forced_parts(text, tokenizer);
  if (!parts.ok()) return parts.error().with_context(file);
  return parts;
}

std::string render_forced(std::span<const ForcedResult> results, BenchFormat format) {
  if (results.empty()) return {};
  if (format == BenchFormat::kMarkdown) return render_markdown(results);
  std::vector<Json> fields;
  for (const ForcedResult& result : results) fields.push_back(fields_of(result));
  return render_fields(fields, format);
}

}  // namespace moeflux
