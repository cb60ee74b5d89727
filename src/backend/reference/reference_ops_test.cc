// The oracle's formulas against numbers computed by hand and with f64 Python.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "backend/reference/reference_device.h"
#include "tests/support/device_session.h"
#include "tests/support/one_sequence.h"

namespace moeflux {
namespace {

class ReferenceOps : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device_ = make_reference_device();
  testing::DeviceSession session_{*device_};

  void expect_near(const Tensor& tensor, const std::vector<float>& expected, float tolerance) {
    const std::vector<float> values = session_.read(tensor);
    ASSERT_EQ(values.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(values[i], expected[i], tolerance) << "element " << i;
    }
  }
};

TEST_F(ReferenceOps, RopeRotatesHalvesOrNeighbours) {
  const std::vector<float> x = {1.0f, 2.0f, 3.0f, 4.0f};
  const Tensor positions = session_.ints({1}, std::vector<int32_t>{1});
  const Tensor frequencies = session_.floats({2}, std::vector<float>{1.0f, 0.01f});
  const Tensor half = session_.floats({1, 1, 4}, x);
  session_.encoder().run(ops::Rope{half, positions, frequencies, {.rotary_dim = 4}});
  expect_near(half, {-1.9841106f, 1.9599007f, 2.4623779f, 4.0197997f}, 1e-6f);
  const Tensor interleaved = session_.floats({1, 1, 4}, x);
  session_.encoder().run(
      ops::Rope{interleaved, positions, frequencies, {.rotary_dim = 4, .interleaved = true}});
  expect_near(interleaved, {-1.1426397f, 1.9220756f, 2.9598507f, 4.0297995f}, 1e-6f);
}

TEST_F(ReferenceOps, RopeLeavesTheRestOfAHeadAndScalesByTheAttentionFactor) {
  const Tensor x = session_.floats({1, 1, 4}, std::vector<float>{1.0f, 0.0f, 3.0f, 4.0f});
  const Tensor positions = session_.ints({1}, std::vector<int32_t>{1});
  const Tensor frequencies = session_.floats({1}, std::vector<float>{1.0f});
  session_.encoder().run(
      ops::Rope{x, positions, frequencies, {.rotary_dim = 2, .attention_factor = 2.0f}});
  expect_near(x, {2 * 0.540302306f, 2 * 0.841470985f, 3.0f, 4.0f}, 1e-6f);
}

TEST_F(ReferenceOps, ClampedGatedUnitIsThatOfGptOss) {
  const Tensor gate = session_.floats({1, 3}, std::vector<float>{8.0f, -8.0f, 1.0f});
  const Tensor up = session_.floats({1, 3}, std::vector<float>{-9.0f, 9.0f, 0.5f});
  const Tensor out = session_.zeros({1, 3});
  session_.encoder().run(
      ops::Glu{out, gate, up, {.alpha = 1.702f, .limit = 7.0f, .up_offset = 1.0f}});
  const std::vector<float> values = session_.read(out);
  EXPECT_NEAR(values[0], -41.99971877f, 1e-5f);
  EXPECT_NEAR(values[1], -7.813143e-05f, 1e-10f);
  EXPECT_NEAR(values[2], 1.268693649f, 1e-6f);
}

// Two cached tokens with logits 1 and 2; their values are unit vectors, so the output shows the
// probabilities.
TEST_F(ReferenceOps, SinkTakesItsShareAndGivesNoValue) {
  const std::array<Tensor, 1> k_pages = {session_.zeros({4, 1, 2})};
  const std::array<Tensor, 1> v_pages = {session_.zeros({4, 1, 2})};
  const Tensor k = session_.floats({2, 1, 2}, std::vector<float>{1.0f, 0.0f, 2.0f, 0.0f});
  const Tensor v = session_.floats({2, 1, 2}, std::vector<float>{1.0f, 0.0f, 0.0f, 1.0f});
  const Tensor q = session_.floats({2, 1, 2}, std::vector<float>{2.0f, 0.0f, 2.0f, 0.0f});
  const Tensor out = session_.zeros({2, 1, 2});
  const Tensor sinks = session_.floats({1}, std::vector<float>{0.5f});
  session_.encoder().run(ops::Attention{out,
                                        q,
                                        k,
                                        v,
                                        testing::one_sequence(q.dim(0), {k_pages, v_pages, 4, 0}),
                                        {.scale = 0.5f, .sinks = sinks}});
  // The first token sees itself: 1 / (1 + e^(0.5 - 1)).
  expect_near(out, {0.622459331f, 0.0f, 0.231223898f, 0.628531719f}, 1e-6f);
}

// Two heads of one key head would hide a mix-up of sinks; here they differ.
TEST_F(ReferenceOps, EveryHeadHasItsOwnSinkAndMinusInfinityIsNone) {
  const std::array<Tensor, 1> pages = {session_.zeros({4, 1, 1})};
  const std::array<Tensor, 1> v_pages = {session_.zeros({4, 1, 1})};
  const Tensor one = session_.floats({1, 1, 1}, std::vector<float>{1.0f});
  const Tensor q = session_.floats({1, 2, 1}, std::vector<float>{1.0f, 1.0f});
  const Tensor out = session_.zeros({1, 2, 1});
  const Tensor sinks = session_.floats({2}, std::vector<float>{1.0f, -INFINITY});
  session_.encoder().run(ops::Attention{
      out, q, one, one, testing::one_sequence(q.dim(0), {pages, v_pages, 4, 0}), {.sinks = sinks}});
  expect_near(out, {0.5f, 1.0f}, 1e-7f);
}

TEST_F(ReferenceOps, GatedDeltaDecaysBeforeItReads) {
  // A_log .5, a .2, dt_bias -1 decay by .5423511758; beta .5; q and k are unit vectors.
  const Tensor qkv =
      session_.floats({1, 6}, std::vector<float>{3.0f, 4.0f, 1.0f, 0.0f, 1.0f, 2.0f});
  const Tensor a = session_.floats({1, 1}, std::vector<float>{0.2f});
  const Tensor b = session_.floats({1, 1}, std::vector<float>{0.0f});
  const Tensor a_log = session_.floats({1}, std::vector<float>{0.5f});
  const Tensor dt_bias = session_.floats({1}, std::vector<float>{-1.0f});
  const Tensor state = session_.floats({1, 2, 2}, std::vector<float>{1.0f, 0.0f, 0.0f, 1.0f});
  const Tensor out = session_.zeros({1, 1, 2});
  session_.encoder().run(ops::GatedDelta{
      out, qkv, a, b, a_log, dt_bias, testing::one_sequence(qkv.dim(0), state), {1, 1, 2, 2}});
  const double decay = 0.5423511758;
  const double row0 = decay + 0.5 * (1.0 - decay);
  expect_near(state, {static_cast<float>(row0), 1.0f, 0.0f, static_cast<float>(decay)}, 2e-6f);
  const double scale = std::sqrt(0.5);
  expect_near(
      out,
      {static_cast<float>(scale * 0.6 * row0), static_cast<float>(scale * (0.6 + 0.8 * decay))},
      2e-6f);
}

}  // namespace
}  // namespace moeflux
