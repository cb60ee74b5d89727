// Matrix-vector and matrix-matrix products: GB/s of weights, GOP/s (two a multiply-add), 1e9
// weights/s. On CPUs tiles are what models of affine groups run on; row-major figures stand beside
// them. Other formats are multiplied as they are stored. A GPU's matrices are large, and its
// products are queued, so that launches cost little of the time.
//   linear_bench --benchmark_filter=linear/avx512-vnni-int8/affine-4/64.tiled/
#include <string>
#include <vector>

#include "base/format.h"
#include "bench_device.h"
#include "quant/ggml_types.h"
#include "quant/weight.h"

namespace moeflux {
namespace {

struct Problem {
  std::string device = "cpu";
  std::string isa;
  std::string precision = "auto";
  int threads = 1;
  int queued = 1;  // products before each wait
  QuantFormat format;
  int64_t n = 1;
  int64_t rows = 0;
  int64_t cols = 0;
};

void run_linear(benchmark::State& state, const Problem& p) {
  const auto device = BenchDevice::open(
      state, {.name = p.device, .threads = p.threads, .isa = p.isa, .precision = p.precision});
  if (device == nullptr) return;
  // A decode step reads every weight once: enough matrices that none is still in a private cache.
  const uint64_t matrix_bytes = weight_bytes(p.format, p.rows, p.cols);
  const uint64_t matrices = p.n == 1 ? (uint64_t{512} << 20) / matrix_bytes + 1 : 1;
  std::vector<Weight> weights;
  for (uint64_t i = 0; i < matrices; ++i) {
    weights.push_back(device->filled_weight(p.format, p.rows, p.cols));
  }
  const Tensor x = device->noise({p.n, p.cols});
  const Tensor out = device->noise({p.n, p.rows});
  size_t next = 0;
  for (auto _ : state) {
    EventId last{};
    for (int i = 0; i < p.queued; ++i) {
      device->encoder().run(ops::Linear{out, x, weights[next]});
      last = device->encoder().submit();  // or the product waits for its likes
      next = (next + 1) % weights.size();
    }
    if (const Status done = device->encoder().wait(last); !done.ok()) {
      state.SkipWithError(done.error().to_string().c_str());
      return;
    }
  }
  const double products = p.queued;
  const auto weights_each = static_cast<double>(p.rows * p.cols);
  state.counters["GB/s"] = giga_rate(state, products * static_cast<double>(matrix_bytes));
  state.counters["Gweights/s"] = giga_rate(state, products * weights_each);
  state.counters["GOP/s"] = giga_rate(state, products * 2.0 * weights_each * double(p.n));
}

/// Without spaces, which filters do not like.
std::string format_name(const Problem& p) {
  std::string name = p.format.to_string();
  for (char& c : name) c = c == ' ' ? '.' : c;
  return name;
}

void add(const Problem& p) {
  const std::string name =
      formatted("linear/{}{}/{}/{}x{}x{}/threads:{}", p.device == "cpu" ? p.isa : p.device,
                p.precision == "int8" || p.precision == "q16" ? "-" + p.precision : "",
                format_name(p), p.n, p.rows, p.cols, p.threads);
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

/// One token and a prompt of rows of affine groups and of every format that GGUF files have, with
/// activations in integers of 8 and of 16 bits. Products that q16 does not have run in f32.
void add_stored(Problem p) {
  std::vector<QuantFormat> formats;
  for (const int bits : {4, 8}) {
    for (const int group : {64, 128}) {
      formats.push_back(QuantFormat::affine(bits, group, DType::kBf16));
    }
  }
  for (const GgmlType& type : ggml_types()) {
    if (type.is_readable() && type.block_elements != 1) formats.push_back(*type.format);
  }
  p.rows = 4096;
  p.cols = 2048;
  for (const QuantFormat& format : formats) {
    p.format = format;
    for (const int threads : {1, 2, 16}) {
      p.threads = threads;
      for (const int64_t n : {1, 256}) {
        p.n = n;
        for (const char* precision : {"int8", "q16"}) {
          p.precision = precision;
          add(p);
        }
      }
    }
  }
}

/// One token and a prompt on a GPU, of every format it multiplies from what is stored.
void add_gpu(Problem p) {
  p.rows = 32768;
  p.cols = 4096;
  std::vector<QuantFormat> formats;
  for (const int bits : {3, 4, 5, 6, 8}) {
    formats.push_back(QuantFormat::affine(bits, 64, DType::kBf16));
  }
  formats.push_back(QuantFormat::plain(DType::kBf16));
  for (const GgmlType& type : ggml_types()) {
    if (type.is_readable() && type.block_elements != 1) formats.push_back(*type.format);
  }
  for (const QuantFormat& format : formats) {
    p.format = format;
    for (const int64_t n : {1, 512}) {
      p.n = n;
      p.queued = n == 1 ? 64 : 4;
      add(p);
    }
  }
}

void add_all() {
  add_gpu({.device = "cuda:0"});
  for (const int bits : {4, 8}) {
    const QuantFormat tiles =
        QuantFormat::affine(bits, 64, DType::kBf16).with_order(WeightOrder::kTiled);
    for (const char* isa :
         {"avx512-amx", "avx512-vnni", "avx-vnni", "avx2", "neon-dotprod", "neon", "generic"}) {
      add_sizes({.isa = isa, .precision = "int8", .format = tiles});
      if (bits == 4) add_stored({.isa = isa});
    }
    for (const char* isa : {"avx512", "avx2", "neon", "generic"}) {
      add_sizes({.isa = isa, .precision = "f32", .format = tiles});
    }
  }
  const std::vector<QuantFormat> row_major = {
      QuantFormat::affine(4, 64, DType::kBf16), QuantFormat::affine(8, 64, DType::kBf16),
      QuantFormat::affine(3, 64, DType::kBf16), QuantFormat::plain(DType::kBf16)};
  for (const char* isa : {"avx512", "avx2", "neon", "generic"}) {
    for (const QuantFormat& format : row_major) {
      add_sizes({.isa = isa, .precision = "f32", .format = format});
    }
  }
}

}  // namespace
}  // namespace moeflux

int main(int argc, char** argv) {
  moeflux::add_all();
  return moeflux::run_registered(argc, argv);
}
