// linear and embed against the reference, in every storage format.
#include <gtest/gtest.h>

#include "base/format.h"
#include "tests/conformance/models.h"
#include "tests/conformance/support.h"

namespace moeflux::conformance {
namespace {

TEST(Linear, MatchesTheReferenceInEveryFormat) {
  Random random(1);
  for (const QuantFormat& format : all_formats()) {
    for (const LinearProblem& p :
         {LinearProblem{1, 13, 128}, LinearProblem{3, 9, 640}, LinearProblem{7, 17, 384}}) {
      check_linear("linear", random, format, p);
    }
  }
}

TEST(Linear, MatchesTheReferenceAtAnyTokenCount) {
  Random random(2);
  for (const QuantFormat& format : some_formats()) {
    for (const int64_t n : {1, 2, 3, 4, 5, 6, 7, 8, 17, 64, 65, 130}) {
      check_linear("linear", random, format, {n, 35, 1152});
    }
  }
}

TEST(Linear, MatchesTheReferenceAtAnyRowCount) {
  Random random(3);
  for (const QuantFormat& format : some_formats()) {
    for (const int64_t rows : {1, 2, 3, 5, 8, 31, 130, 513}) {
      check_linear("linear", random, format, {1, rows, 256});
      check_linear("linear", random, format, {9, rows, 256});
    }
  }
}

TEST(Linear, PlainMatricesMayHaveAnyWidth) {
  Random random(4);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBf16}) {
    for (const int64_t cols : {1, 2, 7, 15, 16, 31, 33, 63, 100, 511, 513, 1000}) {
      for (const int64_t n : {1, 2, 3, 17}) {
        check_linear("linear", random, QuantFormat::plain(dtype), {n, 11, cols});
      }
    }
  }
}

TEST(Linear, HalfPrecisionWeightsKeepSubnormalsAndExtremes) {
  EncodedWeight w{QuantFormat::plain(DType::kF16), 1, 8, {}, {}, {}, {}};
  const std::vector<uint16_t> bits = {0x0001, 0x8001, 0x03ff, 0x0400,
                                      0x7bff, 0xfbff, 0x8000, 0x3c00};
  const auto bytes = std::as_bytes(std::span(bits));
  w.data.assign(bytes.begin(), bytes.end());
  for (int64_t i = 0; i < 8; ++i) {
    std::vector<float> x(8, 0.0f);
    x[static_cast<size_t>(i)] = 1.0f;
    compare_with_reference({"linear", formatted("f16 element {}", i), 1, {0.0f}}, [&](Session& s) {
      const Tensor out = s.zeros({1, 1});
      s.encoder().run(ops::Linear{out, s.floats({1, 8}, x), s.weight(w)});
      return s.read(out);
    });
  }
}

TEST(Embed, MatchesTheReferenceInEveryFormat) {
  Random random(5);
  const std::vector<int32_t> ids = {4, 0, 10, 4, 7};
  for (const QuantFormat& format : all_formats()) {
    const EncodedWeight w = random_weight(random, format, 11, 256);
    const std::vector<float> tolerance(5 * 256, 2.0f * kRounding * largest(w.decoded));
    compare_with_reference({"embed", format.to_string(), 256, tolerance}, [&](Session& s) {
      const Tensor out = s.zeros({5, 256});
      s.encoder().run(ops::Embed{out, s.weight(w), s.ints({5}, ids)});
      return s.read(out);
    });
  }
}

}  // namespace
}  // namespace moeflux::conformance
