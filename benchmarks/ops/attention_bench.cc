// Attention of the CPU backend over a paged cache: GFLOP/s, and GB/s of keys and values.
//   attention_bench --benchmark_filter=attention/avx512/16x256
#include "base/format.h"
#include "bench_device.h"

namespace moeflux {
namespace {

struct Problem {
  std::string isa;
  int threads = 1;
  int64_t heads = 1;
  int64_t kv_heads = 1;
  int64_t head_dim = 1;
  int64_t v_head_dim = 1;
  bool values_are_keys = false;
  int64_t window = 0;
  int64_t n = 1;
  int64_t depth = 0;
};

void run_attention(benchmark::State& state, const Problem& p) {
  const auto device = BenchDevice::open(state, {.threads = p.threads, .isa = p.isa});
  if (device == nullptr) return;
  constexpr int64_t kPageTokens = 256;
  std::vector<Tensor> k_pages;
  std::vector<Tensor> v_pages;
  for (int64_t t = 0; t < p.depth + p.n; t += kPageTokens) {
    k_pages.push_back(device->noise({kPageTokens, p.kv_heads, p.head_dim}));
    v_pages.push_back(p.values_are_keys ? k_pages.back().slice(2, 0, p.v_head_dim)
                                        : device->noise({kPageTokens, p.kv_heads, p.v_head_dim}));
  }
  const Tensor q = device->noise({p.n, p.heads, p.head_dim});
  const Tensor k = device->noise({p.n, p.kv_heads, p.head_dim});
  const Tensor v = p.values_are_keys ? Tensor{} : device->noise({p.n, p.kv_heads, p.v_head_dim});
  const Tensor out = device->noise({p.n, p.heads, p.v_head_dim});
  const KvRows all{p.n, {k_pages, v_pages, kPageTokens, p.depth}};
  for (auto _ : state) {
    device->encoder().run(
        ops::Attention{out, q, k, v, std::span(&all, 1), {.scale = 0.0625f, .window = p.window}});
  }
  double seen = 0.0;  // positions, over all tokens
  for (int64_t t = 0; t < p.n; ++t) {
    const int64_t end = p.depth + t + 1;
    seen += static_cast<double>(p.window > 0 ? std::min(p.window, end) : end);
  }
  const auto width = static_cast<double>(p.head_dim + p.v_head_dim);
  state.counters["GFLOP/s"] = giga_rate(state, 2.0 * seen * static_cast<double>(p.heads) * width);
  if (p.n == 1) {
    const double row = p.values_are_keys ? static_cast<double>(p.head_dim) : width;
    state.counters["GB/s"] = giga_rate(state, 4.0 * seen * static_cast<double>(p.kv_heads) * row);
  }
}

void add(const Problem& p) {
  const std::string name =
      formatted("attention/{}/{}x{}{}{}/n:{}/depth:{}/threads:{}", p.isa, p.heads, p.head_dim,
                p.values_are_keys ? "-latent" : formatted("-kv{}", p.kv_heads),
                p.window > 0 ? formatted("-window{}", p.window) : "", p.n, p.depth, p.threads);
  benchmark::RegisterBenchmark(name.c_str(),
                               [p](benchmark::State& state) { run_attention(state, p); })
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

void add_all() {
  const Problem shapes[] = {
      {.heads = 16, .kv_heads = 2, .head_dim = 256, .v_head_dim = 256},
      {.heads = 32, .kv_heads = 4, .head_dim = 128, .v_head_dim = 128},
      {.heads = 64, .kv_heads = 8, .head_dim = 64, .v_head_dim = 64},
      {.heads = 64, .kv_heads = 8, .head_dim = 64, .v_head_dim = 64, .window = 128},
      {.heads = 16, .kv_heads = 16, .head_dim = 128, .v_head_dim = 128},
      {.heads = 16, .head_dim = 576, .v_head_dim = 512, .values_are_keys = true},
      {.heads = 128, .head_dim = 576, .v_head_dim = 512, .values_are_keys = true},
  };
  for (const char* isa : {"avx512", "avx2", "neon", "generic"}) {
    for (const int threads : {1, 2}) {
      for (Problem p : shapes) {
        p.isa = isa;
        p.threads = threads;
        for (const int64_t depth : {0, 4096, 32768}) {
          for (const int64_t n : {1, 4, 64, 512}) {
            if (depth > 4096 && n > 1) continue;
            p.n = n;
            p.depth = depth;
            add(p);
          }
        }
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
