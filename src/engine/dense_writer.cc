#include "engine/dense_writer.h"

#include <algorithm>
#include <vector>

#include "base/format.h"
#include "base/units.h"
#include "engine/blob_maker.h"
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

  // Codes go to the file as they are made; scales and biases, an eighth of them or less, wait.
  Status quantise(const DenseItem& item) {
    const WeightBytes bytes = weight_bytes(*item.format, item.rows, item.cols);
    const auto rows = static_cast<uint64_t>(item.rows);
    const uint64_t row_codes = bytes.data / rows;
    const uint64_t task_rows = std::max<uint64_t>(1, kTaskBytes / row_codes);
    std::vector<std::byte> scales(bytes.scales);
    std::vector<std::byte> biases(bytes.biases);
    MF_RETURN_IF_ERROR(pipeline_.run(
        {.total_bytes = bytes.data,
         .task_bytes = task_rows * row_codes,
         .make =
             [&](uint64_t offset, std::span<std::byte> codes) {
               const uint64_t first = offset / row_codes;
               const size_t row_params = bytes.scales / rows;
               const auto params_of = [&](std::vector<std::byte>& all) {
                 return std::span(all).subspan(first * row_params,
                                               codes.size() / row_codes * row_params);
               };
               return quantise_rows(item, first, {codes, params_of(scales), params_of(biases)});
             },
         .write = write_}));
    MF_RETURN_IF_ERROR(write_(scales));
    MF_RETURN_IF_ERROR(write_(biases));
    pipeline_.skip(bytes.scales + bytes.biases);
    return {};
  }

  struct Rows {
    std::span<std::byte> codes;
    std::span<std::byte> scales;
    std::span<std::byte> biases;
  };

  Status quantise_rows(const DenseItem& item, uint64_t first, const Rows& out) const {
    const auto cols = static_cast<uint64_t>(item.cols);
    const uint64_t row_bytes = item.source.size_bytes / static_cast<uint64_t>(item.rows);
    const uint64_t count = out.codes.size() * 8 / (cols * static_cast<uint64_t>(item.format->bits));
    std::vector<std::byte> stored(count * row_bytes);
    MF_RETURN_IF_ERROR(source_.file(item.source.file)
                           .read_at(item.source.offset_bytes + first * row_bytes, stored));
    std::vector<float> values(count * cols);
    load_floats(stored.data(), item.source.dtype, values);
    MF_ASSIGN_OR_RETURN(
        const AffineMatrix parts,
        quantize_affine({values, static_cast<int64_t>(count), item.cols}, *item.format));
    std::copy(parts.codes.begin(), parts.codes.end(), out.codes.begin());
    std::copy(parts.scales.begin(), parts.scales.end(), out.scales.begin());
    std::copy(parts.biases.begin(), parts.biases.end(), out.biases.begin());
    return {};
  }

  const TensorIndex& source_;
  Pipeline& pipeline_;
  const ByteSink& write_;
};

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
                                                        {{"format", "mlx"}}));
  MF_RETURN_IF_ERROR(
      make_dense_shard(shard, source, pipeline,
                       [&](std::span<const std::byte> bytes) { return file->write(bytes); }));
  return file->commit();
}

}  // namespace moeflux
