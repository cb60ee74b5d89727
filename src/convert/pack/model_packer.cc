#include "convert/pack/model_packer.h"

#include <algorithm>
#include <utility>

#include "backend/trace/trace_device.h"
#include "base/format.h"
#include "base/json.h"
#include "checkpoint/checksum.h"
#include "convert/blob_maker.h"
#include "convert/pack/dense_writer.h"
#include "convert/pack/pack_notes.h"
#include "io/output_folder.h"

namespace moeflux {
namespace {

constexpr std::string_view kIndexName = "model.safetensors.index.json";

std::string path_inside(const std::string& directory, std::string_view name) {
  return formatted("{}/{}", directory, name);
}

struct LayerRun {
  const ExpertLayer& source;
  const TensorIndex& index;
  const PackedLayer& target;
};

/// Writes the file; returns the layer with the checksum of its table.
Result<PackedLayer> write_layer(const LayerRun& layer, const std::string& directory,
                                Pipeline& pipeline) {
  MF_ASSIGN_OR_RETURN(const auto file,
                      AtomicFileWriter::create(path_inside(directory, layer.target.file)));
  MF_ASSIGN_OR_RETURN(
      const std::vector<uint64_t> checksums,
      make_blobs(BlobMaker(layer.source, layer.index, layer.target), pipeline,
                 [&](std::span<const std::byte> bytes) { return file->write(bytes); }));
  const std::vector<std::byte> table = blob_checksum_table(checksums);
  MF_RETURN_IF_ERROR(file->write(table));
  MF_RETURN_IF_ERROR(file->commit());
  pipeline.skip(table.size());
  PackedLayer written = layer.target;
  written.table_checksum = checksum64(table);
  return written;
}

std::string index_text(const PackPlan& plan) {
  SortedJson index;
  uint64_t total = 0;
  for (const DenseShard& shard : plan.shards) {
    total += shard.size_bytes();
    for (const safetensors::PlannedTensor& tensor : shard.tensors) {
      index["weight_map"][tensor.name] = shard.file;
    }
  }
  index["metadata"]["total_size"] = total;
  return index.dump(1) + "\n";
}

}  // namespace

Result<std::unique_ptr<ModelPacker>> ModelPacker::create(PackSource source,
                                                         const PackFormat& format) {
  std::unique_ptr<ModelPacker> packer(new ModelPacker);
  packer->device_ = make_trace_device();
  MF_ASSIGN_OR_RETURN(packer->loaded_, load_model(source.config_json, std::move(source.index),
                                                  *packer->device_, WeightLoading::kCheckOnly));
  MF_ASSIGN_OR_RETURN(packer->plan_, plan_pack(source, *packer->loaded_, format));
  packer->source_ = std::move(source);
  return packer;
}

bool ModelPacker::is_packed(const std::string& directory) const {
  const std::string path = path_inside(directory, kExpertPackName);
  if (!path_exists(path)) return false;
  const Result<std::string> text = read_text_file(path, kExpertPackBytesMax);
  if (!text.ok()) return false;
  const Result<ExpertPackManifest> manifest = parse_expert_pack(*text, path);
  return manifest.ok() && manifest->recipe == plan_.recipe;
}

std::set<std::string> ModelPacker::files() const {
  std::set<std::string> names = {"config.json", std::string(kIndexName),
                                 std::string(kExpertPackName), std::string(kExpertPackNotesName)};
  for (const SideFile& file : source_.side_files) names.insert(file.name);
  for (const DenseShard& shard : plan_.shards) names.insert(shard.file);
  for (const PackedLayer& layer : plan_.layers) names.insert(layer.file);
  return names;
}

std::vector<std::string> ModelPacker::source_paths() const {
  if (source_.directory.empty()) return {};
  std::vector<std::string> paths = {source_.directory};
  for (int32_t i = 0; i < loaded_->index.num_files(); ++i) {
    paths.push_back(loaded_->index.file(i).path());
  }
  return paths;
}

Result<WritingProgress> ModelPacker::progress_in(const std::string& directory) const {
  if (path_exists(path_inside(directory, kExpertPackName))) {
    if (is_packed(directory)) return WritingProgress::kWhole;
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: the folder holds another pack, or one with other options; --force "
                      "replaces it",
                      directory);
  }
  if (!path_exists(path_inside(directory, kExpertPackNotesName))) return WritingProgress::kNone;
  MF_RETURN_IF_ERROR(PackNotes::open(directory, plan_.recipe));
  return WritingProgress::kBegun;
}

