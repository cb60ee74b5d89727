// Products of many tokens in large tiles: the bits of single tokens, whatever the rows, the columns
// and the codes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/format.h"
#include "quant/formats/tensor_formats.h"
#include "tests/conformance/models.h"
#include "tests/conformance/support.h"

namespace moeflux::conformance {
namespace {

std::vector<QuantFormat> formats() {
  return {QuantFormat::plain(DType::kF32),  QuantFormat::plain(DType::kF16),
          QuantFormat::plain(DType::kBf16), fp8_of(DType::kF32, 128, 128),
          fp8_of(DType::kF8E8M0, 1, 32),    fp8_of(DType::kBf16, 1, 0),
          fp8_of(DType::kF16, 16, 32),      fp8_of(DType::kF32, 0, 0)};
}

/// Compares all tokens at once with each alone. Bits of NaN are not compared.
void check_company(const std::string& what, const EncodedWeight& w, int64_t n,
                   std::span<const float> x) {
  const auto numbers = [](std::vector<float> values) {
    for (float& value : values) value = std::isnan(value) ? 12345.0f : value;
    return values;
  };
  for (const NamedDevice* device : one_device_per_family()) {
    Session s(*device->device);
    const Weight weight = s.weight(w);
    const Tensor from = s.floats({n, w.cols}, x);
    const Tensor together = s.zeros({n, w.rows});
    const Tensor apart = s.zeros({n, w.rows});
    s.encoder().run(ops::Linear{together, from, weight});
    for (int64_t t = 0; t < n; ++t) {
      s.encoder().run(ops::Linear{apart.slice(0, t, 1), from.slice(0, t, 1), weight});
    }
    expect_same_bits(formatted("{}, {} {}x{}", device->name, what, w.rows, w.cols),
                     numbers(s.read(apart)), numbers(s.read(together)));
  }
}

TEST(LargeTiles, HaveTheBitsOfSingleTokens) {
  Random random(211);
  for (const QuantFormat& format : formats()) {
    for (const LinearProblem& p :
         {LinearProblem{67, 5, 16}, LinearProblem{33, 130, 272}, LinearProblem{18, 197, 1040}}) {
      check_company(format.to_string(), random_weight(random, format, p.rows, p.cols), p.n,
                    random.floats(p.n * p.cols));
    }
  }
}

// Rows that begin anywhere are read number by number.
TEST(LargeTiles, LeaveNarrowRowsToOthers) {
  Random random(212);
  for (const QuantFormat& format : formats()) {
    check_company(format.to_string(), random_weight(random, format, 37, 83), 65,
                  random.floats(65 * 83));
  }
}

// Codes that do not begin on 16 bytes are decoded number by number, with the same bits.
TEST(LargeTiles, HaveTheBitsOfNumbersOneByOne) {
  Random random(215);
  for (const QuantFormat& format : formats()) {
    if (format.is_plain()) continue;
    const EncodedWeight w = random_weight(random, format, 37, 544);
    for (const NamedDevice* device : one_device_per_family()) {
      for (const int64_t n : {1, 3, 9, 66}) {
        Session s(*device->device);
        const auto size = static_cast<int64_t>(w.data.size());
        Weight odd = s.weight(w);
        odd.parts.codes = s.zeros({size + 4}, DType::kF8E4M3).slice(0, 4, size).reshape({37, 544});
        s.encoder().write(odd.parts.codes, w.data);
        const Tensor x = s.floats({n, 544}, random.floats(n * 544));
        const Tensor expected = s.zeros({n, 37});
        const Tensor out = s.zeros({n, 37});
        s.encoder().run(ops::Linear{expected, x, odd});
        s.encoder().run(ops::Linear{out, x, s.weight(w)});
        expect_same_bits(formatted("{}, {}, {} tokens", device->name, format.to_string(), n),
                         s.read(expected), s.read(out));
      }
    }
  }
}

TEST(LargeTiles, KeepNaN) {
  Random random(213);
  EncodedWeight w = random_weight(random, fp8_of(DType::kF32, 128, 128), 40, 288);
  w.data[3 * 288 + 261] = std::byte{0xff};
  w.data[20 * 288 + 8] = std::byte{0x7f};
  const std::vector<float> x = random.floats(66 * 288);
  check_company("NaN", w, 66, x);
  for (const NamedDevice* device : one_device_per_family()) {
    Session s(*device->device);
    const Tensor out = s.zeros({66, 40});
    s.encoder().run(ops::Linear{out, s.floats({66, 288}, x), s.weight(w)});
    const std::vector<float> values = s.read(out);
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(std::isnan(values[i]), i % 40 == 3 || i % 40 == 20) << device->name << ", " << i;
    }
  }
}

TEST(LargeTiles, OfExpertsHaveTheBitsOfSingleTokens) {
  Random random(214);
  for (const QuantFormat& format : formats()) {
    const MoeProblem p = MoeProblem::make(
        random, format, {.hidden = 272, .intermediate = 80, .experts = 3, .top_k = 2, .n = 33});
    check_token_invariance(format.to_string(), p);
  }
}

}  // namespace
}  // namespace moeflux::conformance
