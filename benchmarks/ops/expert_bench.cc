// expert_ffn of the CPU backend on tiles: GB/s of weights for one token, GOP/s (two a multiply-add)
// for prompts.
//   expert_bench --benchmark_filter=expert_ffn/avx512-vnni-int8/
#include <string>
#include <vector>

#include "base/format.h"
#include "bench_device.h"
#include "quant/weight.h"

namespace moeflux {
namespace {

struct Problem {
  std::string isa;
  std::string precision = "f32";
  int threads = 1;
  int64_t n = 1;
  int64_t top_k = 8;
  int64_t hidden = 2048;
  int64_t intermediate = 512;
};

const QuantFormat kFormat =
    QuantFormat::affine(4, 64, DType::kBf16).with_order(WeightOrder::kTiled);

Weight make_weight(BenchDevice& device, int64_t rows, int64_t cols) {
  Weight w;
  w.format = kFormat;
  w.rows = rows;
  w.cols = cols;
  const auto bytes = static_cast<int64_t>(weight_bytes(kFormat, rows, cols));
  w.parts.codes = device.filled({bytes}, DType::kU8);
  return w;
}

void run_experts(benchmark::State& state, const Problem& p) {
  const auto device =
      BenchDevice::open(state, {.threads = p.threads, .isa = p.isa, .precision = p.precision});
  if (device == nullptr) return;
  // Enough experts that none is still in a cache when its turn comes again.
  constexpr int64_t kExperts = 256;
  std::vector<ExpertWeights> experts;
  for (int64_t e = 0; e < kExperts; ++e) {
    ExpertWeights weights;
    weights.expert = ExpertId{static_cast<int32_t>(e)};
    weights.gate = make_weight(*device, p.intermediate, p.hidden);
    weights.up = make_weight(*device, p.intermediate, p.hidden);
    weights.down = make_weight(*device, p.hidden, p.intermediate);
    experts.push_back(weights);
  }
  const Tensor x = device->noise({p.n, p.hidden});
  const Tensor slots = device->noise({p.n * p.top_k, p.hidden});
  const Tensor intermediate = device->noise({p.n * p.top_k, p.intermediate});
  const Routes routes{.ids = device->filled({p.n, p.top_k}, DType::kI32),
                      .weights = device->noise({p.n, p.top_k})};
  auto* ids = reinterpret_cast<int32_t*>(routes.ids.buffer->host_data());
  int32_t first = 0;
  for (auto _ : state) {
    for (int64_t i = 0; i < p.n * p.top_k; ++i) {
      ids[i] = static_cast<int32_t>((first + i) % kExperts);
    }
    const int64_t used = std::min(kExperts, p.n * p.top_k);
    device->encoder().run(ops::ExpertFfn{
        slots,
        intermediate,
        x,
        routes,
        std::span(experts).subspan(static_cast<size_t>(first), static_cast<size_t>(used)),
        {}});
    first = static_cast<int32_t>((first + used) % kExperts);
  }
  const auto used = static_cast<double>(std::min(kExperts, p.n * p.top_k));
  const auto expert_bytes =
      static_cast<double>(2 * experts[0].gate.size_bytes() + experts[0].down.size_bytes());
  state.counters["GB/s"] = giga_rate(state, used * expert_bytes);
  state.counters["GOP/s"] =
      giga_rate(state, 6.0 * static_cast<double>(p.n * p.top_k * p.hidden * p.intermediate));
}

void add(const Problem& p) {
  const std::string name = formatted("expert_ffn/{}{}/{}x{}-top{}/n:{}/threads:{}", p.isa,
                                     p.precision == "int8" ? "-int8" : "", p.intermediate, p.hidden,
                                     p.top_k, p.n, p.threads);
  benchmark::RegisterBenchmark(name.c_str(),
                               [p](benchmark::State& state) { run_experts(state, p); })
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

void add_all() {
  for (const int threads : {1, 2}) {
    for (const int64_t n : {1, 32, 128, 512}) {
      for (const char* isa :
           {"avx512-amx", "avx512-vnni", "avx-vnni", "avx2", "neon-dotprod", "generic"}) {
        add({.isa = isa, .precision = "int8", .threads = threads, .n = n});
      }
      for (const char* isa : {"avx512", "avx2", "neon", "generic"}) {
        add({.isa = isa, .precision = "f32", .threads = threads, .n = n});
      }
    }
  }
}

}  // namespace
}  // namespace moeflux

int main(int argc, char** argv) {
  moeflux::add_all();
  return moeflux::run_registered(argc, argv);
}
