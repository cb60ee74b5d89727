// The codes of a matrix go to the file as they are made; scales and offsets, an eighth of them or
// less, wait until all codes are out.
#include "convert/quantize/shard_quantizer.h"

#include <algorithm>
#include <memory>

#include "base/format.h"
#include "base/units.h"
#include "convert/blob_maker.h"
#include "model/weights/weight_reads.h"
#include "quant/quantize.h"
#include "quant/weight.h"

namespace moeflux {
namespace {

constexpr uint64_t kQuantizeTaskBytes = kMiB;
// Numbers decoded at a time: 4 MiB of f32.
constexpr int64_t kPieceNumbers = 1 << 20;

class BorrowedBytes : public Buffer {
 public:
  explicit BorrowedBytes(std::span<std::byte> bytes) : bytes_(bytes) {}
  size_t size_bytes() const override { return bytes_.size(); }
  std::byte* host_data() const override { return bytes_.data(); }

 private:
  std::span<std::byte> bytes_;
};

struct RowRange {
  int64_t first = 0;
  int64_t count = 0;
};

// Room for the parts of a matrix in the format to write, but for the codes.
struct Waiting {
  EncodedParts parts;
  uint64_t bytes = 0;

  Waiting() = default;
  Waiting(const QuantFormat& format, int64_t rows, int64_t cols) {
    const Parts<uint64_t> sizes = part_bytes(format, rows, cols);
    for (const PartRole role : kPartRoles) {
      if (role == PartRole::kCodes) continue;
      parts[role].resize(sizes[role]);
      bytes += sizes[role];
    }
  }
};

// Encodes rows of `from`. Codes go to `codes`; other parts to their place in `waiting`, which is
// for `all_rows` rows and has those of `from` from row `waiting_row` on.
Status encode_rows(const Weight& from, RowRange rows, const QuantFormat& format,
                   std::span<std::byte> codes, Waiting& waiting, int64_t waiting_row,
                   int64_t all_rows) {
  const int64_t piece_rows = std::max<int64_t>(1, kPieceNumbers / from.cols);
  std::vector<float> values;
  size_t codes_done = 0;
  for (int64_t done = 0; done < rows.count; done += piece_rows) {
    const int64_t count = std::min(piece_rows, rows.count - done);
    values.resize(static_cast<size_t>(count * from.cols));
    for (int64_t row = 0; row < count; ++row) {
      decode_row(from, rows.first + done + row,
                 std::span(values).subspan(static_cast<size_t>(row * from.cols),
                                           static_cast<size_t>(from.cols)));
    }
    MF_ASSIGN_OR_RETURN(const EncodedParts made, encode_matrix({values, count, from.cols}, format));
    std::copy(made.codes.begin(), made.codes.end(), codes.data() + codes_done);
    codes_done += made.codes.size();
    for (const PartRole role : kPartRoles) {
      if (role == PartRole::kCodes || made[role].empty()) continue;
      const size_t row_bytes = waiting.parts[role].size() / static_cast<size_t>(all_rows);
      std::copy(made[role].begin(), made[role].end(),
                waiting.parts[role].data() +
                    row_bytes * static_cast<size_t>(waiting_row + rows.first + done));
    }
  }
  return {};
}

Status write_waiting(const Waiting& waiting, const ByteSink& write, Pipeline& pipeline) {
  for (const PartRole role : kPartRoles) {
    if (!waiting.parts[role].empty()) MF_RETURN_IF_ERROR(write(waiting.parts[role]));
  }
  pipeline.skip(waiting.bytes);
  return {};
}

class ShardQuantizer {
 public:
  ShardQuantizer(const LoadedModel& source, Device& host, Pipeline& pipeline)
      : source_(source), host_(host), pipeline_(pipeline) {}

