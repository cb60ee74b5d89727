// Published formulas worked by hand in f64: the reference and every device must agree with them.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/conformance/support.h"
#include "tests/support/one_sequence.h"

namespace moeflux::conformance {
namespace {

constexpr double kTolerance = 2e-6;

void for_every_device(const std::function<void(const std::string&, Device&)>& check) {
  check("reference", reference());
  for (const NamedDevice& device : devices()) check(device.name, *device.device);
}

void expect_near(const std::string& device, const std::vector<float>& got,
                 const std::vector<double>& expected, double tolerance = kTolerance) {
  ASSERT_EQ(got.size(), expected.size()) << device;
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], expected[i], tolerance) << device << ", element " << i;
  }
}

TEST(Golden, SoftmaxRouting) {
  const std::vector<float> logits = {1, 2, 3, 0};
  for_every_device([&](const std::string& name, Device& device) {
    Session s(device);
    for (const bool normalize : {true, false}) {
      const Routes routes{s.zeros({1, 2}, DType::kI32), s.zeros({1, 2})};
      s.encoder().run(ops::Route{routes, s.floats({1, 4}, logits), {.normalize = normalize}});
      EXPECT_EQ(s.read_ints(routes.ids), (std::vector<int32_t>{2, 1})) << name;
      expect_near(name, s.read(routes.weights),
                  normalize ? std::vector<double>{0.731058579, 0.268941421}
                            : std::vector<double>{0.643914260, 0.236882818});
    }
  });
}

TEST(Golden, RopeInBothPairings) {
  const std::vector<float> x = {1, 2, 3, 4};
  const std::vector<float> frequencies = {1.0f, 0.01f};  // base 10^4, 4 dimensions
  const std::vector<int32_t> position = {1};
  for_every_device([&](const std::string& name, Device& device) {
    Session s(device);
    for (const bool interleaved : {false, true}) {
      const Tensor head = s.floats({1, 1, 4}, x);
      s.encoder().run(ops::Rope{head,
                                s.ints({1}, position),
                                s.floats({2}, frequencies),
                                {.rotary_dim = 4, .interleaved = interleaved}});
      expect_near(name, s.read(head),
                  interleaved ? std::vector<double>{-1.1426397, 1.9220756, 2.9598507, 4.0297995}
                              : std::vector<double>{-1.9841106, 1.9599007, 2.4623779, 4.0197997});
    }
  });
}

/// a such that softplus(a) = -g, so that with a_log = 0 the log decay is g.
float a_for_log_decay(double g) { return static_cast<float>(std::log(std::expm1(-g))); }
float logit(double p) { return static_cast<float>(std::log(p / (1.0 - p))); }

TEST(Golden, GatedDeltaOverThreeTokens) {
  // Unit vectors survive l2-normalisation. The vectors were worked out for unscaled queries; here
  // q carries 1 / sqrt(2).
  const std::vector<float> qkv = {1,   0,   1,   0,    1,  2,  //
                                  .6f, .8f, .6f, .8f,  3,  4,  //
                                  0,   1,   .8f, -.6f, -1, .5f};
  const std::vector<float> a = {a_for_log_decay(-.1), a_for_log_decay(-.2), a_for_log_decay(-.3)};
  const std::vector<float> b = {logit(.5), logit(.25), logit(.75)};
  const double r = std::sqrt(0.5);
  for_every_device([&](const std::string& name, Device& device) {
    Session s(device);
    const Tensor out = s.zeros({3, 1, 2});
    const Tensor state = s.zeros({1, 2, 2});
    s.encoder().run(ops::GatedDelta{out,
                                    s.floats({3, 6}, qkv),
                                    s.floats({3, 1}, a),
                                    s.floats({3, 1}, b),
                                    s.zeros({1}),
                                    s.zeros({1}),
                                    testing::one_sequence(s.floats({3, 6}, qkv).dim(0), state),
                                    {1, 1, 2, 2}});
    expect_near(name, s.read(out),
                {.5 * r, 1 * r, .934214419 * r, 1.368428839 * r, .967274612 * r, .513221935 * r},
                5e-6);
    expect_near(name, s.read(state), {-.136227709, 1.005299116, .967274612, .513221935}, 5e-6);
  });
}

TEST(Golden, DecayOfTheState) {
  // A zero key leaves only the decay: exp(-exp(.5) * softplus(.2 - 1)).
  const std::vector<float> qkv(6, 0.0f);
  const std::vector<float> state_before = {1, 2, -4, 0};
  const std::vector<float> a = {.2f};
  const std::vector<float> a_log = {.5f};
  const std::vector<float> dt_bias = {-1.0f};
  for_every_device([&](const std::string& name, Device& device) {
    Session s(device);
    const Tensor out = s.zeros({1, 1, 2});
    const Tensor state = s.floats({1, 2, 2}, state_before);
    s.encoder().run(ops::GatedDelta{out,
                                    s.floats({1, 6}, qkv),
                                    s.floats({1, 1}, a),
                                    s.zeros({1, 1}),
                                    s.floats({1}, a_log),
                                    s.floats({1}, dt_bias),
                                    testing::one_sequence(s.floats({1, 6}, qkv).dim(0), state),
                                    {1, 1, 2, 2}});
    const double decay = .5423511758;
    expect_near(name, s.read(state), {decay, 2 * decay, -4 * decay, 0.0});
  });
}

TEST(Golden, KeysAreNormalisedWithTheEpsilonInsideTheRoot) {
  // With S = 0, beta = 1/2 and v = (2, 0): S = k v beta, so its first column is l2(k).
  const std::vector<float> qkv = {0, 0, 3, 4, 2, 0};
  for_every_device([&](const std::string& name, Device& device) {
    Session s(device);
    const Tensor out = s.zeros({1, 1, 2});
    const Tensor state = s.zeros({1, 2, 2});
    s.encoder().run(ops::GatedDelta{out,
                                    s.floats({1, 6}, qkv),
                                    s.zeros({1, 1}),
                                    s.zeros({1, 1}),
                                    s.zeros({1}),
                                    s.zeros({1}),
                                    testing::one_sequence(s.floats({1, 6}, qkv).dim(0), state),
                                    {1, 1, 2, 2}});
    expect_near(name, s.read(state), {.599999988, 0.0, .799999984, 0.0}, 2e-7);
  });
}

TEST(Golden, EqualScoresAverageTheValues) {
  const std::vector<float> q(2, 0.0f);
  const std::vector<float> v = {1, 2, 3, 6};
  for_every_device([&](const std::string& name, Device& device) {
    Session s(device);
    const std::vector<Tensor> k_pages = {s.zeros({2, 1, 1})};
    const std::vector<Tensor> v_pages = {s.zeros({2, 1, 2})};
    const Tensor out = s.zeros({2, 1, 2});
    s.encoder().run(ops::Attention{
        out,
        s.floats({2, 1, 1}, q),
        s.zeros({2, 1, 1}),
        s.floats({2, 1, 2}, v),
        testing::one_sequence(s.floats({2, 1, 1}, q).dim(0), {k_pages, v_pages, 2, 0}),
        {}});
    expect_near(name, s.read(out), {1, 2, 2, 4});
  });
}

}  // namespace
}  // namespace moeflux::conformance
