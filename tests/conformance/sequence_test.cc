// rope and the recurrences against the reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "backend/reference/reference_device.h"
#include "base/format.h"
#include "tests/conformance/models.h"
#include "tests/conformance/support.h"

namespace moeflux::conformance {
namespace {

constexpr int64_t kLengths[] = {1, 2, 3, 7, 17, 64};

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
            formatted("{} of {}{}", rotary, head_dim, interleaved ? ", interleaved" : "");
        compare_with_reference({"rope", label, head_dim, tolerance}, [&](Session& s) {
          const Tensor heads_tensor = s.floats({n, heads, head_dim}, x);
          s.encoder().run(ops::Rope{
              heads_tensor,
              s.ints({n}, positions),
              s.floats({rotary / 2}, frequencies),
              {.rotary_dim = rotary, .interleaved = interleaved, .attention_factor = 1.2f}});
          return s.read(heads_tensor);
        });
      }
    }
  }
}

TEST(Rope, TurnsByPositionsRoundedDown) {
  Random random(29);
  const std::vector<float> x = random.floats(6 * 3 * 32);
  const std::vector<float> frequencies = random.floats(8, 0.0f, 1.0f);
  const std::vector<int32_t> rounded = {0, 0, 12, 12, 4092, 99996};
  const std::vector<int32_t> positions = {0, 3, 12, 15, 4095, 99999};
  for (const NamedDevice& device : devices()) {
    Session s(*device.device);
    const auto turned = [&](const std::vector<int32_t>& at, int64_t unit) {
      const Tensor heads = s.floats({6, 3, 32}, x);
      s.encoder().run(ops::Rope{
          heads, s.ints({6}, at), s.floats({8}, frequencies), {.rotary_dim = 16, .unit = unit}});
      return s.read(heads);
    };
    expect_same_bits(device.name, turned(rounded, 1), turned(positions, 4));
  }
}

TEST(CausalConv, MatchesTheReference) {
  Random random(25);
  for (const int64_t taps : {2, 3, 4, 5, 10}) {
    for (const int64_t channels : {1, 7, 16, 33, 100, 1100}) {
      for (const int64_t n : kLengths) {
        ConvProblem p = ConvProblem::make(random, channels, taps, n);
        p.activation = taps == 3 ? Activation::kIdentity : Activation::kSilu;
        if (n % 2 == 0 || n == 17) p.bias = random.floats(channels);
        std::vector<float> tolerance(static_cast<size_t>(n * channels),
                                     kRounding * 6.0f * 2.0f * static_cast<float>(taps));
        tolerance.resize(tolerance.size() + static_cast<size_t>((taps - 1) * channels), 0.0f);
        compare_with_reference(
            {"causal_conv", formatted("{} taps, {}x{}", taps, n, channels), channels, tolerance},
            [&](Session& s) { return p.run(s, {n}); });
      }
    }
  }
}

