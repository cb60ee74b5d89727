#include "plan/memory_bandwidth.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "backend/encoder.h"
#include "io/host_memory.h"

namespace moeflux {
namespace {

constexpr int64_t kRowFloats = 4096;

uint64_t buffer_bytes_for(const Device& device, const BandwidthProbe& probe) {
  uint64_t bytes = probe.buffer_bytes;
  const std::optional<uint64_t> own = device.free_bytes();
  const uint64_t available = own ? *own : query_host_memory().available_bytes;
  while (available != 0 && bytes > available / 4 && bytes > kRowFloats * sizeof(float)) bytes /= 2;
  return bytes;
}

std::vector<float> random_numbers(int64_t n) {
  std::mt19937_64 random;  // its sequence is fixed by the standard
  std::vector<float> numbers(static_cast<size_t>(n));
  for (float& number : numbers) {
    number = static_cast<float>(random() >> 40) / static_cast<float>(1 << 23) - 1.0f;
  }
  return numbers;
}

}  // namespace

Result<double> measure_read_bandwidth(Device& device, const BandwidthProbe& probe) {
  using Clock = std::chrono::steady_clock;
  const auto row_bytes = static_cast<uint64_t>(kRowFloats) * sizeof(float);
  const auto rows =
      std::max<int64_t>(1, static_cast<int64_t>(buffer_bytes_for(device, probe) / row_bytes));
  const uint64_t matrix_bytes = static_cast<uint64_t>(rows) * row_bytes;
  MF_ASSIGN_OR_RETURN(const auto matrix, device.allocate(matrix_bytes, MemoryKind::kDevice));
  MF_ASSIGN_OR_RETURN(const auto vectors,
                      device.allocate(row_bytes + static_cast<uint64_t>(rows) * sizeof(float),
                                      MemoryKind::kDevice));
  MF_ASSIGN_OR_RETURN(const auto encoder, device.create_encoder(0));
  Weight weight{.format = QuantFormat::plain(DType::kF32), .rows = rows, .cols = kRowFloats};
  weight.parts.codes = Tensor::view(*matrix, 0, {rows, kRowFloats}, DType::kF32);
  const Tensor x = Tensor::view(*vectors, 0, {1, kRowFloats}, DType::kF32);
  const Tensor out = Tensor::view(*vectors, row_bytes, {1, rows}, DType::kF32);
  // Pages that were never written may all be the same page of zeros, and equal numbers cost a bus
  // less power than real ones. Every row has the same numbers, each from another place on.
  const std::vector<float> numbers = random_numbers(2 * kRowFloats);
  encoder->write(x, std::as_bytes(std::span(numbers).first(kRowFloats)));
  for (int64_t row = 0; row < rows; ++row) {
    const auto begin = static_cast<size_t>(row % kRowFloats);
    encoder->write(weight.parts.codes.slice(0, row, 1),
                   std::as_bytes(std::span(numbers).subspan(begin, kRowFloats)));
  }
  float last = 0.0f;
  double best = 0.0;
  const Clock::time_point start = Clock::now();
  std::chrono::duration<double> total{};
  for (int pass = 0; pass < 2 || total.count() < probe.seconds; ++pass) {
    const Clock::time_point begin = Clock::now();
    encoder->run(ops::Linear{out, x, weight});
    MF_RETURN_IF_ERROR(encoder->read(std::as_writable_bytes(std::span(&last, 1)),
                                     out.slice(1, rows - 1, 1)));  // waits for the product
    const std::chrono::duration<double> seconds = Clock::now() - begin;
    best = std::max(best, static_cast<double>(matrix_bytes) / seconds.count());
    total = Clock::now() - start;
  }
  return best;
}

Result<double> measure_bus_bandwidth(Device& device, const BandwidthProbe& probe) {
  using Clock = std::chrono::steady_clock;
  if (!device.copies_beside()) {
    return make_error(ErrorCode::kUnsupported, "{} reads the host's memory over no bus",
                      device.name());
  }
  // Enough that what a copy costs once does not count.
  constexpr uint64_t kMost = uint64_t{256} << 20;
  const uint64_t bytes = std::min(kMost, buffer_bytes_for(device, probe));
  MF_ASSIGN_OR_RETURN(const auto from, device.allocate(bytes, MemoryKind::kHostVisible));
  MF_ASSIGN_OR_RETURN(const auto to, device.allocate(bytes, MemoryKind::kDevice));
  MF_ASSIGN_OR_RETURN(const auto encoder, device.create_encoder(0));
  const std::vector<float> numbers = random_numbers(kRowFloats);
  const auto row = std::as_bytes(std::span(numbers));
  for (uint64_t at = 0; at + row.size() <= bytes; at += row.size()) {
    MF_RETURN_IF_ERROR(device.upload(*from, at, row));
  }
  const BufferCopy copy{to.get(), 0, from.get(), 0, bytes};
  double best = 0.0;
  const Clock::time_point start = Clock::now();
  std::chrono::duration<double> total{};
  for (int pass = 0; pass < 2 || total.count() < probe.seconds; ++pass) {
    const Clock::time_point begin = Clock::now();
    const CopyId last = encoder->copy_beside(std::span(&copy, 1), encoder->submit());
    while (!encoder->has_copied(last)) std::this_thread::yield();
    const std::chrono::duration<double> seconds = Clock::now() - begin;
    best = std::max(best, static_cast<double>(bytes) / seconds.count());
    total = Clock::now() - start;
  }
  MF_RETURN_IF_ERROR(encoder->wait(encoder->submit()));
  return best;
}

}  // namespace moeflux
