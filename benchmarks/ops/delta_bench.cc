// The recurrences of gated DeltaNet, Kimi delta attention (kda) and Mamba-2 on the CPU backend:
// microseconds a token, GFLOP/s, and GB/s of the state, which a call reads and writes once.
//
// A cell of a delta rule's state takes a product and three multiply-adds a token, one of a scan's
// two. So a core that begins two vectors a cycle makes at most 7/8 and 5/6 of its peak. A single
// token has to read and write the state, from and to memory where a step goes through all layers.
//   delta_bench --benchmark_filter=gated_delta/avx512
#include "base/format.h"
#include "bench_device.h"

namespace moeflux {
namespace {

struct Problem {
  std::string isa;
  int threads = 1;
  GatedDeltaOptions heads;
  int64_t n = 1;
  int64_t scan_groups = 0;  // of a scan with value_heads heads, whose state_dim is key_dim

  int64_t channels() const {
    return 2 * heads.key_heads * heads.key_dim + heads.value_heads * heads.value_dim;
  }
};

// A decode step goes through the states of all layers: enough that none is still in L2.
constexpr int64_t kLayers = 30;

void run_delta(benchmark::State& state, const Problem& p) {
  const auto device = BenchDevice::open(state, {.threads = p.threads, .isa = p.isa});
  if (device == nullptr) return;
  const GatedDeltaOptions& o = p.heads;
  std::vector<Tensor> cells;
  for (int64_t i = 0; i < kLayers; ++i) {
    cells.push_back(device->noise({o.value_heads, o.key_dim, o.value_dim}));
  }
  const Tensor qkv = device->noise({p.n, p.channels()});
  const Tensor a = device->noise({p.n, o.decays()});
  const Tensor b = device->noise({p.n, o.value_heads});
  const Tensor rates = device->noise({o.value_heads});
  const Tensor biases = device->noise({o.decays()});
  const Tensor out = device->noise({p.n, o.value_heads, o.value_dim});
  size_t layer = 0;
  for (auto _ : state) {
    const StateRows all{qkv.dim(0), cells[layer]};
    device->encoder().run(ops::GatedDelta{out, qkv, a, b, rates, biases, std::span(&all, 1), o});
    layer = (layer + 1) % cells.size();
  }
  const auto elements = static_cast<double>(o.value_heads * o.key_dim * o.value_dim);
  state.counters["GFLOP/s"] = giga_rate(state, 7.0 * elements * static_cast<double>(p.n));
  state.counters["us/token"] =
      benchmark::Counter(1e-6 * static_cast<double>(p.n * state.iterations()),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  if (p.n == 1) state.counters["GB/s"] = giga_rate(state, 8.0 * elements);
}

void run_scan(benchmark::State& state, const Problem& p) {
  const auto device = BenchDevice::open(state, {.threads = p.threads, .isa = p.isa});
  if (device == nullptr) return;
  const ScanOptions o{p.heads.value_heads, p.heads.value_dim, p.scan_groups, p.heads.key_dim};
  std::vector<Tensor> cells;
  for (int64_t i = 0; i < kLayers; ++i) {
    cells.push_back(device->noise({o.heads, o.state_dim, o.head_dim}));
  }
  const Tensor xbc = device->noise({p.n, o.row_width()});
  const Tensor dt = device->noise({p.n, o.heads});
  const ScanWeights weights{device->noise({o.heads}), device->noise({o.heads}),
                            device->noise({o.heads})};
  const Tensor out = device->noise({p.n, o.heads, o.head_dim});
  size_t layer = 0;
  for (auto _ : state) {
    const StateRows all{xbc.dim(0), cells[layer]};
    device->encoder().run(ops::SelectiveScan{out, xbc, dt, weights, std::span(&all, 1), o});
    layer = (layer + 1) % cells.size();
  }
  const auto elements = static_cast<double>(o.heads * o.state_dim * o.head_dim);
  state.counters["GFLOP/s"] = giga_rate(state, 5.0 * elements * static_cast<double>(p.n));
  state.counters["us/token"] =
      benchmark::Counter(1e-6 * static_cast<double>(p.n * state.iterations()),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  if (p.n == 1) state.counters["GB/s"] = giga_rate(state, 8.0 * elements);
}

void run_conv(benchmark::State& state, const Problem& p) {
  const auto device = BenchDevice::open(state, {.threads = p.threads, .isa = p.isa});
  if (device == nullptr) return;
  constexpr int64_t kTaps = 4;
  const Tensor x = device->noise({p.n, p.channels()});
  const Tensor weight = device->noise({p.channels(), kTaps});
  const Tensor past = device->noise({kTaps - 1, p.channels()});
  const Tensor out = device->noise({p.n, p.channels()});
  const StateRows all{x.dim(0), past};
  for (auto _ : state)
    device->encoder().run(ops::CausalConv{out, x, weight, {}, std::span(&all, 1)});
  state.counters["us/token"] =
      benchmark::Counter(1e-6 * static_cast<double>(p.n * state.iterations()),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void add(const std::string& op, const Problem& p, void (*run)(benchmark::State&, const Problem&)) {
  const GatedDeltaOptions& o = p.heads;
  const std::string name = formatted("{}/{}/{}-{}x{}x{}/n:{}/threads:{}", op, p.isa, o.key_heads,
                                     o.value_heads, o.key_dim, o.value_dim, p.n, p.threads);
  benchmark::RegisterBenchmark(name.c_str(), [p, run](benchmark::State& state) { run(state, p); })
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

void add_all() {
  for (const char* isa : {"avx512", "avx2", "neon", "generic"}) {
    for (const int threads : {1, 2}) {
      for (const int64_t n : {1, 4, 64, 512}) {
        const Problem p{isa, threads, {16, 32, 128, 128}, n};
        add("gated_delta", p, run_delta);
        add("causal_conv", p, run_conv);
        Problem rows{isa, threads, {32, 32, 128, 128}, n};  // Kimi-Linear's layers
        rows.heads.row_decay = true;
        add("kda", rows, run_delta);
        rows.heads.decay_bound = -5.0f;
        add("kda_bounded", rows, run_delta);
        // Nemotron 3 Nano's and Granite 4.0 H-Small's.
        add("selective_scan", {isa, threads, {1, 64, 128, 64}, n, 8}, run_scan);
        add("selective_scan", {isa, threads, {1, 128, 128, 64}, n, 1}, run_scan);
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
