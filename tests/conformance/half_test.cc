// Keys and values are rounded to f16 by the same rule everywhere, where numbers lie between two.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tensor/dtype.h"
#include "tests/conformance/models.h"
#include "tests/conformance/support.h"

namespace moeflux::conformance {
namespace {

// Numbers halfway between two halves, and the ones just beside; subnormal halves and the largest
// included. Numbers that round to infinity are left out: they have no difference to another.
std::vector<float> between_halves() {
  std::vector<float> numbers;
  for (int bits = 0; bits < 0x7bff; ++bits) {
    if (bits % 61 > 1 && bits > 40 && bits < 0x7bf0) continue;
    const float below = to_float(F16{static_cast<uint16_t>(bits)});
    const float above = to_float(F16{static_cast<uint16_t>(bits + 1)});
    const float tie = below + (above - below) / 2;
    const float sign = bits % 4 < 2 ? 1.0f : -1.0f;
    for (const float number : {std::nextafter(tie, 0.0f), tie, std::nextafter(tie, above)}) {
      numbers.push_back(sign * number);
    }
  }
  return numbers;
}

// A token that sees itself alone has its own value for a result.
TEST(Halves, ValuesInACacheOfF16AreRoundedToTheEvenNeighbour) {
  const std::vector<float> numbers = between_halves();
  std::vector<float> expected;
  for (const float number : numbers) expected.push_back(to_float(to_f16(number)));
  Random random(61);
  for (const int64_t width : {64, 33}) {  // whole vectors, and some lanes more
    const int64_t tokens = static_cast<int64_t>(numbers.size()) / width;
    AttentionProblem p = AttentionProblem::make(random, 1, 1, 32, width, 16, tokens);
    p.v.assign(numbers.begin(), numbers.begin() + tokens * width);
    p.k_type = p.v_type = DType::kF16;
    p.window = 1;
    const conformance::Run run = [&](Session& s) { return p.run(s, {tokens}); };
    Session s(reference());
    const std::vector<float> values = run(s);
    for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], expected[i]) << numbers[i];
    compare_with_reference({"halves", std::to_string(width) + " wide", width,
                            std::vector<float>(values.size(), 0.0f), true, true},
                           run);
  }
}

}  // namespace
}  // namespace moeflux::conformance