TEST(TokenConv, MatchesTheReference) {
  Random random(27);
  for (const int64_t taps : {2, 4, 9}) {
    for (const int64_t channels : {6, 33, 390}) {
      for (const int64_t n : kLengths) {
        TokenConvProblem p = TokenConvProblem::make(random, channels, taps, n);
        std::vector<float> tolerance(static_cast<size_t>(n * channels),
                                     kRounding * 8.0f * static_cast<float>(taps));
        tolerance.resize(tolerance.size() + static_cast<size_t>((taps - 1) * channels), 0.0f);
        compare_with_reference(
            {"token_conv", formatted("{} taps, {}x{}", taps, n, channels), channels, tolerance},
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
  const std::string label =
      formatted("{}/{} heads, {}x{}, {} tokens{}, bound {}", o.key_heads, o.value_heads, o.key_dim,
                o.value_dim, n, o.row_decay ? ", by rows" : "", o.decay_bound);
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
                                     {3, 3, 7, 1},
                                     {1, 2, 128, 128},
                                     {1, 1, 137, 3},
                                     {1, 2, 256, 36},
                                     {2, 4, 100, 203}}) {
    for (const int64_t n : kLengths) check_delta(random, o, n);
  }
}

TEST(GatedDelta, TiledHeadsMatchTheReference) {
  Random random(27);
  for (const GatedDeltaOptions& o :
       {GatedDeltaOptions{2, 4, 32, 33, true}, {3, 6, 64, 64, true}, {2, 4, 128, 128, true}}) {
    for (const int64_t n : kLengths) check_delta(random, o, n);
  }
}

TEST(GatedDelta, DecaysOfRowsAndBoundedOnesMatchTheReference) {
  Random random(29);
  for (const float bound : {0.0f, -5.0f}) {
    for (const bool by_rows : {true, false}) {
      for (GatedDeltaOptions o : {GatedDeltaOptions{1, 1, 2, 2},
                                  {2, 2, 32, 33},
                                  {2, 4, 20, 100, true},
                                  {3, 3, 7, 1},
                                  {1, 3, 64, 64},
                                  {2, 2, 128, 128},
                                  {1, 2, 101, 36}}) {
        o.row_decay = by_rows;
        o.decay_bound = bound;
        for (const int64_t n : {1, 2, 17, 64}) check_delta(random, o, n);
      }
    }
  }
}

TEST(GatedDelta, EqualDecaysOfRowsAreOneOfTheHead) {
  Random random(30);
  const GatedDeltaOptions o{1, 2, 32, 20};
  constexpr int64_t n = 9;
  const DeltaProblem whole = DeltaProblem::make(random, o, n);
  DeltaProblem by_rows = whole;
  by_rows.options.row_decay = true;
  const auto repeated = [&](std::span<const float> from) {
    std::vector<float> to;
    for (const float x : from) to.insert(to.end(), static_cast<size_t>(o.key_dim), x);
    return to;
  };
  by_rows.a = repeated(whole.a);
  by_rows.dt_bias = repeated(whole.dt_bias);
  const auto device = make_reference_device();
  Session first(*device);
  Session second(*device);
  const std::vector<float> expected = whole.run(first, {n});
  const std::vector<float> found = by_rows.run(second, {n});
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-6f);
}

TEST(SelectiveScan, MatchesTheReference) {
  Random random(31);
  for (const ScanOptions& o : {ScanOptions{1, 2, 1, 2},
                               {4, 16, 2, 16},
                               {3, 33, 1, 20},
                               {6, 64, 3, 128},
                               {2, 100, 2, 7},
                               {8, 8, 1, 64}}) {
    for (const int64_t n : kLengths) {
      const ScanProblem p = ScanProblem::make(random, o, n);
      // A step of up to 2 and a decay below 1: sums over state_dim of a state that each token adds
      // to.
      const auto d = static_cast<float>(o.state_dim);
      const auto tokens = static_cast<float>(n);
      const float value = (1.0f + 2.0f * std::sqrt(tokens)) * (2.0f + std::sqrt(d));
      const std::vector<float> tolerance(
          static_cast<size_t>((n + o.state_dim) * o.heads * o.head_dim),
          4.0f * kRounding * value * (1.0f + std::sqrt(tokens)));
      const std::string label = formatted("{} heads of {}, {} groups of {}, {} tokens", o.heads,
                                          o.head_dim, o.groups, o.state_dim, n);
      compare_with_reference({"selective_scan", label, o.head_dim, tolerance},
                             [&](Session& s) { return p.run(s, {n}); });
    }
  }
}

/// Rows of `heads` times `size` numbers with tiled head j * key_heads + g from head g * r + j.
std::vector<float> tiled(std::span<const float> from, int64_t rows, const GatedDeltaOptions& o,
                         int64_t size) {
  std::vector<float> to;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t head = 0; head < o.value_heads; ++head) {
      const int64_t other = head % o.key_heads * o.heads_per_key() + head / o.key_heads;
      const auto begin = from.begin() + (row * o.value_heads + other) * size;
      to.insert(to.end(), begin, begin + size);
    }
  }
  return to;
}

TEST(GatedDelta, TiledHeadsAreTheOthersInAnotherOrder) {
  Random random(28);
  const GatedDeltaOptions o{2, 6, 8, 5};
  constexpr int64_t n = 3;
  const DeltaProblem grouped = DeltaProblem::make(random, o, n);
  DeltaProblem p = grouped;
  p.options.tiled_value_heads = true;
  const int64_t keys = 2 * o.key_heads * o.key_dim;
  const int64_t values = o.value_heads * o.value_dim;
  for (int64_t t = 0; t < n; ++t) {
    const auto begin = p.qkv.begin() + t * (keys + values) + keys;
    std::ranges::copy(tiled(std::span(begin, static_cast<size_t>(values)), 1, o, o.value_dim),
                      begin);
  }
  p.a = tiled(p.a, n, o, 1);
  p.b = tiled(p.b, n, o, 1);
  p.a_log = tiled(p.a_log, 1, o, 1);
  p.dt_bias = tiled(p.dt_bias, 1, o, 1);
  p.state = tiled(p.state, 1, o, o.key_dim * o.value_dim);
  const auto device = make_reference_device();
  Session first(*device);
  const std::vector<float> expected = grouped.run(first, {n});
  Session second(*device);
  const std::vector<float> found = p.run(second, {n});
  const std::span<const float> all(expected);
  std::vector<float> in_order =
      tiled(all.first(static_cast<size_t>(n * values)), n, o, o.value_dim);
  const std::vector<float> cells =
      tiled(all.subspan(static_cast<size_t>(n * values)), 1, o, o.key_dim * o.value_dim);
  in_order.insert(in_order.end(), cells.begin(), cells.end());
  EXPECT_EQ(found, in_order);
}

}  // namespace
}  // namespace moeflux::conformance
