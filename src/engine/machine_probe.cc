#include "engine/machine_probe.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <vector>

#include "backend/encoder.h"
#include "base/format.h"
#include "quant/formats/tiled.h"
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
  std::vector<uint64_t> bits(size_t bytes) {
    std::vector<uint64_t> words(bytes / sizeof(uint64_t));
    for (uint64_t& word : words) word = random_();
    return words;
  }
  std::vector<Bf16> scales(int64_t n, float low, float high) {
    std::vector<Bf16> values(static_cast<size_t>(n));
    for (Bf16& value : values) value = to_bf16(between(low, high));
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

// Codes of all values, with scales and biases that spread them around zero.
Result<Weight> make_weight(Device& device, std::vector<std::unique_ptr<Buffer>>& buffers,
                           Numbers& numbers) {
  Weight weight{.format = QuantFormat::affine(4, 64, DType::kBf16), .rows = kRows, .cols = kCols};
  weight.format.order = device.preferred_order(weight.format, kRows, kCols);
  const WeightBytes bytes = weight_bytes(weight.format, kRows, kCols);
  const Shape groups{kRows, kCols / weight.format.group_size};
  const std::vector<uint64_t> codes =
      numbers.bits(static_cast<size_t>(kRows * kCols * weight.format.bits / 8));
  const std::vector<Bf16> scales = numbers.scales(groups.num_elements(), 0.002f, 0.004f);
  const std::vector<Bf16> biases = numbers.scales(groups.num_elements(), -0.03f, -0.015f);
  const tiled::RowMajorParts parts{.codes = std::as_bytes(std::span(codes)),
                                   .scales = std::as_bytes(std::span(scales)),
                                   .biases = std::as_bytes(std::span(biases))};
  if (weight.format.order == WeightOrder::kTiled) {
    std::vector<std::byte> tiles(bytes.total());
    tiled::tile(tiles, parts, weight.format, kRows, kCols);
    MF_ASSIGN_OR_RETURN(weight.data, upload(device, buffers, {static_cast<int64_t>(bytes.total())},
                                            DType::kU8, std::span<const std::byte>(tiles)));
    return weight;
  }
  const Shape words{kRows, kCols * weight.format.bits / 32};
  MF_ASSIGN_OR_RETURN(weight.data, upload(device, buffers, words, DType::kU32, parts.codes));
  MF_ASSIGN_OR_RETURN(weight.scales,
                      upload(device, buffers, groups, weight.format.dtype, parts.scales));
  MF_ASSIGN_OR_RETURN(weight.biases,
                      upload(device, buffers, groups, weight.format.dtype, parts.biases));
  return weight;
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
    encoder->linear(out, x, weight);
    MF_RETURN_IF_ERROR(encoder->wait(encoder->submit()));
    const std::chrono::duration<double> taken = Clock::now() - begin;
    best = std::max(best, static_cast<double>(kRows * kCols * kTokens) / taken.count());
    total = Clock::now() - start;
  }
  return best;
}

}  // namespace moeflux