Status ModelPacker::pack(const PackRun& run) const {
  MF_ASSIGN_OR_RETURN(const std::unique_ptr<WrittenFolder> folder,
                      WrittenFolder::open({.directory = run.directory,
                                           .files = files(),
                                           .replace = run.replace,
                                           .sources = source_paths(),
                                           .progress = [this](const std::string& directory) {
                                             return progress_in(directory);
                                           }}));
  PackRun inner = run;
  inner.directory = folder->path();
  // A whole one may have been killed between the manifest and the end, or be asked for twice.
  const bool is_whole = is_packed(inner.directory);
  if (!is_whole) MF_RETURN_IF_ERROR(check_space(inner.directory));
  MF_RETURN_IF_ERROR(folder->begin());
  if (!is_whole) MF_RETURN_IF_ERROR(write_folder(inner));
  MF_RETURN_IF_ERROR(remove_file(path_inside(inner.directory, kExpertPackNotesName)));
  return folder->finish();
}

uint64_t ModelPacker::finished_bytes(const PackNotes& notes) const {
  uint64_t bytes = 0;
  for (const DenseShard& shard : plan_.shards) {
    if (notes.is_finished(shard.file)) bytes += shard.size_bytes();
  }
  for (const PackedLayer& layer : plan_.layers) {
    if (notes.finished_layer(layer) != nullptr) bytes += layer.file_bytes();
  }
  return bytes;
}

// Before anything is written: a folder that is too small is left as it was.
Status ModelPacker::check_space(const std::string& directory) const {
  uint64_t done = 0;
  if (path_exists(path_inside(directory, kExpertPackNotesName))) {
    MF_ASSIGN_OR_RETURN(const PackNotes notes, PackNotes::open(directory, plan_.recipe));
    done = finished_bytes(notes);
  }
  return check_free_space(directory, done > 0 ? "rest of the pack" : "pack",
                          plan_.total_bytes() - done);
}

Status ModelPacker::write_folder(const PackRun& run) const {
  MF_ASSIGN_OR_RETURN(PackNotes notes, PackNotes::open(run.directory, plan_.recipe));
  MF_RETURN_IF_ERROR(create_folder(path_inside(run.directory, kExpertPackFolder)));
  return write_files(run, notes);
}

Status ModelPacker::write_files(const PackRun& run, PackNotes& notes) const {
  Pipeline pipeline(run.threads, run.stop, run.progress);
  pipeline.skip(finished_bytes(notes));
  MF_RETURN_IF_ERROR(write_side_files(run.directory, source_.side_files));
  for (const DenseShard& shard : plan_.shards) {
    if (notes.is_finished(shard.file)) continue;
    MF_RETURN_IF_ERROR(write_dense_shard(shard, loaded_->index, run.directory, pipeline));
    MF_RETURN_IF_ERROR(notes.add_shard(shard.file));
  }
  ExpertPackManifest manifest{.source = plan_.source, .recipe = plan_.recipe};
  for (const PackedLayer& layer : plan_.layers) {
    if (const PackedLayer* finished = notes.finished_layer(layer)) {
      manifest.layers.push_back(*finished);
      continue;
    }
    const ExpertLayer& source = loaded_->experts.layer(LayerId{layer.layer});
    MF_ASSIGN_OR_RETURN(PackedLayer written,
                        write_layer({source, loaded_->index, layer}, run.directory, pipeline));
    MF_RETURN_IF_ERROR(notes.add_layer(written));
    manifest.layers.push_back(std::move(written));
  }
  MF_RETURN_IF_ERROR(write_text_file(path_inside(run.directory, kIndexName), index_text(plan_)));
  MF_RETURN_IF_ERROR(write_text_file(path_inside(run.directory, "config.json"), plan_.config_json));
  // Also reads the headers of what was written, now or before.
  MF_ASSIGN_OR_RETURN(const TensorIndex dense, TensorIndex::open(run.directory));
  MF_ASSIGN_OR_RETURN(manifest.model, dense_fingerprint(dense, plan_.config_json));
  return write_text_file(path_inside(run.directory, kExpertPackName), expert_pack_text(manifest));
}

}  // namespace moeflux
