#include "plan/machine_probe.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "backend/encoder.h"
#include "backend/host_buffer.h"
#include "base/format.h"
#include "base/thread_pool.h"
#include "base/units.h"
#include "io/file.h"
#include "quant/quantize.h"
#include "quant/weight.h"

namespace moeflux {
namespace {

constexpr int64_t kRows = 2048;
constexpr int64_t kCols = 2048;
constexpr int64_t kTokens = 512;

// Real numbers, the same every time. Zeros would flatter: pages nobody wrote are one page of zeros
// in the caches, and where bits do not change, processors need less power and keep a higher clock.
class Numbers {
 public:
  /// A number of at least `low` and less than `high`.
  float between(float low, float high) {
    return low + (high - low) * static_cast<float>(random_() >> 40) / static_cast<float>(1 << 24);
  }
  std::vector<float> floats(int64_t n) {
    std::vector<float> values(static_cast<size_t>(n));
    for (float& value : values) value = between(-1.0f, 1.0f);
    return values;
  }

 private:
  std::mt19937_64 random_;  // its sequence is fixed by the standard
};

Result<Tensor> upload(Device& device, std::vector<std::unique_ptr<Buffer>>& buffers,
                      const Shape& shape, DType dtype, std::span<const std::byte> bytes) {
  MF_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer,
                      device.allocate(bytes.size(), MemoryKind::kDevice));
  MF_RETURN_IF_ERROR(device.upload(*buffer, 0, bytes));
  buffers.push_back(std::move(buffer));
  return Tensor::view(*buffers.back(), 0, shape, dtype);
}

// Quantised from numbers around zero: codes of all values.
Result<Weight> make_weight(Device& device, std::vector<std::unique_ptr<Buffer>>& buffers,
                           Numbers& numbers) {
  QuantFormat format = usual_quantisation();
  const std::vector<float> values = numbers.floats(kRows * kCols);
  MF_ASSIGN_OR_RETURN(EncodedParts made, quantize_affine({values, kRows, kCols}, format));
  format.order = device.preferred_order(format, kRows, kCols);
  Weight weight = lay_out(format, kRows, kCols);
  constexpr uint64_t kAlignment = 64;
  std::vector<std::byte> bytes(place_parts(weight, 0, kAlignment));
  reorder_parts(format, kRows, kCols, weight.bytes_in(bytes.data()), WeightOrder::kRowMajor,
                spans_of(made));
  MF_ASSIGN_OR_RETURN(const Tensor memory, upload(device, buffers, {std::ssize(bytes)}, DType::kU8,
                                                  std::span<const std::byte>(bytes)));
  return weight.at(*memory.buffer, memory.offset_bytes);
}

}  // namespace

Result<DriveProbe> probe_expert_reads(const LoadedModel& model, IoMode mode, double seconds) {
  const auto& layers = model.experts.layers;
  const auto routed = std::find_if(layers.begin(), layers.end(), [](const ExpertLayer& layer) {
    return layer.num_experts > 0 && !layer.extents.empty();
  });
  if (routed == layers.end()) {
    return make_error(ErrorCode::kNotFound, "the model has no files with routed experts to read");
  }
  const File& file = model.index.file(routed->extents.front().file);
  MF_ASSIGN_OR_RETURN(const std::unique_ptr<AsyncReader> reader, make_reader(mode, {}));
  return probe_drive(*reader, file,
                     {.blob_bytes = std::min(routed->bytes_per_expert(), file.size_bytes()),
                      .depths = {1, 2, 4, 8},
                      .seconds = seconds});
}

Result<double> probe_layer_reads(const LoadedModel& model, IoMode mode, double seconds) {
  constexpr uint64_t kBlobBytes = 8 * kMiB;
  const auto first = std::ranges::find_if(model.modules, [](const ClaimedModule& module) {
    return module.layer() && !module.stored.is_assumed();
  });
  if (first == model.modules.end()) {
    return make_error(ErrorCode::kNotFound, "the model has no files with layers to read");
  }
  const File& file = model.index.file(first->stored.parts.codes.entry->file);
  MF_ASSIGN_OR_RETURN(const std::unique_ptr<AsyncReader> reader, make_reader(mode, {}));
  MF_ASSIGN_OR_RETURN(const DriveProbe probe,
                      probe_drive(*reader, file,
                                  {.blob_bytes = std::min(kBlobBytes, file.size_bytes()),
                                   .depths = {2, 4},
                                   .seconds = seconds}));
  return probe.bytes_per_second;
}

