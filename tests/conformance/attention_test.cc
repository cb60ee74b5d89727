// attention against the reference: head sizes, groupings, pages, windows, sinks, shared pages.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/format.h"
#include "quant/q8_rows.h"
#include "tests/conformance/models.h"
#include "tests/conformance/support.h"
#include "tests/support/one_sequence.h"

namespace moeflux::conformance {
namespace {

constexpr int64_t kTokens[] = {1, 2, 3, 7, 17, 64};

/// Every score is off by kRounding * (4 + sqrt(head_dim)) * |q| |k| * scale, which shifts every
/// probability by that factor twice; the sum over values adds roundings of its own.
float attention_tolerance(const AttentionProblem& p) {
  const auto d = static_cast<float>(p.head_dim);
  // Entries are uniform in [-2, 2]: |q| |k| is about 4 d / 3, and scale 0.2. A quarter of it, as
  // shifts common to all scores cancel and the others average out.
  const float score = 0.2f * d / 3.0f;
  const auto length = static_cast<float>(p.n);
  return kRounding * 2.0f * (8.0f + (4.0f + std::sqrt(d)) * score + std::sqrt(length));
}

void check_attention(const AttentionProblem& p, const Chunks& chunks, bool on_slow_devices = true) {
  const std::vector<float> tolerance(static_cast<size_t>(p.n * p.heads * p.v_head_dim),
                                     attention_tolerance(p));
  const std::string label = formatted(
      "{} heads of {}/{} on {}, {} tokens in {} calls, pages of {}, {} {}{}{}", p.heads, p.head_dim,
      p.v_head_dim, p.kv_heads, p.n, chunks.size(), p.page_tokens, p.chunked ? "chunks" : "window",
      p.window, p.sinks.empty() ? "" : ", sinks", p.values_are_keys ? ", values are keys" : "");
  compare_with_reference({"attention", label, p.v_head_dim, tolerance, on_slow_devices,
                          p.has_narrow_cache(), p.has_mixed_cache()},
                         [&](Session& s) { return p.run(s, chunks); });
}

TEST(Attention, MatchesTheReferenceAtEveryHeadSize) {
  Random random(21);
  for (const int64_t head_dim : {16, 20, 32, 48, 64, 80, 128, 192, 256, 576}) {
    for (const int64_t n : kTokens) {
      check_attention(AttentionProblem::make(random, 4, 2, head_dim, head_dim, 16, n), {n});
    }
  }
}

TEST(Attention, MatchesTheReferenceForEveryGroupingOfHeads) {
  Random random(22);
  for (const auto& [heads, kv_heads] : {std::pair{1, 1}, {3, 1}, {8, 1}, {6, 2}, {14, 2}, {5, 5}}) {
    check_attention(AttentionProblem::make(random, heads, kv_heads, 64, 32, 8, 17), {17});
  }
}

TEST(Attention, CrossesPagesAndContinuesEarlierCalls) {
  Random random(23);
  for (const int64_t page_tokens : {1, 3, 16, 256}) {
    check_attention(AttentionProblem::make(random, 4, 2, 32, 48, page_tokens, 150), {70, 1, 79});
  }
}

TEST(Attention, MatchesTheReferenceAtDepth) {
  Random random(32);
  for (const auto& [heads, kv_heads, n] :
       {std::tuple{1, 1, 1100}, {3, 3, 1100}, {6, 2, 530}, {70, 1, 530}}) {
    for (const int64_t window : {0, 130, 520}) {
      if (heads == 70 && window > 0) continue;
      AttentionProblem p = AttentionProblem::make(random, heads, kv_heads, 20, 33, 64, n);
      p.window = window;
      if (window != 130) p.sinks = random.floats(heads, -5.0f, 30.0f);
      check_attention(p, {n - 20, 1, 1, 18}, /*on_slow_devices=*/heads == 1 && window == 0);
    }
  }
}

// Both round to the same f16: the tolerance is that of f32.
TEST(Attention, TakesPagesOfF16) {
  Random random(35);
  for (const auto& [k_type, v_type] : {std::pair{DType::kF16, DType::kF16},
                                       {DType::kF16, DType::kF32},
                                       {DType::kF32, DType::kF16}}) {
    for (const int64_t head_dim : {16, 20, 33, 64, 128, 200}) {
      for (const int64_t n : kTokens) {
        AttentionProblem p = AttentionProblem::make(random, 4, 2, head_dim, head_dim + 7, 16, n);
        p.k_type = k_type;
        p.v_type = v_type;
        check_attention(p, {n});
      }
    }
  }
  AttentionProblem latent = AttentionProblem::make(random, 5, 1, 72, 64, 32, 90);
  latent.values_are_keys = true;
  latent.k_type = DType::kF16;
  check_attention(latent, {50, 1, 39});
  AttentionProblem window = AttentionProblem::make(random, 3, 3, 20, 33, 64, 530);
  window.window = 130;
  window.k_type = window.v_type = DType::kF16;
  check_attention(window, {500, 1, 29});
}

// Both read the same numbers.
TEST(Attention, TakesPagesOf8Bits) {
  Random random(36);
  for (const auto& [k_type, v_type] : {std::pair{DType::kI8, DType::kI8},
                                       {DType::kI8, DType::kF16},
                                       {DType::kF16, DType::kI8},
                                       {DType::kI8, DType::kF32},
                                       {DType::kF32, DType::kI8}}) {
    for (const auto& [head_dim, v_head_dim] :
         {std::pair{32, 32}, {64, 96}, {96, 32}, {128, 128}, {192, 128}, {256, 256}, {320, 288}}) {
      for (const int64_t n : kTokens) {
        AttentionProblem p = AttentionProblem::make(random, 4, 2, head_dim, v_head_dim, 16, n);
        p.k_type = k_type;
        p.v_type = v_type;
        check_attention(p, {n}, n < 10 || k_type == v_type);
      }
    }
  }
  for (const auto& [k_dim, v_dim] : {std::pair{576, 512}, {96, 64}}) {
    AttentionProblem latent = AttentionProblem::make(random, 5, 1, k_dim, v_dim, 32, 90);
    latent.values_are_keys = true;
    latent.k_type = DType::kI8;
    check_attention(latent, {50, 1, 39});
  }
  AttentionProblem window = AttentionProblem::make(random, 3, 3, 32, 64, 64, 530);
  window.window = 130;
  window.k_type = window.v_type = DType::kI8;
  check_attention(window, {500, 1, 29});
}

// A page of 8 bits has the same bytes on every device, whatever the heads hold: numbers of every
// size, none at all, those that round to a half, and those that are not finite.
TEST(Attention, PagesOf8BitsHaveTheBytesOfTheirDefinition) {
  Random random(37);
  for (const int64_t dim : {32, 64, 128, 160, 256, 576}) {
    AttentionProblem p = AttentionProblem::make(random, 3, 3, dim, dim, 16, 10);
    for (size_t block = 0; block * 32 < p.k.size(); ++block) {
      const std::span<float> numbers = std::span(p.k).subspan(block * 32, 32);
      const float size = std::ldexp(1.0f, static_cast<int>(block % 60) * 3 - 150);
      for (float& x : numbers) x *= size;
      if (block % 7 == 1) std::ranges::fill(numbers, 0.0f);
      if (block % 7 == 2) {
        for (size_t i = 0; i < 32; ++i) numbers[i] = static_cast<float>(i) - 15.5f;
        numbers[9] = 127.0f;
      }
      if (block % 23 == 3) numbers[block % 32] = -HUGE_VALF;
      if (block % 23 == 4) numbers[block % 32] = std::nanf("");
      if (block % 23 == 5) numbers[block % 32] = 1e7f;
    }
    const auto row_bytes = static_cast<size_t>(q8_rows::row_bytes(dim));
    std::vector<std::byte> expected(static_cast<size_t>(p.page_tokens * p.kv_heads) * row_bytes);
    for (size_t row = 0; row < static_cast<size_t>(p.n * p.kv_heads); ++row) {
      q8_rows::encode(std::span(expected).subspan(row * row_bytes, row_bytes),
                      row_of(p.k, static_cast<int64_t>(row), dim));
    }
    for (const NamedDevice& device : devices()) {
      if (!device.device->takes_narrow_cache()) continue;
      Session s(*device.device);
      const Tensor pages[] = {p.page(s, dim, DType::kI8), p.page(s, dim, DType::kI8)};
      const Tensor k = s.floats({p.n, p.kv_heads, dim}, p.k);
      const Tensor q = s.floats({p.n, p.heads, dim}, p.q);
      s.encoder().run(
          ops::Attention{s.zeros({p.n, p.heads, dim}),
                         q,
                         k,
                         k,
                         testing::one_sequence(
                             p.n, {std::span(pages, 1), std::span(pages + 1, 1), p.page_tokens, 0}),
                         {.scale = 0.1f}});
      for (const Tensor& page : pages) {
        std::vector<std::byte> got(expected.size());
        const Status read = s.encoder().read(got, page);
        ASSERT_TRUE(read.ok()) << device.name << ": " << read.error().to_string();
        const auto at = std::ranges::mismatch(expected, got).in1 - expected.begin();
        EXPECT_EQ(at, static_cast<ptrdiff_t>(expected.size()))
            << device.name << ", heads of " << dim << ": the first byte that differs";
      }
    }
  }
}

TEST(Attention, ReadsQueriesInsideAWiderProjection) {
  Random random(24);
  const std::vector<float> q_and_gate = random.floats(3 * 4 * 64);
  const std::vector<float> kv = random.floats(3 * 2 * 32);
  const std::vector<float> tolerance(3 * 4 * 32, kRounding * 60.0f);
  compare_with_reference({"attention", "q | gate per head", 32, tolerance}, [&](Session& s) {
    const Tensor q = s.floats({3, 4, 64}, q_and_gate).slice(2, 0, 32);
    const Tensor k = s.floats({3, 2, 32}, kv);
    const std::vector<Tensor> k_pages = {s.zeros({4, 2, 32})};
    const std::vector<Tensor> v_pages = {s.zeros({4, 2, 32})};
    const Tensor out = s.zeros({3, 4, 32});
    s.encoder().run(ops::Attention{
        out, q, k, k, testing::one_sequence(q.dim(0), {k_pages, v_pages, 4, 0}), {.scale = 0.1f}});
    return s.read(out);
  });
}

TEST(Attention, WindowsMayBeSmallerOrLargerThanTheContextInRingsThatWrap) {
  Random random(27);
  int64_t count = 0;  // a slow device takes every seventh: each window, cut and page size in turn
  for (const int64_t page_tokens : {1, 5, 16, 64}) {
    for (const int64_t window : {1, 2, 16, 31, 33, 100, 149, 150, 1000}) {
      AttentionProblem p = AttentionProblem::make(random, 6, 2, 32, 20, page_tokens, 150);
      p.window = window;
      check_attention(p, {150}, ++count % 7 == 0);
      check_attention(p, {70, 1, 1, 13, 65}, ++count % 7 == 0);
      check_attention(p, one_by_one(150), ++count % 7 == 0);
    }
  }
}

TEST(Attention, ChunksBeginAtTheirMultiples) {
  Random random(38);
  int64_t count = 0;
  for (const int64_t page_tokens : {5, 64}) {
    for (const int64_t chunk : {1, 16, 33, 64, 150}) {
      AttentionProblem p = AttentionProblem::make(random, 6, 2, 32, 20, page_tokens, 150);
      p.window = chunk;
      p.chunked = true;
      check_attention(p, {150}, ++count % 3 == 0);
      check_attention(p, {70, 1, 1, 13, 65}, ++count % 3 == 0);
      check_attention(p, one_by_one(150), ++count % 3 == 0);
    }
  }
}

TEST(Attention, SinksTakePartInTheDenominatorOnly) {
  Random random(28);
  for (const auto& [heads, kv_heads] : {std::pair{1, 1}, {8, 1}, {14, 2}, {40, 1}}) {
    for (const int64_t window : {0, 7}) {
      AttentionProblem p = AttentionProblem::make(random, heads, kv_heads, 64, 64, 16, 50);
      p.window = window;
      p.sinks = random.floats(heads, -5.0f, 30.0f);
      check_attention(p, {3, 1, 46});
    }
  }
}

TEST(Attention, AddsBiasesByDistance) {
  Random random(33);
  for (const auto& [heads, kv_heads, n] : {std::tuple{1, 1, 20}, {8, 1, 70}, {14, 2, 300}}) {
    for (const int64_t extent : {1, 24, 160}) {
      AttentionProblem p = AttentionProblem::make(random, heads, kv_heads, 32, 40, 16, n);
      p.window = extent == 24 ? 24 : 0;
      p.add_biases(random, extent);
      check_attention(p, {n - 5, 1, 4}, n < 100);
    }
  }
}

TEST(Attention, ASinkFarAboveEveryScoreLeavesNothing) {
  Random random(29);
  AttentionProblem p = AttentionProblem::make(random, 4, 2, 16, 16, 8, 10);
  p.sinks.assign(4, 1000.0f);
  for (const NamedDevice* device : one_device_per_family()) {
    Session s(*device->device);
    EXPECT_EQ(p.run(s, {10}), std::vector<float>(10 * 4 * 16, 0.0f)) << device->name;
  }
}

TEST(Attention, ValuesMayBeTheFirstPartOfTheKeysOfOneHead) {
  Random random(30);
  for (const int64_t heads : {1, 2, 7, 16, 37, 128}) {
    for (const auto& [k_dim, v_dim] : {std::pair{576, 512}, {40, 32}, {21, 5}}) {
      AttentionProblem p = AttentionProblem::make(random, heads, 1, k_dim, v_dim, 16, 35);
      p.values_are_keys = true;
      check_attention(p, {1, 33, 1}, heads < 10 || k_dim < 50);
    }
  }
}

TEST(Attention, ValuesMayBeTheFirstPartOfTheKeysOfSeveralHeadsInARing) {
  Random random(31);
  AttentionProblem p = AttentionProblem::make(random, 6, 3, 48, 20, 4, 61);
  p.values_are_keys = true;
  p.window = 9;
  p.sinks = random.floats(6);
  check_attention(p, {20, 1, 40});
}

}  // namespace
}  // namespace moeflux::conformance
