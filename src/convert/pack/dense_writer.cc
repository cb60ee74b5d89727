#include "convert/pack/dense_writer.h"

#include <map>

#include "base/format.h"
#include "base/units.h"
#include "quant/format_traits.h"

namespace moeflux {
namespace {

constexpr uint64_t kTaskBytes = kMiB;

Status copy(const DenseItem& item, const TensorIndex& source, Pipeline& pipeline,
            const ByteSink& write) {
  const Status copied = pipeline.run(
      {.total_bytes = item.source.size_bytes,
       .task_bytes = kTaskBytes,
       .make =
           [&](uint64_t offset, std::span<std::byte> bytes) {
             return source.file(item.source.file).read_at(item.source.offset_bytes + offset, bytes);
           },
       .write = write});
  if (!copied.ok() && copied.error().code() != ErrorCode::kCancelled) {
    return copied.error().with_context("tensor " + item.name);
  }
  return copied;
}

/// Metadata that the file's reader cannot see in its tensors.
std::map<std::string, std::string> metadata_of(const DenseShard& shard, const TensorIndex& source) {
  std::map<std::string, std::string> metadata = {{"format", "mlx"}};
  if (source.has_canonical_names()) metadata.emplace(kCanonicalNamesKey, "true");
  for (const DenseItem& item : shard.items) {
    const std::optional<QuantFormat>& blocks = item.source.format;
    if (blocks) metadata.emplace(block_format_key(item.name), blocks->kind->name);
  }
  return metadata;
}

}  // namespace

Status make_dense_shard(const DenseShard& shard, const TensorIndex& source, Pipeline& pipeline,
                        const ByteSink& write) {
  for (const DenseItem& item : shard.items) {
    MF_RETURN_IF_ERROR(copy(item, source, pipeline, write));
  }
  return {};
}

Status write_dense_shard(const DenseShard& shard, const TensorIndex& source,
                         const std::string& directory, Pipeline& pipeline) {
  MF_ASSIGN_OR_RETURN(const auto file,
                      safetensors::StreamWriter::create(directory + "/" + shard.file, shard.tensors,
                                                        metadata_of(shard, source)));
  MF_RETURN_IF_ERROR(
      make_dense_shard(shard, source, pipeline,
                       [&](std::span<const std::byte> bytes) { return file->write(bytes); }));
  return file->commit();
}

}  // namespace moeflux
