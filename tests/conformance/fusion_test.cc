// Ops that share a launch give the bits they have in launches of their own: each sequence runs on
// devices with matrix units as it comes and with a submission after every op, which keeps ops
// apart.
#include "tests/conformance/fusion.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/format.h"
#include "quant/ggml_types.h"
#include "tests/conformance/support.h"
#include "tests/support/one_sequence.h"

namespace moeflux::conformance {
namespace {

/// Sums of up to two addends, then a norm, all of random rows.
struct ChainProblem {
  int64_t n = 1;
  int64_t cols = 4;
  int64_t top_k = 0;  // 0: begins with rows, not with slots
  int adds = 1;
  bool in_place = false;
  std::vector<float> slots, slot_weights, rows[3], norm;

  static ChainProblem make(Random& random, int64_t n, int64_t cols, int64_t top_k, int adds,
                           bool in_place) {
    ChainProblem p{n, cols, top_k, adds, in_place, {}, {}, {}, {}};
    p.slots = random.floats(n * top_k * cols);
    p.slot_weights = random.floats(n * top_k, 0.0f, 1.0f);
    for (std::vector<float>& row : p.rows) row = random.floats(n * cols);
    p.norm = random.floats(cols, 0.5f, 1.5f);
    return p;
  }

  std::vector<Tensor> run(Session& s, const Between& between, bool with_norm = true) const {
    Tensor value = s.floats({n, cols}, rows[0]);
    std::vector<Tensor> written;
    std::vector<Tensor> sums;
    for (int i = 0; i < adds; ++i) sums.push_back(s.zeros({n, cols}));
    const Tensor addends[2] = {s.floats({n, cols}, rows[1]), s.floats({n, cols}, rows[2])};
    const Tensor weight = s.floats({cols}, norm);
    const Tensor normed = s.zeros({n, cols});
    if (top_k > 0) {
      const Routes routes{s.zeros({n, top_k}, DType::kI32), s.floats({n, top_k}, slot_weights)};
      const Tensor all = s.floats({n, top_k, cols}, slots);
      s.encoder().run(ops::CombineExperts{value, all, routes});
      between();
      written.push_back(value);
    }
    for (int i = 0; i < adds; ++i) {
      const auto at = static_cast<size_t>(i);
      const Tensor sum = in_place ? (i == 0 ? value : addends[0]) : sums[at];
      // The sum so far may stand on either side.
      if (i == 0) s.encoder().run(ops::Add{sum, value, addends[at]});
      if (i == 1) s.encoder().run(ops::Add{sum, addends[at], value});
      between();
      value = sum;
      written.push_back(value);
    }
    if (!with_norm) return written;
    s.encoder().run(ops::RmsNorm{normed, value, weight, 1e-6f});
    between();
    written.push_back(normed);
    return written;
  }
};

TEST(Fusion, SumsAndTheirNormAreOneLaunch) {
  Random random(90);
  for (const int64_t cols : {4, 36, 128, 1000, 1024, 1028, 2048, 4096, 8192}) {
    for (const int64_t n : {1, 3}) {
      for (const int64_t top_k : {0, 3}) {
        for (const int adds : {0, 1, 2}) {
          const bool in_place = (cols / 4 + n + adds) % 2 == 0;
          const ChainProblem p = ChainProblem::make(random, n, cols, top_k, adds, in_place);
          expect_same_bits_in(
              1, formatted("{}x{}, {} slots, {} adds, in place {}", n, cols, top_k, adds, in_place),
              [&](Session& s, const Between& between) { return p.run(s, between); });
        }
      }
    }
  }
}

TEST(Fusion, SumsWithoutANormAreOneLaunch) {
  Random random(101);
  for (const int64_t cols : {4, 260, 2048}) {
    for (const int64_t top_k : {0, 8, 11}) {
      const ChainProblem p = ChainProblem::make(random, 3, cols, top_k, 2, cols == 260);
      expect_same_bits_in(1, formatted("{} columns, {} slots", cols, top_k),
                          [&](Session& s, const Between& between) {
                            return p.run(s, between, /*with_norm=*/false);
                          });
    }
  }
}

TEST(Fusion, SumsOfOddRowsStayApart) {
  Random random(91);
  for (const int64_t cols : {1, 7, 33, 8196}) {
    const ChainProblem p = ChainProblem::make(random, 2, cols, 2, 1, false);
    expect_same_bits_in(3, formatted("{} columns", cols),
                        [&](Session& s, const Between& between) { return p.run(s, between); });
  }
}

TEST(Fusion, SumsThatOverlapStayApart) {
  Random random(92);
  const std::vector<float> x = random.floats(3 * 64);
  const std::vector<float> w = random.floats(64);
  expect_same_bits_in(3, "rows of one tensor", [&](Session& s, const Between& between) {
    const Tensor rows = s.floats({3, 64}, x);
    const Tensor weight = s.floats({64}, w);
    const Tensor normed = s.zeros({2, 64});
    // The second sum overwrites what the first one reads for its next row.
    s.encoder().run(ops::Add{rows.slice(0, 0, 2), rows.slice(0, 1, 2), rows.slice(0, 1, 2)});
    between();
    s.encoder().run(ops::Add{rows.slice(0, 1, 2), rows.slice(0, 0, 2), rows.slice(0, 1, 2)});
    between();
    s.encoder().run(ops::RmsNorm{normed, rows.slice(0, 0, 2), weight, 1e-6f});
    between();
    return std::vector<Tensor>{rows, normed};
  });
}

TEST(Fusion, ANormOfHeadsAndItsGateAreOneLaunch) {
  Random random(93);
  for (const int64_t dim : {1, 6, 32, 100, 128, 1024}) {
    for (const int64_t n : {1, 5}) {
      const std::vector<float> x = random.floats(n * 3 * dim);
      const std::vector<float> gates = random.floats(n * 3 * 2 * dim, -4.0f, 4.0f);
      const std::vector<float> w = random.floats(dim);
      expect_same_bits_in(1, formatted("{} tokens, 3x{}", n, dim),
                          [&](Session& s, const Between& between) {
                            const Tensor heads = s.floats({n, 3, dim}, x);
                            const Tensor gate = s.floats({n, 3, 2 * dim}, gates).slice(2, dim, dim);
                            const Tensor weight = s.floats({dim}, w);
                            const Tensor out = s.zeros({n, 3, dim});
                            s.encoder().run(ops::RmsNorm{out, heads, weight, 1e-6f});
                            between();
                            s.encoder().run(ops::MulActivated{out, out, gate, Activation::kSilu});
                            between();
                            return std::vector<Tensor>{heads, out};
                          });
    }
  }
}

/// The norm of a chain, then products of it.
struct NormedProblem {
  ChainProblem chain;
  std::vector<EncodedWeight> weights;
  std::vector<float> biases = {};  // none, or of all products but the second

