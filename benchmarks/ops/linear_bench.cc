// Matrix-vector and matrix-matrix products of the CPU backend: GB/s of weights, GOP/s (two a
// multiply-add). Tiles are what models run on; row-major figures stand beside them.
//   linear_bench --benchmark_filter=linear/avx512-vnni-int8/affine-4/64.tiled/
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/cpu_device.h"
#include "backend/encoder.h"
#include "base/format.h"
#include "quant/weight.h"

namespace moeflux {
namespace {

struct Problem {
  std::string isa;
  Precision precision = Precision::kF32;
  int threads = 1;
  QuantFormat format;
  int64_t n = 1;
  int64_t rows = 0;
  int64_t cols = 0;
};

struct Operands {
  std::vector<std::unique_ptr<Buffer>> buffers;
  std::vector<Weight> weights;
  Tensor x;
  Tensor out;
};

/// Bytes that are valid scales of any type and arbitrary codes.
Tensor filled(Device& device, Operands& operands, const Shape& shape, DType dtype) {
  const auto bytes = static_cast<size_t>(shape.num_elements() * dtype_bits(dtype) / 8);
  auto buffer = device.allocate(bytes, MemoryKind::kDevice);
  operands.buffers.push_back(std::move(buffer).value());
  std::memset(operands.buffers.back()->host_data(), 0x3c, bytes);
  return Tensor::view(*operands.buffers.back(), 0, shape, dtype);
}

Weight make_weight(Device& device, Operands& operands, const Problem& p) {
  Weight w;
  w.format = p.format;
  w.rows = p.rows;
  w.cols = p.cols;
  if (p.format.kind == QuantKind::kPlain) {
    w.data = filled(device, operands, {p.rows, p.cols}, p.format.dtype);
    return w;
  }
  if (p.format.order == WeightOrder::kTiled) {
    const auto bytes = static_cast<int64_t>(weight_bytes(p.format, p.rows, p.cols).total());
    w.data = filled(device, operands, {bytes}, DType::kU8);
    return w;
  }
  const int64_t groups = p.cols / p.format.group_size;
  w.data = filled(device, operands, {p.rows, p.cols * p.format.bits / 32}, DType::kU32);
  w.scales = filled(device, operands, {p.rows, groups}, p.format.dtype);
  w.biases = filled(device, operands, {p.rows, groups}, p.format.dtype);
  return w;
}

void run_linear(benchmark::State& state, const Problem& p) {
  auto made = make_cpu_device({.threads = p.threads, .isa = p.isa, .precision = p.precision});
  if (!made.ok()) {
    state.SkipWithError(made.error().to_string().c_str());
    return;
  }
  const std::unique_ptr<Device> device = std::move(made).value();
  const std::unique_ptr<Encoder> encoder = std::move(device->create_encoder(0)).value();
  Operands operands;
  // A decode step reads every weight once: enough matrices that none is still in a private cache.
  const uint64_t matrix_bytes = weight_bytes(p.format, p.rows, p.cols).total();
  const uint64_t matrices = p.n == 1 ? (uint64_t{512} << 20) / matrix_bytes + 1 : 1;
  for (uint64_t i = 0; i < matrices; ++i) {
    operands.weights.push_back(make_weight(*device, operands, p));
  }
  operands.x = filled(*device, operands, {p.n, p.cols}, DType::kF32);
  operands.out = filled(*device, operands, {p.n, p.rows}, DType::kF32);
  size_t next = 0;
  for (auto _ : state) {
    encoder->linear(operands.out, operands.x, operands.weights[next]);
    (void)encoder->submit();  // or the product waits for its likes
    next = (next + 1) % operands.weights.size();
  }
  const auto calls = static_cast<double>(state.iterations());
  state.counters["GB/s"] = benchmark::Counter(calls * static_cast<double>(matrix_bytes) * 1e-9,
                                              benchmark::Counter::kIsRate);
  state.counters["GOP/s"] = benchmark::Counter(
      calls * 2e-9 * static_cast<double>(p.n * p.rows * p.cols), benchmark::Counter::kIsRate);
}

/// Without spaces, which filters do not like.
std::string format_name(const Problem& p) {
  std::string name = p.format.to_string();
  for (char& c : name) c = c == ' ' ? '.' : c;
  return name;
}

void add(const Problem& p) {
  const std::string name = format("linear/{}{}/{}/{}x{}x{}/threads:{}", p.isa,
                                  p.precision == Precision::kInt8 ? "-int8" : "", format_name(p),
                                  p.n, p.rows, p.cols, p.threads);
  benchmark::RegisterBenchmark(name.c_str(), [p](benchmark::State& state) { run_linear(state, p); })
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

void add_sizes(Problem p) {
  for (const int threads : {1, 2}) {
    p.threads = threads;
    for (const int64_t n : {1, 4, 16, 64, 512}) {
      p.n = n;
      p.rows = p.cols = 2048;
      add(p);
      if (n != 1) continue;
      p.rows = 8192;
      add(p);
    }
  }
}

void add_all() {
  for (const int bits : {4, 8}) {
    const QuantFormat tiles =
        QuantFormat::affine(bits, 64, DType::kBf16).with_order(WeightOrder::kTiled);
    for (const char* isa : {"avx512-vnni", "avx-vnni", "avx2", "neon-dotprod", "neon", "generic"}) {
      add_sizes({.isa = isa, .precision = Precision::kInt8, .format = tiles});
    }
    for (const char* isa : {"avx512", "avx2", "neon", "generic"}) {
      add_sizes({.isa = isa, .precision = Precision::kF32, .format = tiles});
    }
  }
  const std::vector<QuantFormat> row_major = {
      QuantFormat::affine(4, 64, DType::kBf16), QuantFormat::affine(8, 64, DType::kBf16),
      QuantFormat::affine(3, 64, DType::kBf16), QuantFormat::plain(DType::kBf16)};
  for (const char* isa : {"avx512", "avx2", "neon", "generic"}) {
    for (const QuantFormat& format : row_major) {
      add_sizes({.isa = isa, .precision = Precision::kF32, .format = format});
    }
  }
}

}  // namespace
}  // namespace moeflux

int main(int argc, char** argv) {
  moeflux::add_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
