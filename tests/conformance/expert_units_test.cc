// Experts on matrix units: against the reference, and the same bits for a token alone as among
// others and however a layer's launches are shared.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "base/format.h"
#include "quant/ggml_types.h"
#include "tests/conformance/models.h"
#include "tests/conformance/support.h"

namespace moeflux::conformance {
namespace {

TEST(MatrixUnits, ExpertsMatchTheReferenceAndDoNotDependOnOtherTokens) {
  for (const NamedDevice* named : devices_with_units()) {
    SCOPED_TRACE(named->name);
    Device& units = *named->device;
    Random random(62);
    for (const QuantFormat& format : unit_formats()) {
      // Experts of more slots than a tile has, and of few.
      const int64_t n = format.group_size <= 64 ? 140 : 9;
      MoeProblem p = MoeProblem::make(
          random, format, {.hidden = 640, .intermediate = 128, .experts = 4, .top_k = 2, .n = n});
      p.add_biases(random, DType::kBf16);
      Session oracle(reference());
      const std::vector<float> expected = p.run(oracle, p.all_at_once());
      Session whole(units);
      const std::vector<float> got = p.run(whole, p.all_at_once());
      ASSERT_EQ(got.size(), expected.size());
      double error = 0.0;
      double size = 0.0;
      for (size_t i = 0; i < got.size(); ++i) {
        error += (got[i] - expected[i]) * (got[i] - expected[i]);
        size += expected[i] * expected[i];
      }
      EXPECT_LE(error, 1e-8 * size) << format.to_string();
      const auto slots = static_cast<size_t>(p.top_k * p.hidden);
      for (const int64_t t : {int64_t{0}, n - 1}) {
        Session s(units);
        const std::vector<float> alone = p.run_tokens(s, t, 1, p.all_at_once());
        expect_same_bits(formatted("{}, token {}", format.to_string(), t),
                         std::span(got).subspan(static_cast<size_t>(t) * slots, slots),
                         std::span(alone).first(slots));
      }
    }
  }
}

/// A layer of experts: a router's logits, routed experts, and a network for every token.
struct LayerProblem {
  MoeProblem experts;
  EncodedWeight gate, up, down;
  std::vector<float> logits;
  std::vector<float> out_gate;
  bool has_out_gate = true;
  RouterOptions router;