  static NormedProblem make(Random& random, const ChainProblem& chain,
                            std::initializer_list<int64_t> rows) {
    NormedProblem p{chain, {}};
    for (const int64_t r : rows) {
      const int bits = r % 2 == 0 ? 4 : 8;
      p.weights.push_back(
          random_weight(random, QuantFormat::affine(bits, 64, DType::kBf16), r, chain.cols));
    }
    return p;
  }
  void add_biases(Random& random) {
    int64_t rows = 0;
    for (const EncodedWeight& w : weights) rows += w.rows;
    biases = random.floats(static_cast<size_t>(rows));
  }
  std::vector<Tensor> run(Session& s, const Between& between) const {
    std::vector<Weight> views;
    std::vector<Tensor> outs;
    for (const EncodedWeight& w : weights) {
      views.push_back(s.weight(w));
      outs.push_back(s.zeros({chain.n, w.rows}));
    }
    const Tensor all =
        biases.empty() ? Tensor{} : s.floats({static_cast<int64_t>(biases.size())}, biases);
    std::vector<Tensor> written = chain.run(s, between);
    const Tensor normed = written.back();
    int64_t row = 0;
    for (size_t i = 0; i < views.size(); ++i) {
      s.encoder().run(ops::Linear{outs[i], normed, views[i]});
      between();
      if (!all.is_null() && i != 1) {
        s.encoder().run(ops::AddBias{outs[i], all.slice(0, row, views[i].rows)});
        between();
      }
      row += views[i].rows;
    }
    written.insert(written.end(), outs.begin(), outs.end());
    return written;
  }
};

TEST(Fusion, ANormIsMadeByTheProductsThatFollow) {
  Random random(94);
  for (const int64_t cols : {64, 192, 1024, 1088, 2048, 4096}) {
    for (const int64_t n : {1, 3}) {
      for (const int adds : {0, 1}) {
        if (n > 1 && cols > 1088) continue;  // the emulator is slow
        const auto p = NormedProblem::make(
            random, ChainProblem::make(random, n, cols, 0, adds, false), {38, 3, 16, 17});
        expect_same_bits_in(1, formatted("{}x{}, {} adds", n, cols, adds),
                            [&](Session& s, const Between& between) { return p.run(s, between); });
      }
    }
  }
}

TEST(Fusion, ANormIsMadeByProductsOfFourBitsOnly) {
  Random random(103);
  for (const int64_t cols : {128, 1088}) {
    const auto p =
        NormedProblem::make(random, ChainProblem::make(random, 2, cols, 0, 1, false), {38, 16});
    expect_same_bits_in(1, formatted("{} columns", cols),
                        [&](Session& s, const Between& between) { return p.run(s, between); });
  }
}

TEST(Fusion, ANormIsMadeByARouterThatFollows) {
  Random random(104);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBf16}) {
    for (const int64_t cols : {8, 264, 1024, 2056, 4096, 4104, 8192}) {
      for (const int adds : {0, 1}) {
        NormedProblem p{ChainProblem::make(random, 1, cols, 0, adds, false), {}};
        p.weights.push_back(random_weight(random, QuantFormat::plain(dtype), 37, cols));
        expect_same_bits_in(1,
                            formatted("{} columns of {}, {} adds", cols, dtype_name(dtype), adds),
                            [&](Session& s, const Between& between) { return p.run(s, between); });
      }
    }
  }
  NormedProblem several{ChainProblem::make(random, 2, 264, 0, 1, false), {}};
  several.weights.push_back(random_weight(random, QuantFormat::plain(DType::kBf16), 37, 264));
  expect_same_bits_in(2, "two tokens",
                      [&](Session& s, const Between& between) { return several.run(s, between); });
}

