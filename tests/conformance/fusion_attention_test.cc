// Attention and the gate of its output in one launch.
#include <gtest/gtest.h>

#include "base/format.h"
#include "tests/conformance/fusion.h"
#include "tests/support/one_sequence.h"

namespace moeflux::conformance {
namespace {

/// Attention behind `before` tokens, times an activation of a gate that lies beside the queries.
struct GatedProblem {
  int64_t n = 1;
  int64_t before = 0;
  int64_t kv_heads = 1;
  int64_t dim = 32;
  int64_t page_tokens = 32;
  Activation activation = Activation::kSigmoid;
  bool in_place = true;

  static constexpr int64_t kHeads = 4;

  std::vector<Tensor> run(Session& s, const Between& between) const {
    Random random(static_cast<uint64_t>(n * 1000 + before));
    const auto floats = [&](const Shape& shape) {
      return s.floats(shape, random.floats(shape.num_elements()));
    };
    const Tensor wide_q = floats({n, kHeads, 2 * dim});
    const Tensor q = wide_q.slice(2, 0, dim);
    const Tensor gate = wide_q.slice(2, dim, dim);
    const Tensor k = floats({n, kv_heads, dim});
    const Tensor v = floats({n, kv_heads, dim});
    std::vector<Tensor> k_pages;
    std::vector<Tensor> v_pages;
    for (int64_t i = 0; i * page_tokens < before + n; ++i) {
      k_pages.push_back(floats({page_tokens, kv_heads, dim}));
      v_pages.push_back(floats({page_tokens, kv_heads, dim}));
    }
    const Tensor mixed = s.zeros({n, kHeads, dim});
    const Tensor out = in_place ? mixed : s.zeros({n, kHeads, dim});
    s.encoder().run(ops::Attention{
        mixed,
        q,
        k,
        v,
        testing::one_sequence(
            q.dim(0),
            {.k_pages = k_pages, .v_pages = v_pages, .page_tokens = page_tokens, .length = before}),
        {.scale = 0.2f}});
    between();
    s.encoder().run(ops::MulActivated{out, mixed, gate, activation});
    between();
    return {mixed, out};
  }
};

void check_gated(size_t expected_launches, const GatedProblem& p) {
  expect_same_bits_in(expected_launches,
                      formatted("{} tokens behind {}, heads of {} on {} in pages of {}", p.n,
                                p.before, p.dim, p.kv_heads, p.page_tokens),
                      [&](Session& s, const Between& between) { return p.run(s, between); });
}

// Keys and values go into their pages first, in a launch of their own.
TEST(Fusion, AttentionAndItsGateAreOneLaunch) {
  check_gated(2, {});
  check_gated(2, {.n = 3, .before = 10, .kv_heads = 2, .dim = 20});
  check_gated(2, {.before = 200, .kv_heads = 2});
  check_gated(2, {.n = 2, .before = 9, .dim = 24, .page_tokens = 5});
}

TEST(Fusion, TheGateOfAttentionFollowsTheMergeOfItsParts) {
  check_gated(3, {.before = 200});
  check_gated(3, {.n = 2, .before = 600, .dim = 24, .page_tokens = 5});
}

TEST(Fusion, TheGateOfAttentionFollowsManyQueriesToo) {
  // Keys and values that many queries share are brought into halves first.
  check_gated(3, {.n = 70, .before = 30, .kv_heads = 2, .dim = 36});
}

TEST(Fusion, OtherGatesOfAttentionStayApart) {
  check_gated(3, {.activation = Activation::kSilu});
  check_gated(3, {.in_place = false});
  check_gated(3, {.dim = 22});
}

}  // namespace
}  // namespace moeflux::conformance
