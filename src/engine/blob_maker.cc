#include "engine/blob_maker.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/format.h"
#include "checkpoint/checksum.h"
#include "experts/expert_arrangement.h"
#include "quant/quantize.h"

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

void load_floats(const std::byte* from, DType dtype, std::span<float> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = load_float(from, static_cast<int64_t>(i), dtype);
  }
}

Status BlobMaker::put_matrix(ExpertId expert, size_t i, std::byte* slot, std::byte* blob) const {
  const Weight from = source_.matrix_of(expert, i);
  const Weight& to = target_.matrices[i];
  const Parts<std::span<std::byte>> source = from.bytes_in(slot);
  const Parts<std::span<std::byte>> target = to.bytes_in(blob);
  if (from.format.kind == to.format.kind) {
    reorder_parts(to.format, to.rows, to.cols, target, from.format.order, source);
    return {};
  }
  std::vector<float> values(static_cast<size_t>(from.rows * from.cols));
  load_floats(source.codes.data(), from.format.dtype, values);
  const QuantFormat row_major = to.format.with_order(WeightOrder::kRowMajor);
  MF_ASSIGN_OR_RETURN(EncodedParts made,
                      quantize_affine({values, from.rows, from.cols}, row_major));
  reorder_parts(to.format, to.rows, to.cols, target, WeightOrder::kRowMajor, spans_of(made));
  return {};
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
    const Status put = put_matrix(expert, i, slot.data(), blob.data());
    if (!put.ok()) return put.error().with_context(where());
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