TEST(Fusion, BiasesOfFewTokensAreAddedByTheirProducts) {
  Random random(106);
  const auto check = [&](size_t launches, int64_t n, int64_t cols, const char* type) {
    auto p = NormedProblem::make(random, ChainProblem::make(random, n, cols, 0, 1, false),
                                 {38, 3, 70, 17});
    if (type != nullptr) {
      for (EncodedWeight& w : p.weights) {
        w = random_weight(random, *find_ggml_type(type)->format, w.rows, cols);
      }
    }
    p.add_biases(random);
    expect_same_bits_in(launches, formatted("{} tokens, {}", n, type == nullptr ? "affine" : type),
                        [&](Session& s, const Between& between) { return p.run(s, between); });
  };
  check(1, 1, 192, nullptr);
  check(1, 3, 192, nullptr);
  check(1, 1, 256, "Q8_0");
  check(2 + 3, 5, 1088, nullptr);  // after the products, which are one launch
}

TEST(Fusion, ABiasIsAddedByARouterOfOneToken) {
  Random random(107);
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    NormedProblem p{ChainProblem::make(random, 1, 264, 0, 1, false), {}};
    p.weights.push_back(random_weight(random, QuantFormat::plain(dtype), 37, 264));
    p.add_biases(random);
    expect_same_bits_in(1, std::string(dtype_name(dtype)),
                        [&](Session& s, const Between& between) { return p.run(s, between); });
  }
}

