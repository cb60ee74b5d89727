// Residuals of several streams on the CPU backend, as GLM-5.3-Flash has them (4 of 4096), in
// microseconds a token. Their gates and the sum that a branch reads by them; that with the norm and
// the product before it; what it adds; signed roots of their products; their sum by a gate for each
// number. And pools of index keys.
//   streams_bench --benchmark_filter=gates/avx512
#include "base/format.h"
#include "bench_device.h"
#include "quant/weight.h"

namespace moeflux {
namespace {

constexpr int64_t kStreams = 4;
constexpr int64_t kHidden = 4096;
constexpr int64_t kLogits = (2 + kStreams) * kStreams;

struct Problem {
  std::string isa;
  int threads = 1;
  int64_t n = 1;
};

class Streams {
 public:
  Streams(BenchDevice& device, int64_t n)
      : encoder_(device.encoder()),
        x_(device.noise({n, kStreams, kHidden})),
        next_(device.noise({n, kStreams, kHidden})),
        normed_(device.noise({n, kStreams * kHidden})),
        logits_(device.noise({n, kLogits})),
        branch_(device.noise({n, kHidden})),
        gates_{device.noise({n, kStreams}), device.noise({n, kStreams, kStreams})},
        options_{device.noise({3}), device.noise({kLogits}), 20, 1e-6f},
        weight_(lay_out(QuantFormat::plain(DType::kF32), kLogits, kStreams * kHidden)) {
    weight_.parts.codes = device.noise({kLogits, kStreams * kHidden});
    weight_.exact_activations = true;
  }
  void read_by_gates() { encoder_.run(ops::ReadStreams{branch_, gates_, x_, logits_, options_}); }
  void read() {
    encoder_.run(ops::RmsNorm{normed_, x_.reshape(normed_.shape), {}, 1e-5f});
    encoder_.run(ops::Linear{logits_, normed_, weight_});
    read_by_gates();
  }
  void root() {
    encoder_.run(ops::RootDots{gates_.write, x_, next_, {.scale = 1.0f / 64.0f, .least = 1e-6f}});
  }
  void sum() { encoder_.run(ops::SumGated{branch_, x_, next_}); }
  void add() { encoder_.run(ops::ExpandStreams{next_, x_, branch_, gates_}); }

 private:
  Encoder& encoder_;
  Tensor x_;
  Tensor next_;
  Tensor normed_;
  Tensor logits_;
  Tensor branch_;
  StreamGates gates_;
  StreamGateOptions options_;
  Weight weight_;
};

void count_tokens(benchmark::State& state, int64_t n) {
  state.counters["us/token"] =
      benchmark::Counter(1e-6 * static_cast<double>(n * state.iterations()),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void run_streams(benchmark::State& state, const Problem& p, void (Streams::*part)()) {
  const auto device = BenchDevice::open(state, {.threads = p.threads, .isa = p.isa});
  if (device == nullptr) return;
  Streams streams(*device, p.n);
  for (auto _ : state) (streams.*part)();
  count_tokens(state, p.n);
}

struct Pools {
  int64_t unit = 4;
  int64_t width = 128;
  bool overlap = false;
};

void run_pool(benchmark::State& state, const Problem& p, const Pools& pools) {
  const int64_t cols = pools.overlap ? 2 * pools.width : pools.width;
  const auto device = BenchDevice::open(state, {.threads = p.threads, .isa = p.isa});
  if (device == nullptr) return;
  std::vector<int32_t> numbers;
  for (int64_t i = 0; i < p.n; ++i) numbers.push_back(static_cast<int32_t>(1003 + i));
  const Tensor positions = device->ints({p.n}, numbers);
  const Tensor x = device->noise({p.n, cols});
  const PoolGates gates{device->noise({p.n, cols}), device->noise({pools.unit, cols}),
                        pools.overlap};
  const Tensor out = device->noise({p.n, pools.width});
  const StateRows rows{p.n, device->noise({gates.kept_rows(pools.unit), 2 * cols})};
  for (auto _ : state) {
    device->encoder().run(ops::PoolRows{out, x, gates, positions, {&rows, 1}, pools.unit});
  }
  count_tokens(state, p.n);
}

template <typename Run>
void add(const std::string& op, const Problem& p, const Run& run) {
  const std::string name = formatted("{}/{}/n:{}/threads:{}", op, p.isa, p.n, p.threads);
  benchmark::RegisterBenchmark(name.c_str(), run)->UseRealTime()->Unit(benchmark::kMicrosecond);
}

void add_all() {
  for (const char* isa : {"avx512", "avx2", "neon", "generic"}) {
    for (const int threads : {1, 2}) {
      for (const int64_t n : {1, 64, 512}) {
        const Problem p{isa, threads, n};
        const auto part = [p](void (Streams::*what)()) {
          return [p, what](benchmark::State& state) { run_streams(state, p, what); };
        };
        add("gates", p, part(&Streams::read_by_gates));
        add("read", p, part(&Streams::read));
        add("expand", p, part(&Streams::add));
        add("root", p, part(&Streams::root));
        add("sum", p, part(&Streams::sum));
        add("pool", p, [p](benchmark::State& state) { run_pool(state, p, {}); });
        add("pool/overlap", p,
            [p](benchmark::State& state) { run_pool(state, p, {.width = 512, .overlap = true}); });
        add("pool/128", p,
            [p](benchmark::State& state) { run_pool(state, p, {.unit = 128, .width = 512}); });
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
