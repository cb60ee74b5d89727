// Few rows of plain numbers times one token: a kernel of its own, which may make a norm on the way,
// with the bits of the norm apart and of many tokens.
#include <gtest/gtest.h>

#include "base/format.h"
#include "tests/conformance/fusion.h"
#include "tests/conformance/support.h"

namespace moeflux::conformance {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBf16};
// Rows that a group holds, that it does not, and that a small GPU has no room for beside a row of
// the matrix.
constexpr int64_t kWidths[] = {8, 264, 1032, 4104, 8192, 8200, 16384, 20488};

TEST(FewRows, MakeANormOnTheWayWithItsBits) {
  Random random(131);
  for (const DType type : kTypes) {
    for (const int64_t cols : kWidths) {
      for (const bool weighs : {false, true}) {
        if (weighs && cols > 8192) continue;  // such a norm has a launch of its own
        const EncodedWeight w = random_weight(random, QuantFormat::plain(type), 24, cols);
        const std::vector<float> x = random.floats(cols);
        const std::vector<float> scale = random.floats(cols);
        expect_same_bits_in(
            1, formatted("{} columns{}", cols, weighs ? ", weighed" : ""),
            [&](Session& s, const Between& between) {
              const Tensor normed = s.zeros({1, cols});
              const Tensor out = s.zeros({1, 24});
              const Weight weight = s.weight(w);
              const Tensor from = s.floats({1, cols}, x);
              s.encoder().run(
                  ops::RmsNorm{normed, from, weighs ? s.floats({cols}, scale) : Tensor{}, 1e-6f});
              between();
              s.encoder().run(ops::Linear{out, normed, weight});
              between();
              return std::vector<Tensor>{normed, out};
            });
      }
    }
  }
}

TEST(FewRows, HaveTheBitsOfManyTokens) {
  Random random(132);
  for (const DType type : kTypes) {
    for (const int64_t cols : kWidths) {
      const EncodedWeight w = random_weight(random, QuantFormat::plain(type), 5, cols);
      const std::vector<float> x = random.floats(3 * cols);
      for (const NamedDevice* device : one_device_per_family()) {
        Session s(*device->device);
        const Weight weight = s.weight(w);
        const Tensor from = s.floats({3, cols}, x);
        const Tensor together = s.zeros({3, 5});
        const Tensor apart = s.zeros({3, 5});
        s.encoder().run(ops::Linear{together, from, weight});
        for (int64_t t = 0; t < 3; ++t) {
          s.encoder().run(ops::Linear{apart.slice(0, t, 1), from.slice(0, t, 1), weight});
        }
        expect_same_bits(formatted("{}, {} columns", device->name, cols), s.read(together),
                         s.read(apart));
      }
    }
  }
}

// A sum before a norm without weights has a launch of its own, and so have products on matrix
// units behind it.
TEST(FewRows, ANormWithoutWeightsWaitsForNothingElse) {
  Random random(133);
  const EncodedWeight few = random_weight(random, QuantFormat::plain(DType::kF32), 4, 256);
  const EncodedWeight units =
      random_weight(random, QuantFormat::affine(4, 64, DType::kBf16), 16, 256);
  const std::vector<float> x = random.floats(256);
  const auto check = [&](size_t launches, const std::string& what, const EncodedWeight& w,
                         bool adds) {
    expect_same_bits_in(launches, what, [&](Session& s, const Between& between) {
      const Tensor sum = s.zeros({1, 256});
      const Tensor normed = s.zeros({1, 256});
      const Tensor out = s.zeros({1, w.rows});
      const Weight weight = s.weight(w);
      const Tensor from = s.floats({1, 256}, x);
      if (adds) s.encoder().run(ops::Add{sum, from, from});
      between();
      s.encoder().run(ops::RmsNorm{normed, adds ? sum : from, {}, 1e-6f});
      between();
      s.encoder().run(ops::Linear{out, normed, weight});
      between();
      return std::vector<Tensor>{sum, normed, out};
    });
  };
  check(2, "a sum before", few, true);
  check(2, "units behind", units, false);
}

}  // namespace
}  // namespace moeflux::conformance
