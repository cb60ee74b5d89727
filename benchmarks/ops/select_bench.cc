// The choice of keys by the CPU backend: GFLOP/s of scores, with GB/s of index keys; and attention
// over chosen keys beside attention over a cache of as many. Keys and values are in f16.
//   select_bench --benchmark_filter=select_keys/avx512/64x128
#include <algorithm>
#include <numeric>
#include <random>

#include "base/format.h"
#include "bench_device.h"

namespace moeflux {
namespace {

constexpr int64_t kPageTokens = 256;

std::vector<Tensor> make_pages(BenchDevice& device, int64_t tokens, int64_t heads, int64_t width) {
  std::vector<Tensor> pages;
  for (int64_t t = 0; t < tokens; t += kPageTokens) {
    pages.push_back(device.half_noise({kPageTokens, heads, width}));
  }
  return pages;
}

struct Index {
  std::string isa;
  int threads = 1;
  int64_t heads = 64;
  int64_t groups = 1;
  int64_t most = 2048;
  SelectOptions options = {};
  bool has_weights = true;
  int64_t n = 1;
  int64_t depth = 32768;
};

void run_select(benchmark::State& state, const Index& p) {
  constexpr int64_t kDim = 128;
  const auto device = BenchDevice::open(state, {.threads = p.threads, .isa = p.isa});
  if (device == nullptr) return;
  const int64_t key_tokens = p.options.key_tokens();
  const std::vector<Tensor> pages = make_pages(*device, p.depth + p.n, 1, kDim / key_tokens);
  const Tensor q = device->noise({p.n, p.heads, kDim});
  const Tensor k = device->noise({p.n, 1, kDim});
  const Tensor weights = p.has_weights ? device->noise({p.n, p.heads}) : Tensor{};
  const Tensor ids = device->filled({p.n, p.groups, p.most}, DType::kI32);
  const KvRows rows{p.n, {pages, pages, kPageTokens, p.depth}};
  for (auto _ : state) {
    device->encoder().run(ops::SelectKeys{ids, q, k, weights, {&rows, 1}, p.options});
  }
  const auto seen = static_cast<double>(p.n * ((p.depth + p.n / 2) / key_tokens));
  state.counters["GFLOP/s"] = giga_rate(state, 2.0 * seen * static_cast<double>(p.heads * kDim));
  if (p.n == 1) state.counters["GB/s"] = giga_rate(state, 2.0 * seen * kDim);
}

struct Attended {
  std::string isa;
  int threads = 1;
  int64_t heads = 128;
  int64_t kv_heads = 1;
  int64_t groups = 1;
  int64_t head_dim = 576;
  int64_t v_head_dim = 512;
  bool values_are_keys = true;
  int64_t most = 2048;
  int64_t unit = 1;
  bool chooses = true;
  int64_t n = 1;
  int64_t depth = 32768;
};

void run_attention(benchmark::State& state, const Attended& p) {
  const auto device = BenchDevice::open(state, {.threads = p.threads, .isa = p.isa});
  if (device == nullptr) return;
  const int64_t keys = p.most * p.unit;
  const int64_t depth = p.chooses ? p.depth : keys - p.n;
  const std::vector<Tensor> k_pages = make_pages(*device, depth + p.n, p.kv_heads, p.head_dim);
  std::vector<Tensor> v_pages;
  if (p.values_are_keys) {
    for (const Tensor& page : k_pages) v_pages.push_back(page.slice(2, 0, p.v_head_dim));
  } else {
    v_pages = make_pages(*device, depth + p.n, p.kv_heads, p.v_head_dim);
  }
  std::mt19937 random(1);
  std::vector<int32_t> all(static_cast<size_t>(depth / p.unit));
  std::iota(all.begin(), all.end(), 0);
  std::vector<int32_t> chosen;
  for (int64_t row = 0; p.chooses && row < p.n * p.groups; ++row) {
    std::vector<int32_t> own;
    std::ranges::sample(all, std::back_inserter(own), p.most - 1, random);
    own.push_back(static_cast<int32_t>(depth / p.unit));
    chosen.insert(chosen.end(), own.begin(), own.end());
  }
  const Tensor ids = p.chooses ? device->ints({p.n, p.groups, p.most}, chosen) : Tensor{};
  const Tensor q = device->noise({p.n, p.heads, p.head_dim});
  const Tensor k = device->noise({p.n, p.kv_heads, p.head_dim});
  const Tensor v = p.values_are_keys ? Tensor{} : device->noise({p.n, p.kv_heads, p.v_head_dim});
  const Tensor out = device->noise({p.n, p.heads, p.v_head_dim});
  const KvRows rows{q.dim(0), {k_pages, v_pages, kPageTokens, depth}};
  for (auto _ : state) {
    device->encoder().run(ops::Attention{
        out, q, k, v, std::span(&rows, 1), {.scale = 0.0625f, .selected = {ids, p.unit}}});
  }
  const auto width = static_cast<double>(p.head_dim + p.v_head_dim);
  state.counters["GFLOP/s"] =
      giga_rate(state, 2.0 * static_cast<double>(p.n * keys * p.heads) * width);
}

/// DeepSeek-V4's: a window of 128 tokens, and entries of the context before.
struct Pooled {
  std::string isa;
  int threads = 1;
  int64_t unit = 4;
  int64_t most = 512;  // entries that are chosen; 0: all
  int64_t n = 1;
  int64_t depth = 32768;
};

void run_pooled(benchmark::State& state, const Pooled& p) {
  constexpr int64_t kHeads = 64;
  constexpr int64_t kDim = 512;
  constexpr int64_t kWindow = 128;
  const auto device = BenchDevice::open(state, {.threads = p.threads, .isa = p.isa});
  if (device == nullptr) return;
  const std::vector<Tensor> window = make_pages(*device, 2 * kPageTokens, 1, kDim);
  const std::vector<Tensor> entries = make_pages(*device, p.depth + p.n, 1, kDim / p.unit);
  std::vector<int32_t> chosen;
  for (int64_t i = 0; i < p.n * p.most; ++i) {
    chosen.push_back(static_cast<int32_t>(i % p.most * (p.depth / p.unit / p.most)));
  }
  PooledKeys pooled;
  pooled.keys = device->noise({p.n, 1, kDim});
  const KvRows rows{p.n, {entries, entries, kPageTokens, p.depth}};
  pooled.sequences = {&rows, 1};
  pooled.unit = p.unit;
  if (p.most > 0) pooled.ids = device->ints({p.n, 1, p.most}, chosen);
  const Tensor q = device->noise({p.n, kHeads, kDim});
  const Tensor k = device->noise({p.n, 1, kDim});
  const Tensor out = device->noise({p.n, kHeads, kDim});
  const KvRows all{q.dim(0), {window, window, kPageTokens, p.depth}};
  for (auto _ : state) {
    device->encoder().run(ops::Attention{out,
                                         q,
                                         k,
                                         Tensor{},
                                         std::span(&all, 1),
                                         {.scale = 0.0442f, .window = kWindow, .pooled = pooled}});
  }
  const auto keys = static_cast<double>(kWindow + pooled.count_at(p.depth));
  state.counters["GFLOP/s"] =
      giga_rate(state, 4.0 * static_cast<double>(p.n * kHeads * kDim) * keys);
}

void add_pooled(const std::string& isa, int threads, int64_t n) {
  const Pooled entries[] = {{.isa = isa, .threads = threads, .n = n},
                            {.isa = isa, .threads = threads, .unit = 128, .most = 0, .n = n}};
  for (const Pooled& p : entries) {
    benchmark::RegisterBenchmark(
        formatted("attention/{}/64x512/pools of {}/n:{}/threads:{}", isa, p.unit, n, threads)
            .c_str(),
        [p](benchmark::State& state) { run_pooled(state, p); })
        ->UseRealTime()
        ->MeasureProcessCPUTime()
        ->Unit(benchmark::kMicrosecond);
  }
}

void add_all() {
  for (const char* isa : {"avx512", "avx2", "neon", "generic"}) {
    for (const int threads : {1, 2}) {
      for (const int64_t n : {1, 64}) {
        const Index indices[] = {{.isa = isa, .threads = threads, .n = n},
                                 {.isa = isa,
                                  .threads = threads,
                                  .heads = 4,
                                  .groups = 4,
                                  .most = 16,
                                  .options = {.unit = 128, .recent = 1},
                                  .has_weights = false,
                                  .n = n},
                                 {.isa = isa,
                                  .threads = threads,
                                  .heads = 32,
                                  .most = 513,
                                  .options = {.unit = 4, .recent = 1, .whole = true},
                                  .n = n},
                                 {.isa = isa,
                                  .threads = threads,
                                  .heads = 4,
                                  .most = 513,
                                  .options = {.unit = 4, .recent = 1, .whole = true, .relu = true},
                                  .has_weights = false,
                                  .n = n}};
        for (const Index& p : indices) {
          benchmark::RegisterBenchmark(formatted("select_keys/{}/{}x128/n:{}/depth:{}/threads:{}",
                                                 isa, p.heads, n, p.depth, threads)
                                           .c_str(),
                                       [p](benchmark::State& state) { run_select(state, p); })
              ->UseRealTime()
              ->MeasureProcessCPUTime()
              ->Unit(benchmark::kMicrosecond);
        }
        add_pooled(isa, threads, n);
        for (const bool chooses : {false, true}) {
          const Attended shapes[] = {{.isa = isa, .threads = threads, .chooses = chooses, .n = n},
                                     {.isa = isa,
                                      .threads = threads,
                                      .heads = 64,
                                      .kv_heads = 4,
                                      .groups = 4,
                                      .head_dim = 128,
                                      .v_head_dim = 128,
                                      .values_are_keys = false,
                                      .most = 16,
                                      .unit = 128,
                                      .chooses = chooses,
                                      .n = n}};
          for (const Attended& p : shapes) {
            benchmark::RegisterBenchmark(
                formatted("attention/{}/{}x{}/{}/n:{}/threads:{}", isa, p.heads, p.head_dim,
                          chooses ? "chosen" : "dense", n, threads)
                    .c_str(),
                [p](benchmark::State& state) { run_attention(state, p); })
                ->UseRealTime()
                ->MeasureProcessCPUTime()
                ->Unit(benchmark::kMicrosecond);
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