  Status make(const QuantizedModule& item, const ByteSink& write) {
    const Shape& shape = item.source->shape;
    WeightReads reads(source_.index, host_);
    Weight from =
        lay_out(item.source->stored.format, shape.num_elements() / shape.back(), shape.back());
    for (const PartRole role : kPartRoles) {
      if (!from.has(role)) continue;
      Tensor& part = from.parts[role];
      MF_ASSIGN_OR_RETURN(part, reads.place(part.size_bytes(), part.shape, part.dtype));
    }
    reads.add_module(from, item.source->stored);
    MF_RETURN_IF_ERROR(reads.run({}));
    Waiting waiting(item.format, from.rows, from.cols);
    const uint64_t row_bytes =
        part_bytes(item.format, from.rows, from.cols).codes / static_cast<uint64_t>(from.rows);
    const auto make_rows = [&](uint64_t offset, std::span<std::byte> codes) {
      const RowRange rows{static_cast<int64_t>(offset / row_bytes),
                          static_cast<int64_t>(codes.size() / row_bytes)};
      return encode_rows(from, rows, item.format, codes, waiting, 0, from.rows);
    };
    MF_RETURN_IF_ERROR(pipeline_.run(
        {.total_bytes = row_bytes * static_cast<uint64_t>(from.rows),
         .task_bytes = std::max<uint64_t>(1, kQuantizeTaskBytes / row_bytes) * row_bytes,
         .make = make_rows,
         .write = write}));
    return write_waiting(waiting, write, pipeline_);
  }

  Status make(const QuantizedFloats& item, const ByteSink& write) {
    const ClaimedFloats& floats = *item.source;
    const TensorEntry& entry = *floats.stored.entry;
    if (item.add == 0.0f) {
      std::vector<std::byte> stored(entry.size_bytes);
      MF_RETURN_IF_ERROR(source_.index.file(entry.file).read_at(entry.offset_bytes, stored));
      pipeline_.skip(stored.size());
      return write(stored);
    }
    MF_ASSIGN_OR_RETURN(std::vector<float> values,
                        read_floats(source_.index, floats.stored.name, entry));
    for (float& value : values) value += item.add;
    const auto count = static_cast<int64_t>(values.size());
    MF_ASSIGN_OR_RETURN(const EncodedParts made,
                        encode_matrix({values, 1, count}, QuantFormat::plain(entry.dtype)));
    pipeline_.skip(made.codes.size());
    return write(made.codes);
  }

  Status make(const QuantizedExperts& item, const std::vector<ByteSink>& files) {
    ExpertStack stack(source_, item);
    const auto write = [&](std::span<const std::byte> bytes) { return stack.write(bytes, files); };
    MF_RETURN_IF_ERROR(pipeline_.run(
        {.total_bytes = stack.codes_bytes(),
         .task_bytes = stack.expert_codes_bytes(),
         .make = [&](uint64_t offset,
                     std::span<std::byte> codes) { return stack.make(offset, codes); },
         .write = write}));
    return stack.finish(files, pipeline_);
  }

 private:
  // The experts of a layer, each as the codes of gate, if there is one, up and down in a row.
  class ExpertStack {
   public:
    ExpertStack(const LoadedModel& source, const QuantizedExperts& item)
        : layer_(source.experts.layer(item.layer)), item_(item) {
      const std::array<const Weight*, 3> matrices = {&layer_.gate, &layer_.up, &layer_.down};
      const std::array<const ExpertBias*, 3> biases = {&layer_.gate_bias, &layer_.up_bias,
                                                       &layer_.down_bias};
      blob_.layer = index(item.layer);
      blob_.num_experts = layer_.num_experts;
      for (size_t i = layer_.first_matrix(); i < 3; ++i) {
        const Weight& matrix = *matrices[i];
        blob_.matrices[i] = {.format = matrix.format.with_order(WeightOrder::kRowMajor),
                             .rows = matrix.rows,
                             .cols = matrix.cols};
        blob_.biases[i] = {.dtype = biases[i]->dtype, .size = biases[i]->size};
        codes_[i] = part_bytes(item.formats[i], matrix.rows, matrix.cols).codes;
        waiting_[i] = Waiting(item.formats[i], layer_.num_experts * matrix.rows, matrix.cols);
      }
      lay_out_blob(blob_);
      for (size_t i = 0; i < 3; ++i) {
        vectors_[i].resize(static_cast<size_t>(layer_.num_experts) * blob_.biases[i].bytes());
      }
      maker_ = std::make_unique<BlobMaker>(layer_, source.index, blob_);
    }

