// A format that a device has no kernel for is refused by its name: it never gives numbers.
#include <gtest/gtest.h>

#include "quant/format_traits.h"
#include "tests/conformance/models.h"
#include "tests/conformance/support.h"
#include "tests/support/expect_error.h"

namespace moeflux::conformance {
namespace {

using testing::expect_error;

/// A format that somebody defined and no backend has a decoder for.
constexpr FormatTraits kUndecoded = {
    "undecoded", [](const QuantFormat&) { return std::string("a format called undecoded"); },
    [](const QuantFormat&, int64_t) { return true; },
    [](Weight& weight) {
      weight.parts.codes = unplaced({weight.rows, weight.cols}, DType::kU8);
    },
    nullptr};

std::vector<std::pair<std::string, Device*>> every_device() {
  std::vector<std::pair<std::string, Device*>> all = {{"reference", &reference()}};
  for (const NamedDevice& device : devices()) all.emplace_back(device.name, device.device.get());
  return all;
}

/// All parts of a 4-bit matrix are there, so that whoever takes it for one has something to read.
Weight made_up_weight(Session& s, Random& random, int64_t rows, int64_t cols) {
  Weight weight =
      s.weight(random_weight(random, QuantFormat::affine(4, 64, DType::kBf16), rows, cols));
  weight.format.kind = &kUndecoded;
  return weight;
}

/// A device's answer to an op that writes to `out`.
using Op = std::function<Tensor(Session&, Random&)>;
void expect_refusal(const std::string& what, const Op& op) {
  for (const auto& [name, device] : every_device()) {
    SCOPED_TRACE(what + " on " + name);
    Session s(*device, size_t{1} << 20);
    Random random(112);
    const Tensor out = op(s, random);
    std::vector<float> values(static_cast<size_t>(out.num_elements()));
    const Status read = s.encoder().read(std::as_writable_bytes(std::span(values)), out);
    expect_error(read, ErrorCode::kUnsupported, {"a format called undecoded"});
  }
}

TEST(UnknownFormat, IsRefusedByProductsOfAnyNumberOfTokens) {
  for (const int64_t n : {1, 3, 9}) {
    expect_refusal("linear", [n](Session& s, Random& random) {
      const Weight w = made_up_weight(s, random, 16, 128);
      const Tensor out = s.zeros({n, 16});
      s.encoder().run(ops::Linear{out, s.floats({n, 128}, random.floats(n * 128)), w});
      return out;
    });
  }
}

TEST(UnknownFormat, IsRefusedByProductsOfHeads) {
  const HeadRows rows{32, 0, 32};
  expect_refusal("head_linear", [&](Session& s, Random& random) {
    const Weight w = made_up_weight(s, random, 64, 128);
    const Tensor out = s.zeros({2, 2, 32});
    s.encoder().run(ops::HeadLinear{out, s.floats({2, 2, 128}, random.floats(4 * 128)), w, rows});
    return out;
  });
  expect_refusal("head_linear_transposed", [&](Session& s, Random& random) {
    const Weight w = made_up_weight(s, random, 64, 128);
    const Tensor out = s.zeros({2, 2, 128});
    s.encoder().run(
        ops::HeadLinearTransposed{out, s.floats({2, 2, 32}, random.floats(4 * 32)), w, rows});
    return out;
  });
}

TEST(UnknownFormat, IsRefusedByEmbeddings) {
  expect_refusal("embed", [](Session& s, Random& random) {
    const Weight w = made_up_weight(s, random, 8, 128);
    const Tensor out = s.zeros({2, 128});
    s.encoder().run(ops::Embed{out, w, s.ints({2}, std::vector<int32_t>{3, 1})});
    return out;
  });
}

TEST(UnknownFormat, IsRefusedByExpertsWhicheverMatrixHasIt) {
  const MoeSizes sizes{.hidden = 64, .intermediate = 64, .experts = 2, .top_k = 2, .n = 3};
  for (const int which : {0, 1, 2}) {
    expect_refusal("expert_ffn", [&](Session& s, Random& random) {
      const MoeProblem p =
          MoeProblem::make(random, QuantFormat::affine(4, 64, DType::kBf16), sizes);
      std::vector<ExpertWeights> ready;
      for (const int32_t e : {0, 1}) {
        const auto at = static_cast<size_t>(e);
        ready.push_back(
            {ExpertId{e}, s.weight(p.gate[at]), s.weight(p.up[at]), s.weight(p.down[at])});
        Weight* const parts[] = {&ready.back().gate, &ready.back().up, &ready.back().down};
        parts[which]->format.kind = &kUndecoded;
      }
      const Routes routes{s.ints({3, 2}, p.ids), s.floats({3, 2}, p.weights)};
      const Tensor slots = s.zeros({3, 2, 64});
      s.encoder().run(
          ops::ExpertFfn{slots, s.zeros({3, 2, 64}), s.floats({3, 64}, p.x), routes, ready, p.glu});
      return slots;
    });
  }
}

TEST(UnknownFormat, IsRefusedByGatedNetworks) {
  expect_refusal("gated_ffn", [](Session& s, Random& random) {
    const GluWeights weights{made_up_weight(s, random, 64, 64), made_up_weight(s, random, 64, 64),
                             made_up_weight(s, random, 64, 64)};
    const Tensor out = s.zeros({2, 64});
    s.encoder().run(ops::GatedFfn{out, s.floats({2, 64}, random.floats(2 * 64)), weights, {}, {}});
    return out;
  });
}

// 3-bit codes in tiles, which no kernel reads.
TEST(UnknownFormat, TilesOfOtherCodesAreRefused) {
  for (const NamedDevice& device : devices()) {
    SCOPED_TRACE(device.name);
    Session s(*device.device);
    Random random(113);
    Weight w = s.weight(random_weight(random, QuantFormat::affine(3, 64, DType::kBf16), 16, 128));
    w.format.order = WeightOrder::kTiled;
    const Tensor out = s.zeros({1, 16});
    s.encoder().run(ops::Linear{out, s.floats({1, 128}, random.floats(128)), w});
    std::vector<float> values(16);
    expect_error(s.encoder().read(std::as_writable_bytes(std::span(values)), out),
                 ErrorCode::kUnsupported, {"affine-3/64 tiled"});
  }
}

}  // namespace
}  // namespace moeflux::conformance
