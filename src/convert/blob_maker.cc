#include "convert/blob_maker.h"

#include <algorithm>
#include <vector>

#include "base/format.h"
#include "checkpoint/checksum.h"
#include "experts/expert_arrangement.h"
#include "quant/weight.h"

namespace moeflux {
namespace {

Status check_source(const ExpertLayer& source, ExpertId expert, const std::byte* arrived) {
  if (source.checksums.empty()) return {};
  const uint64_t expected = source.checksums[static_cast<size_t>(index(expert))];
  const uint64_t found = checksum64({arrived, source.checked_bytes});
  if (found == expected) return {};
  return make_error(ErrorCode::kCorruption, "checksum {}, expected {}; the file is damaged",
                    checksum_text(found), checksum_text(expected));
}

}  // namespace

void BlobMaker::put_matrix(ExpertId expert, size_t i, std::byte* slot, std::byte* blob) const {
  const Weight from = source_.matrix_of(expert, i);
  const Weight& to = target_.matrices[i];
  MF_CHECK(from.format.kind == to.format.kind);
  reorder_parts(to.format, to.rows, to.cols, to.bytes_in(blob), from.format.order,
                from.bytes_in(slot));
}

Status BlobMaker::make(ExpertId expert, std::span<std::byte> blob) const {
  MF_CHECK(blob.size() == target_.stride);
  const bool apart = source_.lands_apart();
  std::vector<std::byte> slot(source_.slot_bytes);
  std::vector<std::byte> memory(apart ? landing_bytes(source_) : 0);
  const LandedExpert landed(source_, expert, apart ? memory.data() : slot.data());
  for (const ExpertExtent& extent : source_.extents_of(expert)) {
    MF_RETURN_IF_ERROR(index_.file(extent.file)
                           .read_at(extent.offset, {landed.at(extent.slot_offset), extent.bytes}));
  }
  const auto where = [&] { return formatted("layer {} expert {}", target_.layer, index(expert)); };
  if (const Status whole = check_source(source_, expert, landed.at(0)); !whole.ok()) {
    return whole.error().with_context(where());
  }
  for (int64_t task = 0; apart && task < kArrangeTasks; ++task) {
    arrange(source_, landed, slot, task);
  }
  std::fill(blob.begin(), blob.end(), std::byte{0});
  for (size_t i = source_.first_matrix(); i < target_.matrices.size(); ++i) {
    put_matrix(expert, i, slot.data(), blob.data());
  }
  for (size_t i = 0; i < target_.biases.size(); ++i) {
    const PackedBias& to = target_.biases[i];
    std::copy_n(slot.data() + source_.bias_of(expert, i).offset, to.bytes(),
                blob.data() + to.offset);
  }
  return {};
}

Result<std::vector<uint64_t>> make_blobs(const BlobMaker& maker, Pipeline& pipeline,
                                         const ByteSink& write) {
  const PackedLayer& layer = maker.target();
  std::vector<uint64_t> checksums(static_cast<size_t>(layer.num_experts));
  const auto make = [&](uint64_t offset, std::span<std::byte> blob) -> Status {
    const uint64_t expert = offset / layer.stride;
    MF_RETURN_IF_ERROR(maker.make(ExpertId{static_cast<int32_t>(expert)}, blob));
    checksums[expert] = checksum64(blob);
    return {};
  };
  MF_RETURN_IF_ERROR(pipeline.run({.total_bytes = layer.table_offset(),
                                   .task_bytes = layer.stride,
                                   .make = make,
                                   .write = write}));
  return checksums;
}

}  // namespace moeflux