    uint64_t expert_codes_bytes() const { return codes_[0] + codes_[1] + codes_[2]; }
    uint64_t codes_bytes() const {
      return expert_codes_bytes() * static_cast<uint64_t>(layer_.num_experts);
    }

    Status make(uint64_t offset, std::span<std::byte> codes) {
      const auto number = static_cast<int32_t>(offset / expert_codes_bytes());
      std::vector<std::byte> blob(blob_.stride);
      MF_RETURN_IF_ERROR(maker_->make(ExpertId{number}, blob));
      BorrowedBytes memory(blob);
      for (size_t i = layer_.first_matrix(); i < 3; ++i) {
        const Weight matrix = blob_.matrices[i].at(memory, 0);
        const Status encoded =
            encode_rows(matrix, {0, matrix.rows}, item_.formats[i], codes.first(codes_[i]),
                        waiting_[i], number * matrix.rows, layer_.num_experts * matrix.rows);
        if (!encoded.ok()) {
          return encoded.error().with_context(
              formatted("layer {} expert {}", index(item_.layer), number));
        }
        codes = codes.subspan(codes_[i]);
        const PackedBias& bias = blob_.biases[i];
        std::copy_n(blob.data() + bias.offset, bias.bytes(),
                    vectors_[i].data() + static_cast<size_t>(number) * bias.bytes());
      }
      return {};
    }

    Status write(std::span<const std::byte> bytes, const std::vector<ByteSink>& files) const {
      for (; !bytes.empty(); bytes = bytes.subspan(expert_codes_bytes())) {
        uint64_t begin = 0;
        for (size_t i = 0; i < 3; ++i) {
          MF_RETURN_IF_ERROR(files[i](bytes.subspan(begin, codes_[i])));
          begin += codes_[i];
        }
      }
      return {};
    }

    Status finish(const std::vector<ByteSink>& files, Pipeline& pipeline) const {
      for (size_t i = 0; i < 3; ++i) {
        MF_RETURN_IF_ERROR(write_waiting(waiting_[i], files[i], pipeline));
        if (!vectors_[i].empty()) MF_RETURN_IF_ERROR(files[i](vectors_[i]));
        pipeline.skip(vectors_[i].size());
      }
      return {};
    }

   private:
    const ExpertLayer& layer_;
    const QuantizedExperts& item_;
    PackedLayer blob_;  // an expert as the source has it, row-major
    std::unique_ptr<BlobMaker> maker_;
    std::array<uint64_t, 3> codes_{};
    std::array<Waiting, 3> waiting_;
    std::array<std::vector<std::byte>, 3> vectors_;  // biases
  };

  const LoadedModel& source_;
  Device& host_;
  Pipeline& pipeline_;
};

template <typename Item>
Status named(const Item& item, Status status) {
  if (status.ok() || status.error().code() == ErrorCode::kCancelled) return status;
  return status.error().with_context("tensor " + item.name);
}

}  // namespace

Status make_quantized_shard(const QuantizedShard& shard, const LoadedModel& source, Device& host,
                            Pipeline& pipeline, const std::vector<ByteSink>& files) {
  ShardQuantizer quantizer(source, host, pipeline);
  for (const QuantizedModule& item : shard.modules) {
    MF_RETURN_IF_ERROR(named(item, quantizer.make(item, files[0])));
  }
  for (const QuantizedFloats& item : shard.floats) {
    MF_RETURN_IF_ERROR(named(item, quantizer.make(item, files[0])));
  }
  for (const QuantizedExperts& item : shard.experts) {
    MF_RETURN_IF_ERROR(quantizer.make(item, files));
  }
  return {};
}

uint64_t expert_work_bytes(const LoadedModel& source) {
  uint64_t bytes = 0;
  for (const ExpertLayer& layer : source.experts.layers) {
    // As it is stored, and its codes in the windows that are filled and written.
    if (layer.num_experts > 0) bytes = std::max(bytes, uint64_t{3} * layer.slot_bytes);
  }
  return bytes;
}

}  // namespace moeflux
