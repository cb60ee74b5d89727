// Norms of heads, their positions and attention share launches.
#include <gtest/gtest.h>

#include "base/format.h"
#include "tests/conformance/fusion.h"
#include "tests/conformance/support.h"
#include "tests/support/one_sequence.h"

namespace moeflux::conformance {
namespace {

/// Norms and rotary positions of queries and keys, then attention behind a few tokens.
struct HeadsProblem {
  int64_t n = 1;
  int64_t dim = 32;
  bool q_norm = true;
  bool k_norm = true;
  bool v_norm = false;
  int64_t rotary = 0;  // 0: no positions
  bool interleaved = false;
  int64_t first = 0;         // column that turns
  int64_t unit = 1;          // positions turn by
  bool null_values = false;  // the pages of values are those of keys
  bool same_rope = true;
  DType page_type = DType::kF32;

  static constexpr int64_t kHeads = 4;
  static constexpr int64_t kKvHeads = 2;
  static constexpr int64_t kPageTokens = 4;
  static constexpr int64_t kBefore = 3;

  std::vector<Tensor> run(Session& s, const Between& between) const {
    Random random(static_cast<uint64_t>(n * 1000 + dim));
    const auto floats = [&](const Shape& shape) {
      return s.floats(shape, random.floats(shape.num_elements()));
    };
    // Queries lie between gates, as they do where outputs are gated.
    const Tensor wide_q = floats({n, kHeads, 2 * dim});
    const Tensor q = wide_q.slice(2, 0, dim);
    const Tensor k = floats({n, kKvHeads, dim});
    const Tensor v = null_values ? Tensor{} : floats({n, kKvHeads, dim});
    const Tensor norm = floats({dim});
    const int64_t half = std::max<int64_t>(rotary / 2, 1);
    const Tensor frequencies = floats({half});
    const Tensor others = floats({half});
    std::vector<int32_t> numbers;
    for (int64_t i = 0; i < n; ++i) numbers.push_back(static_cast<int32_t>(kBefore + i));
    const Tensor positions = s.ints({n}, numbers);
    std::vector<Tensor> k_pages;
    std::vector<Tensor> v_pages;
    const auto page = [&] {
      const Shape shape{kPageTokens, kKvHeads, dim};
      return s.floats(shape, random.floats(shape.num_elements()), page_type);
    };
    for (int64_t i = 0; i < (kBefore + n + kPageTokens - 1) / kPageTokens; ++i) {
      k_pages.push_back(page());
      v_pages.push_back(null_values ? k_pages.back() : page());
    }
    const Tensor out = s.zeros({n, kHeads, dim});
    Encoder& e = s.encoder();
    const auto normalize = [&](bool wanted, const Tensor& x, const Tensor& weight) {
      if (wanted) e.run(ops::RmsNorm{x, x, weight, 1e-6f});
      between();
    };
    normalize(q_norm, q, norm);
    normalize(k_norm, k, norm);
    normalize(v_norm, v, {});
    const RopeOptions options{
        .rotary_dim = rotary, .interleaved = interleaved, .attention_factor = 1.25f, .unit = unit};
    const auto turned = [&](const Tensor& x) {
      return first == 0 ? x : x.slice(2, first, dim - first);
    };
    if (rotary > 0) {
      e.run(ops::Rope{turned(q), positions, frequencies, options});
      between();
      e.run(ops::Rope{turned(k), positions, same_rope ? frequencies : others, options});
      between();
    }
    e.run(ops::Attention{out,
                         q,
                         k,
                         v,
                         testing::one_sequence(q.dim(0), {.k_pages = k_pages,
                                                          .v_pages = v_pages,
                                                          .page_tokens = kPageTokens,
                                                          .length = kBefore}),
                         {.scale = 0.2f}});
    between();
    std::vector<Tensor> written = {wide_q, k, out};
    if (!null_values) written.push_back(v);
    written.insert(written.end(), k_pages.begin(), k_pages.end());
    if (!null_values) written.insert(written.end(), v_pages.begin(), v_pages.end());
    return written;
  }
};

void check_heads(size_t expected_launches, const HeadsProblem& p) {
  expect_same_bits_in(expected_launches,
                      formatted("{} tokens, heads of {}, norms {} {} {}, {} turn", p.n, p.dim,
                                p.q_norm, p.k_norm, p.v_norm, p.rotary),
                      [&](Session& s, const Between& between) { return p.run(s, between); });
}

TEST(Fusion, HeadsReachAttentionInOneLaunch) {
  check_heads(2, {.rotary = 32});
  check_heads(2, {.n = 6, .rotary = 16, .interleaved = true});
  check_heads(2, {.n = 2, .dim = 22, .rotary = 20});
  check_heads(2, {.n = 70, .dim = 20, .v_norm = true, .rotary = 4});
  check_heads(2, {.dim = 256, .q_norm = false, .rotary = 64});
  check_heads(2, {.n = 3, .q_norm = false, .k_norm = false, .rotary = 32, .null_values = true});
  check_heads(2, {.n = 2, .q_norm = false, .k_norm = false});
  check_heads(2, {.n = 3, .rotary = 16, .page_type = DType::kF16});
  check_heads(2, {.n = 2, .dim = 22, .rotary = 20, .page_type = DType::kF16});
}

TEST(Fusion, HeadsOfWhichSomeColumnsTurnReachAttentionInOneLaunch) {
  check_heads(2, {.rotary = 16, .interleaved = true, .first = 16});
  check_heads(2, {.n = 3, .dim = 22, .rotary = 6, .first = 15, .unit = 4});
  check_heads(2, {.n = 6, .rotary = 8, .first = 4, .page_type = DType::kF16});
}

TEST(Fusion, HeadsOfDifferentTurnsStayApart) {
  // Two norms, two turns, the copy into the pages and attention.
  check_heads(6, {.rotary = 32, .same_rope = false});
}

}  // namespace
}  // namespace moeflux::conformance