  static LayerProblem make(Random& random, const QuantFormat& routed, const QuantFormat& shared,
                           const MoeSizes& sizes, int64_t shared_intermediate) {
    LayerProblem p{MoeProblem::make(random, routed, sizes),
                   random_weight(random, shared, shared_intermediate, sizes.hidden),
                   random_weight(random, shared, shared_intermediate, sizes.hidden),
                   random_weight(random, shared, sizes.hidden, shared_intermediate),
                   random.floats(sizes.n * sizes.experts, -3.0f, 3.0f),
                   random.floats(sizes.n, -2.0f, 2.0f)};
    return p;
  }
};

enum class Placement { kEvenly, kFar, kUnevenly, kInWaves };

/// Evenly: in one buffer, from its begin; far: so too, said to be read slowly; otherwise in buffers
/// of their own, which lie as they come.
std::shared_ptr<std::vector<ExpertWeights>> place_experts(Session& s, const MoeProblem& m,
                                                          Placement placement) {
  const std::vector<const std::vector<EncodedWeight>*> parts = {&m.gate, &m.up, &m.down};
  auto experts = std::make_shared<std::vector<ExpertWeights>>();
  std::vector<std::byte> bytes;
  for (size_t e = 0; e < m.gate.size(); ++e) {
    for (const auto* weights : parts) {
      const EncodedWeight& w = (*weights)[e];
      for (const auto* from : {&w.data, &w.scales, &w.biases}) {
        bytes.insert(bytes.end(), from->begin(), from->end());
        bytes.resize((bytes.size() + 15) / 16 * 16);
      }
    }
  }
  const Tensor all = s.zeros({static_cast<int64_t>(bytes.size() / sizeof(float))});
  s.encoder().write(all, bytes);
  size_t at = 0;
  for (size_t e = 0; e < m.gate.size(); ++e) {
    std::vector<Weight> views;
    for (const auto* weights : parts) {
      Weight w = s.weight((*weights)[e]);
      for (Tensor* tensor :
           {&w.parts.codes, &w.parts.scales, &w.parts.offsets, &w.parts.outer_scale}) {
        if (placement > Placement::kFar || tensor->is_null()) continue;
        tensor->buffer = all.buffer;
        tensor->offset_bytes = all.offset_bytes + at;
        at += (tensor->size_bytes() + 15) / 16 * 16;
      }
      views.push_back(w);
    }
    experts->push_back({ExpertId{static_cast<int32_t>(e)}, views[0], views[1], views[2]});
  }
  return experts;
}

/// Experts in far memory, of which two that are chosen find room.
ExpertMemory far_memory(Session& s, const std::vector<ExpertWeights>& experts) {
  const Tensor& first = experts[0].gate.parts.codes;
  EXPECT_EQ(first.offset_bytes, 0u);
  const uint64_t slot = experts.size() < 2 ? first.buffer->size_bytes() / 16 * 16
                                           : experts[1].gate.parts.codes.offset_bytes;
  const Tensor landing = s.zeros({static_cast<int64_t>(2 * slot / sizeof(float))});
  EXPECT_EQ(landing.offset_bytes, 0u);
  return {first.buffer, landing.buffer, slot, slot};
}

/// Routed and shared rows of tokens [begin, begin + count), then ids and weights as numbers.
/// `alone`: each op is handed over before the next, so that nothing shares a launch.
std::vector<float> run_layer(Device& device, const LayerProblem& p, int64_t begin, int64_t count,
                             Placement placement, bool alone) {
  const MoeProblem& m = p.experts;
  Session s(device, size_t{4} << 20);
  const auto part = [&](const std::vector<float>& values, int64_t width) {
    return std::span(values).subspan(static_cast<size_t>(begin * width),
                                     static_cast<size_t>(count * width));
  };
  const auto hand_over = [&] {
    if (alone) (void)s.encoder().submit();
  };
  const auto experts = place_experts(s, m, placement);
  const Tensor x = s.floats({count, m.hidden}, part(m.x, m.hidden));
  const Tensor logits = s.floats({count, m.experts}, part(p.logits, m.experts));
  const Tensor out_gate = s.floats({count, 1}, part(p.out_gate, 1));
  const GluWeights shared{s.weight(p.gate), s.weight(p.up), s.weight(p.down)};
  const Routes routes{s.zeros({count, m.top_k}, DType::kI32), s.zeros({count, m.top_k})};
  const Tensor slots = s.zeros({count, m.top_k, m.hidden});
  const Tensor space = s.zeros({count, m.top_k, m.intermediate});
  const Tensor shared_out = s.zeros({count, m.hidden});
  s.encoder().run(ops::Route{routes, logits, p.router});
  hand_over();
  s.encoder().run(
      ops::GatedFfn{shared_out, x, shared, p.has_out_gate ? out_gate : Tensor{}, m.glu});
  hand_over();
  if (placement == Placement::kInWaves) {
    const std::span<const ExpertWeights> ready = *experts;
    s.encoder().run(ops::ExpertFfn{slots, space, x, routes, ready.first(2), m.glu});
    s.encoder().run(ops::ExpertFfn{slots, space, x, routes, ready.subspan(2), m.glu});
  } else {
    s.encoder().experts_stay(
        experts, placement == Placement::kFar ? far_memory(s, *experts) : ExpertMemory{});
    // The second time everything is known.
    s.encoder().run(ops::ExpertFfn{slots, space, x, routes, *experts, m.glu});
    s.encoder().run(ops::Route{routes, logits, p.router});
    hand_over();
    s.encoder().run(ops::ExpertFfn{slots, space, x, routes, *experts, m.glu});
  }
  std::vector<float> result = s.read(slots);
  for (const float value : s.read(shared_out)) result.push_back(value);
  for (const int32_t id : s.read_ints(routes.ids)) result.push_back(static_cast<float>(id));
  for (const float weight : s.read(routes.weights)) result.push_back(weight);
  return result;
}

void expect_one_layer(const std::string& what, const LayerProblem& p, bool fast_only = false) {
  const int64_t n = p.experts.n;
  const std::vector<float> expected = run_layer(reference(), p, 0, n, Placement::kInWaves, true);
  for (const NamedDevice* named : devices_with_units(fast_only)) {
    SCOPED_TRACE(formatted("{} on {}", what, named->name));
    const std::vector<float> apart = run_layer(*named->device, p, 0, n, Placement::kInWaves, true);
    ASSERT_EQ(apart.size(), expected.size());
    double error = 0.0;
    for (size_t i = 0; i < apart.size(); ++i) error += std::pow(apart[i] - expected[i], 2.0);
    EXPECT_LE(error, 1e-8 * std::pow(norm(expected), 2.0));
    for (const Placement placement :
         {Placement::kEvenly, Placement::kFar, Placement::kUnevenly, Placement::kInWaves}) {
      for (const bool alone : {false, true}) {
        expect_same_bits(formatted("placement {}, alone {}", static_cast<int>(placement), alone),
                         apart, run_layer(*named->device, p, 0, n, placement, alone));
      }
    }
  }
}

TEST(MatrixUnits, ALayerOfExpertsHasTheSameBitsHoweverItsLaunchesAreShared) {
  Random random(63);
  const auto make = [&](const QuantFormat& routed, const QuantFormat& shared, int64_t experts,
                        int64_t top_k, int64_t n, int64_t shared_intermediate,
                        int64_t hidden = 128) {
    return LayerProblem::make(
        random, routed, shared,
        {.hidden = hidden, .intermediate = 64, .experts = experts, .top_k = top_k, .n = n},
        shared_intermediate);
  };
  const std::vector<QuantFormat> f = unit_formats();
  expect_one_layer("4 bits", make(f[0], f[0], 5, 3, 1, 64, 576));
  expect_one_layer("wide layers", make(f[0], f[0], 4, 1, 1, 64, 4672));
  expect_one_layer("wide layers of two tokens", make(f[0], f[0], 5, 3, 2, 64, 4160));
  expect_one_layer("8 bits, two tokens", make(f[1], f[1], 40, 2, 2, 64));
  expect_one_layer("wide groups", make(QuantFormat::affine(4, 64, DType::kF16),
                                       QuantFormat::affine(4, 64, DType::kF16), 4, 4, 4, 64));
  expect_one_layer("8-bit network beside 4-bit experts", make(f[0], f[1], 4, 2, 2, 64));
  expect_one_layer("a wider network", make(f[0], f[0], 4, 2, 3, 192));
  const QuantFormat wide_scales = QuantFormat::affine(4, 128, DType::kF32);
  for (const int64_t n : {1, 11}) {
    expect_one_layer(
        formatted("scales in f32, {} tokens", n),
        LayerProblem::make(random, wide_scales, wide_scales,
                           {.hidden = 640, .intermediate = 128, .experts = 4, .top_k = 2, .n = n},
                           128));
  }
  // Tiles of 4, 8 and 16 slots, with and without the network.
  expect_one_layer("experts of one or two slots", make(f[0], f[0], 48, 4, 21, 64, 576));
  expect_one_layer("experts of a few slots", make(f[0], f[0], 24, 4, 21, 64, 576));
  expect_one_layer("experts of some slots", make(f[0], f[0], 9, 4, 21, 64));
  expect_one_layer("a wider network of some tokens", make(f[0], f[0], 24, 4, 17, 192));
  LayerProblem ungated = make(f[0], f[0], 3, 1, 1, 64);
  ungated.has_out_gate = false;
  expect_one_layer("no gate", ungated);
  LayerProblem grouped = make(f[0], f[0], 64, 3, 2, 64);
  grouped.router = {.score = RouterScore::kSigmoid,
                    .num_groups = 2,
                    .groups_kept = 1,
                    .group_score = GroupScore::kTopTwoSum};
  expect_one_layer("groups of experts", grouped);
  LayerProblem clamped = make(f[0], f[0], 4, 2, 1, 64);
  clamped.experts.glu = {.alpha = 1.702f, .limit = 1.0f, .up_offset = 1.0f};
  expect_one_layer("a clamped unit", clamped);
}

TEST(MatrixUnits, ALayerOfExpertsInNarrowGroupsHasTheSameBitsToo) {
  Random random(70);
  const auto make = [&](const QuantFormat& format, const MoeSizes& sizes) {
    return LayerProblem::make(random, format, format, sizes, sizes.intermediate);
  };
  for (const QuantFormat& format :
       {QuantFormat::affine(4, 32, DType::kBf16), QuantFormat::affine(8, 32, DType::kF16),
        QuantFormat::affine(4, 64, DType::kF32)}) {
    const std::string what = format.to_string();
    expect_one_layer(
        what + ", a split and a part",
        make(format, {.hidden = 640, .intermediate = 64, .experts = 4, .top_k = 2, .n = 1}));
    expect_one_layer(
        what + ", experts of one or two slots",
        make(format, {.hidden = 192, .intermediate = 64, .experts = 16, .top_k = 4, .n = 7}));
    expect_one_layer(
        what + ", experts of some slots",
        make(format, {.hidden = 256, .intermediate = 64, .experts = 4, .top_k = 4, .n = 9}));
  }
}

LayerProblem ggml_layer(Random& random, const char* gate, const char* down, int64_t experts,
                        int64_t top_k, int64_t n, int64_t hidden) {
  const auto format_of = [](const char* name) {
    const QuantFormat format = *find_ggml_type(name)->format;
    return name == std::string_view("NVFP4") ? format.with_outer_scale() : format;
  };
  const QuantFormat format = format_of(gate);
  LayerProblem p = LayerProblem::make(
      random, format, format,
      {.hidden = hidden, .intermediate = 256, .experts = experts, .top_k = top_k, .n = n}, 256);
  for (EncodedWeight& w : p.experts.down) {
    w = random_weight(random, format_of(down), hidden, 256);
  }
  p.down = random_weight(random, format_of(down), hidden, 256);
  return p;
}

TEST(MatrixUnits, ALayerOfExpertsInGgmlTypesHasTheSameBitsToo) {
  Random random(66);
  const auto make = [&](auto... sizes) { return ggml_layer(random, sizes...); };
  expect_one_layer("Q4_K and Q6_K", make("Q4_K", "Q6_K", 5, 3, 1, 512));
  expect_one_layer("wide layers", make("Q4_K", "Q4_K", 3, 1, 1, 4864));
  expect_one_layer("two tokens of Q8_0", make("Q8_0", "Q8_0", 4, 2, 2, 256));
  expect_one_layer("many tokens", make("Q5_K", "IQ4_XS", 3, 2, 11, 256));
}

TEST(MatrixUnits, ALayerOfExpertsOfManyTokensInGgmlTypesHasTheSameBitsToo) {
  Random random(67);
  const auto make = [&](auto... sizes) { return ggml_layer(random, sizes...); };
  expect_one_layer("experts of one or two slots", make("Q4_0", "Q6_K", 36, 4, 17, 256));
  expect_one_layer("experts of a few slots", make("Q4_0", "Q6_K", 24, 4, 17, 256));
  expect_one_layer("experts of some slots", make("Q4_K", "MXFP4", 9, 4, 21, 256));
  expect_one_layer("a published pair", make("IQ2_XS", "IQ4_NL", 4, 2, 1, 512));
  expect_one_layer("a published pair, many tokens", make("IQ3_S", "Q2_0", 3, 2, 9, 256));
  expect_one_layer("matrices with factors", make("NVFP4", "NVFP4", 4, 2, 2, 576));
  expect_one_layer("the same, many tokens", make("NVFP4", "NVFP4", 3, 2, 11, 256));
  expect_one_layer("IQ1", make("IQ1_S", "IQ1_M", 4, 2, 1, 512));
  expect_one_layer("IQ1 and digits, many tokens", make("IQ1_M", "TQ1_0", 3, 2, 9, 256));
}

TEST(MatrixUnits, ALayerOfExpertsOfTypesThatKernelsKnowHasTheSameBitsToo) {
  Random random(69);
  const auto make = [&](auto... sizes) { return ggml_layer(random, sizes...); };
  expect_one_layer("a split and a half", make("Q4_K", "Q4_0", 36, 4, 17, 768));
  expect_one_layer("a part of a split", make("Q6_K", "Q4_K", 36, 4, 17, 256));
  expect_one_layer("rows of odd bytes", make("MXFP4", "MXFP4", 36, 4, 17, 832));
  expect_one_layer("rows that are not wide", make("Q4_0", "MXFP4", 36, 4, 17, 832));
}

TEST(MatrixUnits, ALayerOfGgmlExpertsOfMoreThan128TokensHasTheSameBitsToo) {
  Random random(68);
  expect_one_layer("139 tokens", ggml_layer(random, "IQ2_XS", "Q4_0", 2, 2, 139, 256));
}

/// A layer as wide as a real model's, of all tokens and of its first few.
void expect_one_real_layer(const MoeSizes& sizes, std::initializer_list<int64_t> counts,
                           const RouterOptions& router = {}) {
  if (devices_with_units(/*fast_only=*/true).empty()) {
    GTEST_SKIP() << "hardware: no device is fast enough";
  }
  Random random(65);
  const QuantFormat format = QuantFormat::affine(4, 64, DType::kBf16);
  LayerProblem p = LayerProblem::make(random, format, format, sizes, sizes.intermediate);
  p.router = router;
  for (const int64_t n : counts) {
    p.experts.n = n;
    expect_one_layer(formatted("{} tokens", n), p, /*fast_only=*/true);
  }
}

TEST(MatrixUnits, ALayerOfQwen35BHasTheSameBitsToo) {
  expect_one_real_layer({.hidden = 2048, .intermediate = 512, .experts = 16, .top_k = 8, .n = 40},
                        {1, 2, 4, 40});
}

TEST(MatrixUnits, ALayerOfQwen235BHasTheSameBitsToo) {
  expect_one_real_layer({.hidden = 4096, .intermediate = 1536, .experts = 10, .top_k = 8, .n = 1},
                        {1});
}

TEST(MatrixUnits, ALayerOfDeepSeekV3HasTheSameBitsToo) {
  expect_one_real_layer({.hidden = 7168, .intermediate = 2048, .experts = 10, .top_k = 8, .n = 3},
                        {1, 3},
                        {.score = RouterScore::kSigmoid,
                         .num_groups = 2,
                         .groups_kept = 2,
                         .group_score = GroupScore::kTopTwoSum});
}

TEST(MatrixUnits, ALayerOfExpertsDoesNotDependOnOtherTokens) {
  for (const NamedDevice* named : devices_with_units()) {
    SCOPED_TRACE(named->name);
    Device& units = *named->device;
    Random random(64);
    const LayerProblem p = LayerProblem::make(
        random, unit_formats()[0], unit_formats()[0],
        {.hidden = 128, .intermediate = 64, .experts = 6, .top_k = 2, .n = 20}, 64);
    const std::vector<float> whole = run_layer(units, p, 0, 20, Placement::kEvenly, false);
    const auto slot_values = static_cast<size_t>(2 * 128);
    for (const int64_t t : {0, 19}) {
      const std::vector<float> one = run_layer(units, p, t, 1, Placement::kEvenly, false);
      expect_same_bits("slots",
                       std::span(whole).subspan(static_cast<size_t>(t) * slot_values, slot_values),
                       std::span(one).first(slot_values));
      expect_same_bits(
          "shared", std::span(whole).subspan(20 * slot_values + static_cast<size_t>(t) * 128, 128),
          std::span(one).subspan(slot_values, 128));
    }
  }
}

}  // namespace
}  // namespace moeflux::conformance
