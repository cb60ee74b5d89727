#include "engine/dense_writer.h"

#include <algorithm>
#include <map>
#include <vector>

#include "base/format.h"
#include "base/units.h"
#include "engine/blob_maker.h"
#include "quant/format_traits.h"
#include "quant/quantize.h"

namespace moeflux {
namespace {

constexpr uint64_t kTaskBytes = kMiB;

class ShardMaker {
 public:
  ShardMaker(const TensorIndex& source, Pipeline& pipeline, const ByteSink& write)
      : source_(source), pipeline_(pipeline), write_(write) {}

  Status make(const DenseItem& item) {
    const Status made = item.format ? quantise(item) : copy(item);
    if (!made.ok() && made.error().code() != ErrorCode::kCancelled) {
      return made.error().with_context("tensor " + item.name);
    }
    return made;
  }

 private:
  Status copy(const DenseItem& item) {
    return pipeline_.run({.total_bytes = item.source.size_bytes,
                          .task_bytes = kTaskBytes,
                          .make =
                              [&](uint64_t offset, std::span<std::byte> bytes) {
                                return source_.file(item.source.file)
                                    .read_at(item.source.offset_bytes + offset, bytes);
                              },
                          .write = write_});
  }

  // Codes go to the file as they are made; the other parts, an eighth of them or less, wait.
  Status quantise(const DenseItem& item) {
    const Parts<uint64_t> bytes = part_bytes(*item.format, item.rows, item.cols);
    const uint64_t row_codes = bytes.codes / static_cast<uint64_t>(item.rows);
    const uint64_t task_rows = std::max<uint64_t>(1, kTaskBytes / row_codes);
    EncodedParts waiting;
    uint64_t waiting_bytes = 0;
    for (const PartRole role : kPartRoles) {
      if (role == PartRole::kCodes) continue;
      waiting[role].resize(bytes[role]);
      waiting_bytes += bytes[role];
    }
    MF_RETURN_IF_ERROR(pipeline_.run(
        {.total_bytes = bytes.codes,
         .task_bytes = task_rows * row_codes,
         .make =
             [&](uint64_t offset, std::span<std::byte> codes) {
               return quantise_rows(item, {offset / row_codes, codes.size() / row_codes}, codes,
                                    waiting);
             },
         .write = write_}));
    for (const PartRole role : kPartRoles) {
      if (!waiting[role].empty()) MF_RETURN_IF_ERROR(write_(waiting[role]));
    }
    pipeline_.skip(waiting_bytes);
    return {};
  }

  struct RowRange {
    uint64_t first;
    uint64_t count;
  };

  /// Writes the rows' codes to `codes` and their share of the other parts, which are whole, to
  /// `others`.
  Status quantise_rows(const DenseItem& item, const RowRange& rows, std::span<std::byte> codes,
                       EncodedParts& others) const {
    const auto all_rows = static_cast<uint64_t>(item.rows);
    const uint64_t row_bytes = item.source.size_bytes / all_rows;
    std::vector<std::byte> stored(rows.count * row_bytes);
    MF_RETURN_IF_ERROR(source_.file(item.source.file)
                           .read_at(item.source.offset_bytes + rows.first * row_bytes, stored));
    std::vector<float> values(rows.count * static_cast<uint64_t>(item.cols));
    load_floats(stored.data(), item.source.dtype, values);
    MF_ASSIGN_OR_RETURN(
        const EncodedParts made,
        quantize_affine({values, static_cast<int64_t>(rows.count), item.cols}, *item.format));
    std::copy(made.codes.begin(), made.codes.end(), codes.begin());
    for (const PartRole role : kPartRoles) {
      if (role == PartRole::kCodes) continue;
      const uint64_t begin = others[role].size() / all_rows * rows.first;
      std::copy(made[role].begin(), made[role].end(), others[role].data() + begin);
    }
    return {};
  }

  const TensorIndex& source_;
  Pipeline& pipeline_;
  const ByteSink& write_;
};

/// Metadata that the file's reader cannot see in its tensors.
std::map<std::string, std::string> metadata_of(const DenseShard& shard, const TensorIndex& source) {
  std::map<std::string, std::string> metadata = {{"format", "mlx"}};
  if (source.has_canonical_names()) metadata.emplace(kCanonicalNamesKey, "true");
  for (const DenseItem& item : shard.items) {
    const std::optional<QuantFormat>& blocks = item.source.format;
    if (blocks && !item.format) metadata.emplace(block_format_key(item.name), blocks->kind->name);
  }
  return metadata;
}

}  // namespace

Status make_dense_shard(const DenseShard& shard, const TensorIndex& source, Pipeline& pipeline,
                        const ByteSink& write) {
  ShardMaker maker(source, pipeline, write);
  for (const DenseItem& item : shard.items) MF_RETURN_IF_ERROR(maker.make(item));
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
