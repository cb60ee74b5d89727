// rope, attention, causal_conv and gated_delta against the reference.
#include <gtest/gtest.h>

#include <cmath>

#include "base/format.h"
#include "tests/conformance/models.h"
#include "tests/conformance/support.h"

namespace moeflux::conformance {
namespace {

constexpr int64_t kTokens[] = {1, 2, 3, 7, 17, 64};

TEST(Rope, MatchesTheReferenceInBothPairings) {
  Random random(20);
  for (const bool interleaved : {false, true}) {
    for (const int64_t head_dim : {32, 64, 128, 256}) {
      for (const int64_t rotary : {int64_t{2}, int64_t{20}, head_dim / 2, head_dim}) {
        if (rotary > head_dim) continue;
        const int64_t n = 5;
        const int64_t heads = 3;
        const std::vector<float> x = random.floats(n * heads * head_dim);
        const std::vector<float> frequencies = random.floats(rotary / 2, 0.0f, 1.0f);
        const std::vector<int32_t> positions = {0, 1, 17, 4095, 100000};
        // Cosine, sine and two products: a few roundings of values below 2 * attention_factor.
        const std::vector<float> tolerance(x.size(), 6.0f * kRounding * 2.0f * 1.2f);
        const std::string label =
            format("{} of {}{}", rotary, head_dim, interleaved ? ", interleaved" : "");
        compare_with_reference({"rope", label, head_dim, tolerance}, [&](Session& s) {
          const Tensor heads_tensor = s.floats({n, heads, head_dim}, x);
          s.encoder().rope(
              heads_tensor, s.ints({n}, positions), s.floats({rotary / 2}, frequencies),
              {.rotary_dim = rotary, .interleaved = interleaved, .attention_factor = 1.2f});
          return s.read(heads_tensor);
        });
      }
    }
  }
}

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

void check_attention(const AttentionProblem& p, const Chunks& chunks) {
  const std::vector<float> tolerance(static_cast<size_t>(p.n * p.heads * p.v_head_dim),
                                     attention_tolerance(p));
  const std::string label =
      format("{} heads of {}/{} on {}, {} tokens in {} calls, pages of {}", p.heads, p.head_dim,
             p.v_head_dim, p.kv_heads, p.n, chunks.size(), p.page_tokens);
  compare_with_reference({"attention", label, p.v_head_dim, tolerance},
                         [&](Session& s) { return p.run(s, chunks); });
}

TEST(Attention, MatchesTheReferenceAtEveryHeadSize) {
  Random random(21);
  for (const int64_t head_dim : {16, 20, 32, 64, 128, 192, 256}) {
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
    s.encoder().attention(out, q, k, k, {k_pages, v_pages, 4, 0}, {.scale = 0.1f});
    return s.read(out);
  });
}

TEST(CausalConv, MatchesTheReference) {
  Random random(25);
  for (const int64_t taps : {2, 3, 4, 5}) {
    for (const int64_t channels : {1, 7, 16, 33, 100, 1100}) {
      for (const int64_t n : kTokens) {
        const ConvProblem p = ConvProblem::make(random, channels, taps, n);
        std::vector<float> tolerance(static_cast<size_t>(n * channels),
                                     kRounding * 6.0f * 2.0f * static_cast<float>(taps));
        tolerance.resize(tolerance.size() + static_cast<size_t>((taps - 1) * channels), 0.0f);
        compare_with_reference(
            {"causal_conv", format("{} taps, {}x{}", taps, n, channels), channels, tolerance},
            [&](Session& s) { return p.run(s, {n}); });
      }
    }
  }
}

void check_delta(Random& random, const GatedDeltaOptions& o, int64_t n) {
  const DeltaProblem p = DeltaProblem::make(random, o, n);
  // State and output stay of the order of sqrt(key_dim) times the state's range; each token adds
  // the roundings of sums over key_dim.
  const auto d = static_cast<float>(o.key_dim);
  const float value = (4.0f + std::sqrt(d)) * (2.0f + std::sqrt(d) / 4.0f);
  const size_t size = static_cast<size_t>(n * o.value_heads * o.value_dim +
                                          o.value_heads * o.key_dim * o.value_dim);
  const std::vector<float> tolerance(size,
                                     kRounding * value * (1.0f + std::sqrt(static_cast<float>(n))));
  const std::string label = format("{}/{} heads, {}x{}, {} tokens", o.key_heads, o.value_heads,
                                   o.key_dim, o.value_dim, n);
  compare_with_reference({"gated_delta", label, o.value_dim, tolerance},
                         [&](Session& s) { return p.run(s, {n}); });
}

TEST(GatedDelta, MatchesTheReference) {
  Random random(26);
  for (const GatedDeltaOptions& o : {GatedDeltaOptions{1, 1, 2, 2},
                                     {1, 1, 16, 16},
                                     {2, 4, 32, 33},
                                     {2, 2, 20, 100},
                                     {2, 6, 64, 64},
                                     {1, 2, 128, 128}}) {
    for (const int64_t n : kTokens) check_delta(random, o, n);
  }
}

}  // namespace
}  // namespace moeflux::conformance
