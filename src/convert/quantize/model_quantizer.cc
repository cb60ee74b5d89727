#include "convert/quantize/model_quantizer.h"

#include <algorithm>
#include <utility>

#include "backend/trace/trace_device.h"
#include "base/format.h"
#include "base/json.h"
#include "base/units.h"
#include "checkpoint/expert_pack.h"
#include "convert/quantize/shard_quantizer.h"
#include "convert/written_folder.h"
#include "io/file.h"
#include "load/model_source.h"

namespace moeflux {
namespace {

constexpr std::string_view kQuantizedIndexName = "model.safetensors.index.json";
constexpr uint64_t kExpertWorkBytesMax = 512 * kMiB;  // of all threads

std::string quantized_path(const std::string& directory, std::string_view name) {
  return formatted("{}/{}", directory, name);
}

std::string index_text(const QuantizePlan& plan) {
  SortedJson index;
  for (const QuantizedShard& shard : plan.shards) {
    for (size_t i = 0; i < shard.files.size(); ++i) {
      for (const auto& tensor : shard.tensors[i]) index["weight_map"][tensor.name] = shard.files[i];
    }
  }
  index["metadata"]["total_size"] = plan.total_bytes();
  return index.dump(4) + "\n";
}

int threads_for(const LoadedModel& loaded, int wanted) {
  const int threads = wanted > 0 ? wanted : usable_cores();
  const uint64_t work = std::max<uint64_t>(expert_work_bytes(loaded), 1);
  const uint64_t fitting = std::max<uint64_t>(1, kExpertWorkBytesMax / work);
  return static_cast<int>(std::min<uint64_t>(static_cast<uint64_t>(threads), fitting));
}

Status write_shard(const QuantizedShard& shard, const LoadedModel& loaded, Device& host,
                   const std::string& directory, Pipeline& pipeline) {
  std::vector<std::unique_ptr<safetensors::StreamWriter>> writers;
  std::vector<ByteSink> sinks;
  for (size_t i = 0; i < shard.files.size(); ++i) {
    MF_ASSIGN_OR_RETURN(auto writer,
                        safetensors::StreamWriter::create(quantized_path(directory, shard.files[i]),
                                                          shard.tensors[i], {{"format", "mlx"}}));
    sinks.push_back([to = writer.get()](std::span<const std::byte> b) { return to->write(b); });
    writers.push_back(std::move(writer));
  }
  MF_RETURN_IF_ERROR(make_quantized_shard(shard, loaded, host, pipeline, sinks));
  for (const auto& writer : writers) MF_RETURN_IF_ERROR(writer->commit());
  return {};
}

// Whole once config.json is there, which is written last.
Result<WritingProgress> progress_in(const std::string& directory) {
  if (!path_exists(quantized_path(directory, "config.json"))) {
    // The list of a run that was stopped; a stopped pack has notes as well, and stays.
    const bool begun = path_exists(quantized_path(directory, kWrittenFilesName)) &&
                       !path_exists(quantized_path(directory, kExpertPackNotesName));
    return begun ? WritingProgress::kBegun : WritingProgress::kNone;
  }
  return make_error(ErrorCode::kInvalidArgument,
                    "{}: the folder holds a model; --force replaces it", directory);
}

// Their value heads lie in another order, and mlx-lm wants a tokenizer.json.
Status check_no_gguf(const PackSource& source) {
  const bool is_gguf = std::ranges::any_of(
      source.side_files, [](const SideFile& file) { return file.name == kGgufKeysName; });
  if (!is_gguf) return {};
  return make_error(ErrorCode::kUnsupported,
                    "{} is a GGUF; quantize makes MLX folders of Hugging Face and MLX ones",
                    source.name);
}

}  // namespace

Result<std::unique_ptr<ModelQuantizer>> ModelQuantizer::create(PackSource source, Device& host,
                                                               const QuantizeOptions& options) {
  MF_RETURN_IF_ERROR(check_no_gguf(source));
  std::unique_ptr<ModelQuantizer> quantizer(new ModelQuantizer(host));
  quantizer->trace_ = make_trace_device();
  MF_ASSIGN_OR_RETURN(quantizer->loaded_,
                      load_model(source.config_json, std::move(source.index), *quantizer->trace_,
                                 WeightLoading::kCheckOnly));
  MF_ASSIGN_OR_RETURN(quantizer->plan_,
                      plan_quantize(*quantizer->loaded_, options.type, options.shard_bytes_max));
  quantizer->source_ = std::move(source);
  return quantizer;
}

std::set<std::string> ModelQuantizer::files() const {
  std::set<std::string> names = {"config.json", std::string(kQuantizedIndexName)};
  for (const SideFile& file : source_.side_files) names.insert(file.name);
  for (const QuantizedShard& shard : plan_.shards) {
    names.insert(shard.files.begin(), shard.files.end());
  }
  return names;
}

std::vector<std::string> ModelQuantizer::source_paths() const {
  std::vector<std::string> paths;
  if (!source_.directory.empty()) paths.push_back(source_.directory);
  for (int32_t i = 0; i < loaded_->index.num_files(); ++i) {
    paths.push_back(loaded_->index.file(i).path());
  }
  return paths;
}

Status ModelQuantizer::write(const QuantizeRun& run) const {
  MF_ASSIGN_OR_RETURN(const std::unique_ptr<WrittenFolder> folder,
                      WrittenFolder::open({.directory = run.directory,
                                           .files = files(),
                                           .replace = run.replace,
                                           .sources = source_paths(),
                                           .progress = progress_in}));
  MF_RETURN_IF_ERROR(check_free_space(folder->path(), "model", total_bytes()));
  MF_RETURN_IF_ERROR(folder->begin());
  QuantizeRun inner = run;
  inner.directory = folder->path();
  MF_RETURN_IF_ERROR(write_files(inner));
  return folder->finish();
}

Status ModelQuantizer::write_files(const QuantizeRun& run) const {
  Pipeline pipeline(threads_for(*loaded_, run.threads), run.stop, run.progress);
  MF_RETURN_IF_ERROR(write_side_files(run.directory, source_.side_files));
  for (const QuantizedShard& shard : plan_.shards) {
    MF_RETURN_IF_ERROR(write_shard(shard, *loaded_, host_, run.directory, pipeline));
  }
  MF_RETURN_IF_ERROR(
      write_text_file(quantized_path(run.directory, kQuantizedIndexName), index_text(plan_)));
  return write_text_file(quantized_path(run.directory, "config.json"), plan_.config_json);
}

}  // namespace moeflux
