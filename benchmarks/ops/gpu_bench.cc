// Operations of a GPU, which are queued, so that launches cost little of the time. Experts of every
// format have GB/s of stored bytes for one token and GOP/s (two a multiply-add) for a prompt.
// Attention, by type of keys, depth and window, has GOP/s of the pairs that masks let through. The
// choice of keys and attention to them follow.
//   DEVICE=cuda:0 gpu_bench --benchmark_filter=experts/1/
// Time is that of the wall. DEVICE (cuda:0) may be the emulator, to see that a change runs.
#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/format.h"
#include "bench_device.h"
#include "quant/formats/tensor_formats.h"
#include "quant/ggml_types.h"
#include "quant/q8_rows.h"
#include "quant/weight.h"

namespace moeflux {
namespace {

constexpr int64_t kPageTokens = 256;

std::unique_ptr<BenchDevice> open_gpu(benchmark::State& state) {
  const char* name = std::getenv("DEVICE");
  return BenchDevice::open(state, {.name = name != nullptr ? name : "cuda:0"});
}

// `calls` of run(i) before each wait.
template <typename Run>
bool repeat(benchmark::State& state, BenchDevice& device, int calls, const Run& run) {
  int next = 0;
  for (auto _ : state) {
    EventId last{};
    for (int i = 0; i < calls; ++i) {
      run(next++);
      last = device.encoder().submit();
    }
    if (const Status done = device.encoder().wait(last); !done.ok()) {
      state.SkipWithError(done.error().to_string().c_str());
      return false;
    }
  }
  return true;
}

// --- Experts of Qwen3.6-35B-A3B's shape ---

constexpr int64_t kHidden = 2048;
constexpr int64_t kIntermediate = 512;
constexpr int64_t kExperts = 256;
constexpr int64_t kTopK = 8;

void run_experts(benchmark::State& state, const QuantFormat& format, int64_t n) {
  const auto device = open_gpu(state);
  if (device == nullptr) return;
  std::vector<ExpertWeights> experts;
  for (int32_t e = 0; e < kExperts; ++e) {
    experts.push_back({ExpertId{e}, device->filled_weight(format, kIntermediate, kHidden),
                       device->filled_weight(format, kIntermediate, kHidden),
                       device->filled_weight(format, kHidden, kIntermediate)});
  }
  const Tensor x = device->noise({n, kHidden});
  const Tensor slots = device->noise({n * kTopK, kHidden});
  const Tensor intermediate = device->noise({n * kTopK, kIntermediate});
  const Tensor weights = device->noise({n, kTopK});
  // A token's experts are those whose turn it is, so that none is in a cache; a prompt's are drawn.
  const int64_t turns = n == 1 ? kExperts / kTopK : 1;
  std::mt19937 random(1);
  std::vector<int32_t> all(kExperts);
  std::iota(all.begin(), all.end(), 0);
  std::vector<Routes> routes;
  for (int64_t turn = 0; turn < turns; ++turn) {
    std::vector<int32_t> ids;
    for (int64_t token = 0; token < n; ++token) {
      const auto own =
          std::span(all).subspan(static_cast<size_t>(n == 1 ? turn * kTopK : 0), kTopK);
      if (n > 1) std::ranges::shuffle(all, random);
      ids.insert(ids.end(), own.begin(), own.end());
    }
    routes.push_back({device->ints({n, kTopK}, ids), weights});
  }
  std::ranges::sort(all);
  const int calls = n == 1 ? 64 : 2;
  const bool ran = repeat(state, *device, calls, [&](int i) {
    device->encoder().run(ops::ExpertFfn{
        slots, intermediate, x, routes[static_cast<size_t>(i % turns)], experts, {}});
  });
  if (!ran) return;
  const auto expert_bytes =
      static_cast<double>(2 * experts[0].gate.size_bytes() + experts[0].down.size_bytes());
  const auto used = static_cast<double>(std::min(kExperts, n * kTopK));
  state.counters["us"] = {static_cast<double>(state.iterations()) * calls * 1e-6,
                          benchmark::Counter::kIsRate | benchmark::Counter::kInvert};
  state.counters["GB/s"] = giga_rate(state, calls * used * expert_bytes);
  state.counters["GOP/s"] =
      giga_rate(state, calls * 6.0 * static_cast<double>(n * kTopK * kHidden * kIntermediate));
}

/// As they lie in memory: GPTQ and AWQ are affine groups with F32 parameters there, packed integers
/// have their own type of scales, or F32 beside zero points.
std::vector<std::pair<std::string, QuantFormat>> stored_formats() {
  const auto in_memory = [](const QuantFormat& stored) {
    return format_in_memory(stored, kHidden, kHidden);
  };
  std::vector<std::pair<std::string, QuantFormat>> formats = {
      {"affine-4", QuantFormat::affine(4, 64, DType::kBf16)},
      {"affine-8", QuantFormat::affine(8, 64, DType::kBf16)},
      {"FP8.128x128", fp8_of(DType::kF32, 128, 128)},
      {"FP8.channel", fp8_of(DType::kF32, 1, 0)},
      {"MXFP8", fp8_of(DType::kF8E8M0, 1, 32)},
      {"MXFP4", in_memory(QuantFormat::of(mxfp4_format))},
      {"NVFP4", in_memory(nvfp4_of(OuterScale::kFactor))},
      {"GPTQ.128", in_memory(integers_of(gptq_format, 4, 128, DType::kF16))},
      {"AWQ.128", in_memory(integers_of(awq_format, 4, 128, DType::kF16))},
      {"packed-4.32", in_memory(integers_of(packed_int_format, 4, 32, DType::kBf16))},
      {"packed-4.128.f32", in_memory(integers_of(packed_int_format, 4, 128, DType::kF32))},
      {"packed-8.channel", in_memory(integers_of(packed_int_format, 8, 0, DType::kBf16))}};
  for (const GgmlType& type : ggml_types()) {
    if (type.is_readable() && type.block_elements != 1) {
      formats.emplace_back(std::string(type.name), *type.format);
    }
  }
  return formats;
}

// --- Attention ---

struct Heads {
  int64_t heads = 0;
  int64_t kv_heads = 1;
  int64_t head_dim = 0;
  int64_t v_head_dim = 0;
  bool values_are_keys = false;
  int64_t window = 0;
};

// Pages of one sequence, of f16 or q8_0 as `type` says.
struct Cache {
  std::vector<Tensor> keys;
  std::vector<Tensor> values;
};
Cache make_cache(BenchDevice& device, const Heads& p, DType type, int64_t tokens) {
  Cache cache;
  const auto page = [&](int64_t width) {
    const Shape shape{kPageTokens, p.kv_heads,
                      type == DType::kI8 ? q8_rows::row_bytes(width) : width};
    return type == DType::kI8 ? device.filled(shape, type) : device.half_noise(shape);
  };
  for (int64_t t = 0; t < tokens; t += kPageTokens) {
    cache.keys.push_back(page(p.head_dim));
    cache.values.push_back(p.values_are_keys ? cache.keys.back().slice(2, 0, p.v_head_dim)
                                             : page(p.v_head_dim));
  }
  return cache;
}

constexpr int64_t kChosen = 2048;  // of DeepSeek-V3.2

struct Attended {
  Heads heads;
  DType type = DType::kF16;
  int64_t n = 1;
  int64_t depth = 0;
  bool chooses = false;  // kChosen keys a token
};

/// Null where all keys are attended to.
Tensor choices(BenchDevice& device, const Attended& p) {
  if (!p.chooses) return {};
  std::mt19937 random(1);
  std::vector<int32_t> all(static_cast<size_t>(p.depth));
  std::iota(all.begin(), all.end(), 0);
  std::vector<int32_t> chosen;
  for (int64_t row = 0; row < p.n; ++row) {
    std::ranges::sample(all, std::back_inserter(chosen), kChosen, random);
  }
  return device.ints({p.n, 1, kChosen}, chosen);
}

/// The positions that all tokens together attend to.
double seen_by_all(const Attended& p) {
  double seen = 0.0;
  for (int64_t t = 0; t < p.n; ++t) {
    const int64_t end = p.depth + t + 1;
    const int64_t most = p.chooses ? kChosen : p.heads.window > 0 ? p.heads.window : end;
    seen += static_cast<double>(std::min(most, end));
  }
  return seen;
}

void run_attention(benchmark::State& state, const Attended& p) {
  const auto device = open_gpu(state);
  if (device == nullptr) return;
  const Heads& h = p.heads;
  const Cache cache = make_cache(*device, h, p.type, p.depth + p.n);
  const Tensor ids = choices(*device, p);
  const Tensor q = device->noise({p.n, h.heads, h.head_dim});
  const Tensor k = device->noise({p.n, h.kv_heads, h.head_dim});
  const Tensor v = h.values_are_keys ? Tensor{} : device->noise({p.n, h.kv_heads, h.v_head_dim});
  const Tensor out = device->noise({p.n, h.heads, h.v_head_dim});
  const KvRows rows{p.n, {cache.keys, cache.values, kPageTokens, p.depth}};
  const int calls = p.n == 1 ? 32 : 2;
  const bool ran = repeat(state, *device, calls, [&](int) {
    device->encoder().run(
        ops::Attention{out,
                       q,
                       k,
                       v,
                       {&rows, 1},
                       {.scale = 0.0625f, .window = h.window, .selected = {.ids = ids}}});
  });
  if (!ran) return;
  const double seen = seen_by_all(p);
  const auto width = static_cast<double>(h.head_dim + h.v_head_dim);
  state.counters["GOP/s"] =
      giga_rate(state, calls * 2.0 * seen * static_cast<double>(h.heads) * width);
  if (p.n > 1) return;
  const double row = h.values_are_keys ? static_cast<double>(h.head_dim) : width;
  const double bytes = p.type == DType::kI8 ? 34.0 / 32.0 : 2.0;
  state.counters["GB/s"] =
      giga_rate(state, calls * seen * static_cast<double>(h.kv_heads) * row * bytes);
}

// --- The choice of keys, DeepSeek-V3.2's ---

void run_select(benchmark::State& state, int64_t n, int64_t depth) {
  constexpr int64_t kHeads = 64;
  constexpr int64_t kDim = 128;
  const auto device = open_gpu(state);
  if (device == nullptr) return;
  const Cache cache =
      make_cache(*device, {.head_dim = kDim, .v_head_dim = kDim, .values_are_keys = true},
                 DType::kF16, depth + n);
  const Tensor q = device->noise({n, kHeads, kDim});
  const Tensor k = device->noise({n, 1, kDim});
  const Tensor weights = device->noise({n, kHeads});
  const Tensor ids = device->filled({n, 1, kChosen}, DType::kI32);
  const KvRows rows{n, {cache.keys, cache.keys, kPageTokens, depth}};
  const int calls = n == 1 ? 32 : 2;
  const bool ran = repeat(state, *device, calls, [&](int) {
    device->encoder().run(ops::SelectKeys{ids, q, k, weights, {&rows, 1}, {}});
  });
  if (!ran) return;
  const auto seen = static_cast<double>(n * (depth + n / 2));
  state.counters["GOP/s"] = giga_rate(state, calls * 2.0 * seen * double(kHeads * kDim));
}

template <typename Run>
void add(const std::string& name, const Run& run) {
  benchmark::RegisterBenchmark(name.c_str(), run)->UseRealTime()->Unit(benchmark::kMicrosecond);
}

void add_attention() {
  const Heads latent{.heads = 128, .head_dim = 576, .v_head_dim = 512, .values_are_keys = true};
  const std::pair<const char*, Heads> shapes[] = {
      {"64", {.heads = 64, .kv_heads = 8, .head_dim = 64, .v_head_dim = 64}},
      {"64.window128",
       {.heads = 64, .kv_heads = 8, .head_dim = 64, .v_head_dim = 64, .window = 128}},
      {"128", {.heads = 32, .kv_heads = 4, .head_dim = 128, .v_head_dim = 128}},
      {"128.window4096",
       {.heads = 32, .kv_heads = 4, .head_dim = 128, .v_head_dim = 128, .window = 4096}},
      {"256", {.heads = 16, .kv_heads = 2, .head_dim = 256, .v_head_dim = 256}},
      {"latent", latent}};
  for (const auto& [name, heads] : shapes) {
    for (const DType type : {DType::kF16, DType::kI8}) {
      for (const int64_t n : {1, 4096}) {
        for (const int64_t depth : {0, 4096, 32768, 131072}) {
          if (n == 1 && depth == 0) continue;
          const Attended p{heads, type, n, depth};
          add(formatted("attention/{}/{}/{}/{}", n, name, type == DType::kI8 ? "q8_0" : "f16",
                        depth),
              [p](benchmark::State& state) { run_attention(state, p); });
        }
      }
    }
  }
  for (const int64_t n : {1, 512}) {
    for (const int64_t depth : {4096, 32768}) {
      add(formatted("select_keys/{}/{}", n, depth),
          [n, depth](benchmark::State& state) { run_select(state, n, depth); });
      const Attended p{latent, DType::kF16, n, depth, /*chooses=*/true};
      add(formatted("chosen/{}/{}", n, depth),
          [p](benchmark::State& state) { run_attention(state, p); });
    }
  }
}

void add_all() {
  for (const auto& [name, format] : stored_formats()) {
    for (const int64_t n : {1, 4096}) {
      add(formatted("experts/{}/{}", n, name),
          [format, n](benchmark::State& state) { run_experts(state, format, n); });
    }
  }
  add_attention();
}

}  // namespace
}  // namespace moeflux

int main(int argc, char** argv) {
  moeflux::add_all();
  return moeflux::run_registered(argc, argv);
}
