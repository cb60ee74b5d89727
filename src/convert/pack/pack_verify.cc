// Reading a packed folder back: against its own checksums, and against the source it came from.
#include <algorithm>
#include <cstring>
#include <vector>

#include "base/format.h"
#include "base/units.h"
#include "checkpoint/checksum.h"
#include "convert/blob_maker.h"
#include "convert/pack/dense_writer.h"
#include "convert/pack/model_packer.h"

namespace moeflux {
namespace {

Status ignore(std::span<const std::byte>) { return {}; }

/// Compares what comes with a file's bytes from `position` on.
class FileComparison {
 public:
  FileComparison(const File& file, uint64_t position) : file_(file), position_(position) {}

  Status take(std::span<const std::byte> expected) {
    while (!expected.empty()) {
      found_.resize(std::min<uint64_t>(expected.size(), kMiB));
      MF_RETURN_IF_ERROR(file_.read_at(position_, found_));
      if (std::memcmp(found_.data(), expected.data(), found_.size()) != 0) {
        const auto differs = std::mismatch(found_.begin(), found_.end(), expected.begin());
        return make_error(ErrorCode::kCorruption, "{}: byte {} is {}, the source gives {}",
                          file_.path(),
                          position_ + static_cast<uint64_t>(differs.first - found_.begin()),
                          static_cast<int>(*differs.first), static_cast<int>(*differs.second));
      }
      position_ += found_.size();
      expected = expected.subspan(found_.size());
    }
    return {};
  }

 private:
  const File& file_;
  uint64_t position_;
  std::vector<std::byte> found_;
};

}  // namespace

Status verify_expert_pack(const TensorIndex& index, const PackRun& run) {
  Pipeline pipeline(run.threads, run.stop, run.progress);
  for (const auto& [number, packed] : index.packed_layers()) {
    const PackedLayer& layout = packed.layout;
    const std::vector<uint64_t>& checksums = packed.checksums;
    const File& file = index.file(packed.file);
    const auto check = [&](uint64_t offset, std::span<std::byte> blob) -> Status {
      MF_RETURN_IF_ERROR(file.read_at(offset, blob));
      const uint64_t expert = offset / layout.stride;
      const uint64_t found = checksum64(blob);
      if (found == checksums[expert]) return {};
      return make_error(ErrorCode::kCorruption,
                        "layer {} expert {}: {}: {} bytes at offset {} have checksum {}, expected "
                        "{}; the file is damaged",
                        layout.layer, expert, file.path(), blob.size(), offset,
                        checksum_text(found), checksum_text(checksums[expert]));
    };
    MF_RETURN_IF_ERROR(pipeline.run({.total_bytes = layout.table_offset(),
                                     .task_bytes = layout.stride,
                                     .make = check,
                                     .write = ignore}));
    pipeline.skip(layout.table_bytes());
  }
  return {};
}

Status ModelPacker::compare(const PackRun& run) const {
  MF_ASSIGN_OR_RETURN(const TensorIndex packed, TensorIndex::open(run.directory));
  if (!is_packed(run.directory)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: was packed from another model than {}, or with other options",
                      run.directory, source_.name);
  }
  Pipeline pipeline(run.threads, run.stop, run.progress);
  for (const DenseShard& shard : plan_.shards) {
    if (shard.tensors.empty()) continue;
    const TensorEntry* first = packed.find(shard.tensors.front().name);
    if (first == nullptr) {
      return make_error(ErrorCode::kCorruption, "{}: tensor {} is missing", run.directory,
                        shard.tensors.front().name);
    }
    FileComparison comparison(packed.file(first->file), first->offset_bytes);
    MF_RETURN_IF_ERROR(
        make_dense_shard(shard, loaded_->index, pipeline,
                         [&](std::span<const std::byte> bytes) { return comparison.take(bytes); }));
  }
  for (const PackedLayer& layer : plan_.layers) {
    const auto found = packed.packed_layers().find(layer.layer);
    if (found == packed.packed_layers().end()) {
      return make_error(ErrorCode::kCorruption, "{}: layer {} is missing", run.directory,
                        layer.layer);
    }
    FileComparison comparison(packed.file(found->second.file), 0);
    const BlobMaker maker(loaded_->experts.layer(LayerId{layer.layer}), loaded_->index, layer);
    MF_ASSIGN_OR_RETURN(const std::vector<uint64_t> checksums,
                        make_blobs(maker, pipeline, [&](std::span<const std::byte> bytes) {
                          return comparison.take(bytes);
                        }));
    MF_RETURN_IF_ERROR(comparison.take(blob_checksum_table(checksums)));
    pipeline.skip(layer.table_bytes());
  }
  return {};
}

}  // namespace moeflux