Result<double> measure_arranging(const LoadedModel& model, Device& device, int threads,
                                 double seconds) {
  using Clock = std::chrono::steady_clock;
  constexpr int64_t kPiecesOfThread = 4;
  const auto first = std::ranges::find_if(model.modules, [](const ClaimedModule& module) {
    return module.layer() && module.landing_bytes > 0;
  });
  if (first == model.modules.end()) return 0.0;
  const int64_t cols = first->shape.back();
  const int64_t rows = first->shape.num_elements() / cols;
  const auto layouts = [&](int64_t count) {
    QuantFormat format = format_in_memory(first->format, rows, cols);
    format.order = device.preferred_order(format, rows, cols);
    return std::pair(lay_out(format, count, cols), lay_out(first->format, count, cols));
  };
  const auto whole = layouts(rows);
  const int64_t piece = rows_arranged_at_once(whole.first, whole.second);
  const int64_t pieces = piece == rows ? 1 : kPiecesOfThread * threads;
  auto [to, from] = layouts(piece);
  const uint64_t to_bytes = place_parts(to, 0, kDirectAlignment);
  const uint64_t from_bytes = place_parts(from, 0, kDirectAlignment);
  MF_ASSIGN_OR_RETURN(const auto memory, allocate_host_buffer((to_bytes + from_bytes) *
                                                              static_cast<uint64_t>(pieces)));
  std::memset(memory->host_data(), 0x5a, memory->size_bytes());  // pages of its own
  ThreadPool pool(threads);
  double best = 0.0;
  std::chrono::duration<double> total{};
  const Clock::time_point start = Clock::now();
  for (int pass = 0; pass < 2 || total.count() < seconds; ++pass) {
    const Clock::time_point begin = Clock::now();
    pool.parallel_for(pieces, [&](int64_t i) {
      std::byte* const at =
          memory->host_data() + static_cast<uint64_t>(i) * (to_bytes + from_bytes);
      arrange_matrix(to, to.bytes_in(at), from, from.bytes_in(at + to_bytes));
    });
    const std::chrono::duration<double> taken = Clock::now() - begin;
    best = std::max(
        best, static_cast<double>(pieces) * static_cast<double>(from.size_bytes()) / taken.count());
    total = Clock::now() - start;
  }
  return best;
}

Result<double> measure_multiply_adds(Device& device, double seconds) {
  using Clock = std::chrono::steady_clock;
  std::vector<std::unique_ptr<Buffer>> buffers;
  Numbers numbers;
  MF_ASSIGN_OR_RETURN(const Weight weight, make_weight(device, buffers, numbers));
  const std::vector<float> vectors = numbers.floats(kTokens * kCols);
  MF_ASSIGN_OR_RETURN(const Tensor x, upload(device, buffers, {kTokens, kCols}, DType::kF32,
                                             std::as_bytes(std::span(vectors))));
  MF_ASSIGN_OR_RETURN(
      const std::unique_ptr<Buffer> products,
      device.allocate(static_cast<size_t>(kTokens * kRows) * sizeof(float), MemoryKind::kDevice));
  const Tensor out = Tensor::view(*products, 0, {kTokens, kRows}, DType::kF32);
  MF_ASSIGN_OR_RETURN(const auto encoder, device.create_encoder(0));
  double best = 0.0;
  const Clock::time_point start = Clock::now();
  std::chrono::duration<double> total{};
  for (int pass = 0; pass < 2 || total.count() < seconds; ++pass) {
    const Clock::time_point begin = Clock::now();
    encoder->run(ops::Linear{out, x, weight});
    MF_RETURN_IF_ERROR(encoder->wait(encoder->submit()));
    const std::chrono::duration<double> taken = Clock::now() - begin;
    best = std::max(best, static_cast<double>(kRows * kCols * kTokens) / taken.count());
    total = Clock::now() - start;
  }
  return best;
}

}  // namespace moeflux