TEST(Fusion, ANormOfSeveralTokensBecomesIntegersOnTheWay) {
  Random random(105);
  const auto check = [&](const std::string& what, const ChainProblem& chain, const char* type) {
    auto p = NormedProblem::make(random, chain, {70, 3});
    if (type != nullptr) {
      p.weights = {random_weight(random, *find_ggml_type(type)->format, 70, chain.cols)};
    }
    expect_same_bits_in(2, what,
                        [&](Session& s, const Between& between) { return p.run(s, between); });
  };
  check("a sum", ChainProblem::make(random, 5, 1088, 0, 1, false), nullptr);
  check("slots", ChainProblem::make(random, 6, 1088, 2, 2, false), nullptr);
  check("by halves", ChainProblem::make(random, 5, 1280, 0, 1, false), "Q4_0");
  check("by quarters", ChainProblem::make(random, 9, 1280, 0, 1, false), "Q6_K");
}

TEST(Fusion, ANormThatProductsCannotMakeStaysApart) {
  Random random(95);
  const auto check = [&](const std::string& what, const ChainProblem& chain) {
    const auto p = NormedProblem::make(random, chain, {70, 3});
    const size_t products = chain.n > 4 ? 2 : 1;  // with the split of the activations
    expect_same_bits_in(1 + products, what,
                        [&](Session& s, const Between& between) { return p.run(s, between); });
  };
  check("wide", ChainProblem::make(random, 1, 4160, 0, 1, false));
  check("many tokens", ChainProblem::make(random, 5, 128, 0, 1, false));
  check("two adds", ChainProblem::make(random, 1, 128, 0, 2, false));
  check("slots", ChainProblem::make(random, 1, 128, 2, 1, false));
  check("in place", ChainProblem::make(random, 2, 128, 0, 1, true));
}

TEST(Fusion, ProductsMayOverwriteWhatASumBeforeThemReads) {
  Random random(102);
  const EncodedWeight w = random_weight(random, QuantFormat::affine(4, 64, DType::kBf16), 64, 64);
  const std::vector<float> a = random.floats(64);
  const std::vector<float> b = random.floats(64);
  expect_same_bits_in(2, "the second addend", [&](Session& s, const Between& between) {
    const Tensor x = s.floats({1, 64}, a);
    const Tensor shared = s.floats({1, 64}, b);
    const Tensor norm = s.floats({64}, a);
    const Tensor sum = s.zeros({1, 64});
    const Tensor normed = s.zeros({1, 64});
    const Weight weight = s.weight(w);
    s.encoder().run(ops::Add{x, x, x});
    between();
    s.encoder().run(ops::Add{sum, x, shared});
    between();
    s.encoder().run(ops::RmsNorm{normed, sum, norm, 1e-6f});
    between();
    s.encoder().run(ops::Linear{shared, normed, weight});
    between();
    return std::vector<Tensor>{x, shared, sum, normed};
  });
}

TEST(Fusion, ProductsThatOverwriteWhatTheyReadStayApart) {
  Random random(96);
  const EncodedWeight w = random_weight(random, QuantFormat::affine(4, 64, DType::kBf16), 64, 64);
  const std::vector<float> a = random.floats(64);
  const std::vector<float> b = random.floats(64);
  const auto ops = [&](int target) {
    return [&, target](Session& s, const Between& between) {
      const Tensor x = s.floats({1, 64}, a);
      const Tensor branch = s.floats({1, 64}, b);
      const Tensor norm = s.floats({64}, a);
      const Tensor sum = s.zeros({1, 64});
      const Tensor normed = s.zeros({1, 64});
      const Weight weight = s.weight(w);
      s.encoder().run(ops::Add{sum, x, branch});
      between();
      s.encoder().run(ops::RmsNorm{normed, sum, norm, 1e-6f});
      between();
      s.encoder().run(ops::Linear{target == 0 ? x : target == 1 ? branch : sum, normed, weight});
      between();
      return std::vector<Tensor>{x, branch, sum, normed};
    };
  };
  for (const int target : {0, 1, 2}) {
    expect_same_bits_in(2, formatted("the product overwrites {}", target), ops(target));
  }
}

