#include "engine/machine_probe.h"

#include <algorithm>
#include <chrono>

#include "backend/encoder.h"
#include "base/format.h"
#include "quant/weight.h"

namespace moeflux {
namespace {

constexpr int64_t kRows = 2048;
constexpr int64_t kCols = 2048;
constexpr int64_t kTokens = 512;

Result<Tensor> allocate(Device& device, std::vector<std::unique_ptr<Buffer>>& buffers,
                        const Shape& shape, DType dtype) {
  const auto bytes = static_cast<size_t>(shape.num_elements() * dtype_bits(dtype) / 8);
  MF_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer, device.allocate(bytes, MemoryKind::kDevice));
  buffers.push_back(std::move(buffer));
  return Tensor::view(*buffers.back(), 0, shape, dtype);
}

// Of zeros: what a product takes does not depend on the numbers.
Result<Weight> allocate_weight(Device& device, std::vector<std::unique_ptr<Buffer>>& buffers) {
  Weight weight{.format = QuantFormat::affine(4, 64, DType::kBf16), .rows = kRows, .cols = kCols};
  weight.format.order = device.preferred_order(weight.format, kRows, kCols);
  const WeightBytes bytes = weight_bytes(weight.format, kRows, kCols);
  if (weight.format.order == WeightOrder::kTiled) {
    MF_ASSIGN_OR_RETURN(
        weight.data, allocate(device, buffers, {static_cast<int64_t>(bytes.total())}, DType::kU8));
    return weight;
  }
  const Shape groups{kRows, kCols / weight.format.group_size};
  MF_ASSIGN_OR_RETURN(weight.data, allocate(device, buffers,
                                            {kRows, kCols * weight.format.bits / 32}, DType::kU32));
  MF_ASSIGN_OR_RETURN(weight.scales, allocate(device, buffers, groups, weight.format.dtype));
  MF_ASSIGN_OR_RETURN(weight.biases, allocate(device, buffers, groups, weight.format.dtype));
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
  MF_ASSIGN_OR_RETURN(const Weight weight, allocate_weight(device, buffers));
  MF_ASSIGN_OR_RETURN(const Tensor x, allocate(device, buffers, {kTokens, kCols}, DType::kF32));
  MF_ASSIGN_OR_RETURN(const Tensor out, allocate(device, buffers, {kTokens, kRows}, DType::kF32));
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
