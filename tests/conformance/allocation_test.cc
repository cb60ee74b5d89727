// A step that has run before allocates nothing: every operator new of this program is counted.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "base/check.h"
#include "tests/conformance/models.h"
#include "tests/conformance/support.h"
#include "tests/support/one_sequence.h"

namespace {
std::atomic<int64_t> allocations{0};
}  // namespace

void* operator new(size_t bytes) {
  ++allocations;
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  MF_CHECK(memory != nullptr);
  return memory;
}
// Containers' temporary buffers come from here and go to the plain operator delete below.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
// Not inlined: g++ would take free() for a mismatch with new.
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace moeflux::conformance {
namespace {

TEST(Allocation, WarmStepsAllocateNothing) {
  Random random(60);
  constexpr int64_t kTokens = 9;
  const QuantFormat format = QuantFormat::affine(4, 64, DType::kBf16);
  const EncodedWeight matrix = random_weight(random, format, 128, 128);
  for (const NamedDevice* device : one_device_per_family()) {
    Session s(*device->device);
    Encoder& e = s.encoder();
    const Weight w = s.weight(matrix);
    const Tensor x = s.floats({kTokens, 128}, random.floats(kTokens * 128));
    const Tensor y = s.zeros({kTokens, 128});
    const Tensor heads = s.floats({kTokens, 4, 32}, random.floats(kTokens * 128));
    const Tensor positions = s.zeros({kTokens}, DType::kI32);
    const Tensor frequencies = s.zeros({16});
    const std::vector<Tensor> k_pages = {s.zeros({16, 4, 32})};
    const std::vector<Tensor> v_pages = {s.zeros({16, 4, 32})};
    const Tensor sinks = s.zeros({4});
    const Tensor attended = s.zeros({kTokens, 4, 32});
    const Tensor taps = s.zeros({128, 4});
    const Tensor past = s.zeros({3, 128});
    const Tensor delta = s.zeros({1, 32, 64});
    const Tensor gates = s.zeros({kTokens, 1});
    const Tensor one = s.zeros({1});
    const Tensor delta_out = s.zeros({kTokens, 1, 64});
    const Routes routes{s.zeros({kTokens, 2}, DType::kI32), s.zeros({kTokens, 2})};
    const Tensor logits = s.floats({kTokens, 4}, random.floats(kTokens * 4));
    const Tensor slots = s.zeros({kTokens, 2, 128});
    const Tensor intermediate = s.zeros({kTokens, 2, 128});
    std::vector<ExpertWeights> experts;
    for (int32_t id = 0; id < 4; ++id) experts.push_back({ExpertId{id}, w, w, w});
    const Tensor logits_bias = s.zeros({128});
    const HeadRows head_rows{.head_stride = 64, .row_begin = 3, .rows_per_head = 40};
    const Tensor wide = s.zeros({kTokens, 2, 128});
    const Tensor narrow = s.zeros({kTokens, 2, 40});
    const auto pages = testing::one_sequence(kTokens, {k_pages, v_pages, 16, 0});
    const auto past_rows = testing::one_sequence(kTokens, past);
    const auto delta_rows = testing::one_sequence(kTokens, delta);
    const auto step = [&] {
      e.run(ops::Linear{y, x, w});
      e.run(ops::Embed{y, w, positions});
      e.run(ops::RmsNorm{y, x, past.slice(0, 0, 1), 1e-6f});
      e.run(ops::Rope{heads, positions, frequencies, {.rotary_dim = 32}});
      e.run(ops::Attention{attended, heads, heads, heads, pages, {.window = 5, .sinks = sinks}});
      e.run(ops::CausalConv{y, x, taps, {}, past_rows});
      e.run(ops::GatedDelta{delta_out, x, gates, gates, one, one, delta_rows, {1, 1, 32, 64}});
      e.run(ops::Route{routes, logits, {.num_groups = 2}});
      e.run(ops::ExpertFfn{slots, intermediate, x, routes, experts, {}});
      e.run(ops::CombineExperts{y, slots, routes});
      e.run(ops::Add{y, y, x});
      e.run(ops::AddBias{y, logits_bias});
      e.run(ops::Scale{y, y, 0.5f});
      e.run(ops::SoftCap{y, 30.0f});
      e.run(ops::HeadLinear{narrow, wide, w, head_rows});
      e.run(ops::HeadLinearTransposed{wide, narrow, w, head_rows});
      e.run(ops::Glu{y, y, x, {}});
    };
    // A GPU's launches come to know themselves again in the second step, and run as they are in
    // the third.
    const auto run = [&] {
      step();
      EXPECT_TRUE(e.wait(e.submit()).ok());
    };
    for (int i = 0; i < 3; ++i) run();
    const int64_t before = allocations.load();
    run();
    EXPECT_EQ(allocations.load() - before, 0) << device->name;
  }
}

}  // namespace
}  // namespace moeflux::conformance