/// A norm, products of it, and the convolution of the second one's.
void check_conv(Random& random, size_t expected_launches, int64_t n, int64_t taps, int64_t cols,
                int64_t top_k = 0) {
  const auto p = NormedProblem::make(random, ChainProblem::make(random, n, cols, top_k, 1, false),
                                     {19, 70, 16});
  const std::vector<float> w = random.floats(70 * taps);
  const std::vector<float> past = random.floats((taps - 1) * 70);
  expect_same_bits_in(expected_launches, formatted("{} tokens, {} taps, {} columns", n, taps, cols),
                      [&](Session& s, const Between& between) {
                        const Tensor weight = s.floats({70, taps}, w);
                        const Tensor state = s.floats({taps - 1, 70}, past);
                        const Tensor out = s.zeros({n, 70});
                        std::vector<Tensor> written = p.run(s, between);
                        s.encoder().run(ops::CausalConv{
                            out,
                            written[written.size() - 2],
                            weight,
                            {},
                            testing::one_sequence(written[written.size() - 2].dim(0), state)});
                        between();
                        written.push_back(out);
                        written.push_back(state);
                        return written;
                      });
}

TEST(Fusion, AConvolutionFollowsItsProductInOneLaunch) {
  Random random(99);
  for (const int64_t taps : {2, 3, 4}) check_conv(random, 1, 1, taps, 128);
  check_conv(random, 1, 1, 4, 2048);
  check_conv(random, 2, 1, 4, 128, /*top_k=*/2);  // the norm has a launch of its own
}

TEST(Fusion, AProductIsGatedByItselfInItsLaunch) {
  Random random(104);
  const auto check = [&](size_t launches, int64_t n, int64_t cols, Activation activation) {
    const auto p =
        NormedProblem::make(random, ChainProblem::make(random, n, cols, 0, 1, false), {19, 70, 16});
    expect_same_bits_in(launches, formatted("{} tokens, {} columns", n, cols),
                        [&](Session& s, const Between& between) {
                          const Tensor out = s.zeros({n, 70});
                          std::vector<Tensor> written = p.run(s, between);
                          const Tensor low = written[written.size() - 2];
                          s.encoder().run(ops::MulActivated{out, low, low, activation});
                          between();
                          written.push_back(out);
                          return written;
                        });
  };
  check(1, 1, 128, Activation::kSigmoid);
  check(1, 1, 2048, Activation::kSigmoid);
  check(2, 2, 128, Activation::kSigmoid);
  check(2, 1, 128, Activation::kGeluTanh);
}

TEST(Fusion, AConvolutionOfManyTokensOrTapsStaysApart) {
  Random random(100);
  check_conv(random, 2, 2, 4, 128);
  check_conv(random, 3, 1, 5, 128);  // its state has a launch of its own
}

TEST(Fusion, RowsOfManyTokensBecomeIntegersAgainOnlyWhenTheyChange) {
  Random random(94);
  const EncodedWeight w = random_weight(random, QuantFormat::affine(4, 64, DType::kBf16), 40, 256);
  const std::vector<float> values = random.floats(6 * 256);
  const Ops ops = [&](Session& s, const Between& between) {
    const Tensor x = s.floats({6, 256}, values);
    const Tensor other = s.floats({6, 256}, values);
    const Weight weight = s.weight(w);
    const Tensor outs[] = {s.zeros({6, 40}), s.zeros({6, 40}), s.zeros({6, 40})};
    s.encoder().run(ops::Linear{outs[0], x, weight});
    between();
    s.encoder().run(ops::Scale{other, other, 2.0f});
    between();
    s.encoder().run(ops::Linear{outs[1], x, weight});
    between();
    s.encoder().run(ops::Scale{x, x, 3.0f});
    between();
    s.encoder().run(ops::Linear{outs[2], x, weight});
    between();
    return std::vector<Tensor>(std::begin(outs), std::end(outs));
  };
  // Integers and product; scale and product; scale, integers and product.
  expect_same_bits_in(7, "products with a scale between", ops);
}

}  // namespace
}  // namespace moeflux::conformance
