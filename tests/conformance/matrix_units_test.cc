// Products on matrix units, as the emulator computes them step by step: against the reference, and
// the same bits for a token alone as among others.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "backend/gpu/emulator/emulator.h"
#include "backend/gpu/gpu_device.h"
#include "base/format.h"
#include "tests/conformance/models.h"
#include "tests/conformance/support.h"

namespace moeflux::conformance {
namespace {

Device& units() {
  static const std::unique_ptr<Device> device =
      make_gpu_device(gpu::make_emulator_platform({.seed = 3, .matrix_units = true}));
  return *device;
}

std::vector<QuantFormat> formats() {
  return {QuantFormat::affine(4, 64, DType::kBf16), QuantFormat::affine(8, 64, DType::kF16),
          QuantFormat::affine(4, 128, DType::kF16), QuantFormat::affine(8, 128, DType::kBf16)};
}

std::vector<float> product(Device& device, const EncodedWeight& w, std::span<const float> x,
                           int64_t n) {
  Session s(device);
  const Tensor out = s.zeros({n, w.rows});
  s.encoder().linear(out, s.floats({n, w.cols}, x), s.weight(w));
  return s.read(out);
}

/// Activations become integers of at least 14 bits and a sign, of one factor for 64 columns; at
/// most half of one is lost.
float unit_tolerance(std::span<const float> w, std::span<const float> x) {
  double lost = 0.0;
  for (size_t begin = 0; begin < x.size(); begin += 64) {
    float most = 0.0f;
    double sum = 0.0;
    for (size_t i = begin; i < begin + 64; ++i) {
      most = std::max(most, std::abs(x[i]));
      sum += std::abs(w[i]);
    }
    lost += 0x1p-15 * 128.0 / 127.0 * most * sum;
  }
  return static_cast<float>(lost) + dot_tolerance(w, x);
}

TEST(MatrixUnits, ProductsMatchTheReferenceAndDoNotDependOnOtherTokens) {
  Random random(60);
  for (const QuantFormat& format : formats()) {
    for (const int64_t cols : {128, 1152}) {
      const int64_t rows = cols == 128 ? 40 : 21;
      const int64_t n = cols == 128 ? 70 : 6;
      const EncodedWeight w = random_weight(random, format, rows, cols);
      const std::vector<float> x = random.floats(n * cols, -2.0f, 2.0f);
      const std::vector<float> expected = product(reference(), w, x, n);
      const std::vector<float> got = product(units(), w, x, n);
      for (int64_t t = 0; t < n; ++t) {
        for (int64_t r = 0; r < rows; ++r) {
          const auto at = static_cast<size_t>(t * rows + r);
          EXPECT_NEAR(got[at], expected[at],
                      unit_tolerance(row_of(w.decoded, r, cols), row_of(x, t, cols)))
              << format.to_string() << ", " << cols << " columns, token " << t << ", row " << r;
        }
      }
      const std::string what = moeflux::format("{}, {} columns", format.to_string(), cols);
      for (const int64_t t : {int64_t{0}, n - 1}) {
        expect_same_bits(what, row_of(got, t, rows), product(units(), w, row_of(x, t, cols), 1));
      }
      expect_same_bits(what, std::span(got).first(static_cast<size_t>(3 * rows)),
                       product(units(), w, std::span(x).first(static_cast<size_t>(3 * cols)), 3));
    }
  }
}

TEST(MatrixUnits, RowsOfAnOddNumberOfBlocksMayBeginAnywhere) {
  Random random(64);
  for (const int bits : {4, 8}) {
    // More rows than a group has, the last of them alone; tokens fill a tile and begin another.
    const EncodedWeight w =
        random_weight(random, QuantFormat::affine(bits, 64, DType::kBf16), 257, 192);
    const std::vector<float> x = random.floats(72 * w.cols, -2.0f, 2.0f);
    const std::vector<float> got = product(units(), w, x, 72);
    const std::string what = moeflux::format("{} bits", bits);
    for (const int64_t t : {0, 63, 71}) {
      expect_same_bits(what, product(units(), w, row_of(x, t, w.cols), 1), row_of(got, t, w.rows));
    }
    Session s(units());
    Weight moved = s.weight(w);
    Tensor room = s.zeros({static_cast<int64_t>(w.data.size()) + 4}, DType::kU8);
    moved.data.buffer = room.buffer;
    moved.data.offset_bytes = room.offset_bytes + 4;
    s.encoder().write(moved.data, w.data);
    const Tensor out = s.zeros({72, w.rows});
    s.encoder().linear(out, s.floats({72, w.cols}, x), moved);
    expect_same_bits(what + ", 4 bytes further", got, s.read(out));
  }
}

TEST(MatrixUnits, TilesOfEverySizeHaveTheBitsOfTokensAlone) {
  Random random(69);
  // Rooms for two stages of columns, and for as many as any kernel has.
  const std::unique_ptr<Device> small = make_gpu_device(
      gpu::make_emulator_platform({.seed = 3, .matrix_units = true, .shared_bytes = 80 * 1024}));
  for (const int bits : {4, 8}) {
    const EncodedWeight w =
        random_weight(random, QuantFormat::affine(bits, 64, DType::kBf16), 24, 704);
    const std::vector<float> x = random.floats(64 * w.cols, -2.0f, 2.0f);
    const std::vector<float> all = product(units(), w, x, 64);
    for (const int64_t n : {9, 16, 17, 32, 33, 48, 49}) {
      const std::span<const float> some = std::span(x).first(static_cast<size_t>(n * w.cols));
      const std::span<const float> expected = std::span(all).first(static_cast<size_t>(n * w.rows));
      const std::string what = moeflux::format("{} bits, {} tokens", bits, n);
      expect_same_bits(what, expected, product(units(), w, some, n));
      expect_same_bits(what + ", less memory", expected, product(*small, w, some, n));
    }
    for (const int64_t t : {0, 8, 15, 16, 31, 40, 63}) {
      expect_same_bits(moeflux::format("{} bits, token {}", bits, t), row_of(all, t, w.rows),
                       product(units(), w, row_of(x, t, w.cols), 1));
    }
  }
}

TEST(MatrixUnits, LongRowsTakeTurnsInWhateverSharedMemoryThereIs) {
  Random random(68);
  // Room for the parts of two turns, of one, and of none: ordinary products then.
  struct Case {
    uint32_t shared_bytes;
    bool same_bits;
  };
  const EncodedWeight w = random_weight(random, QuantFormat::affine(8, 64, DType::kBf16), 20, 4160);
  const std::vector<float> x = random.floats(w.cols, -2.0f, 2.0f);
  const std::vector<float> expected = product(units(), w, x, 1);
  for (const Case& c : {Case{99 * 1024, true}, Case{64 * 1024, false}}) {
    const auto device = make_gpu_device(gpu::make_emulator_platform(
        {.seed = 3, .matrix_units = true, .shared_bytes = c.shared_bytes}));
    const std::vector<float> got = product(*device, w, x, 1);
    if (c.same_bits) {
      expect_same_bits(format("{} bytes", c.shared_bytes), expected, got);
      continue;
    }
    for (int64_t r = 0; r < w.rows; ++r) {
      EXPECT_NEAR(got[static_cast<size_t>(r)], expected[static_cast<size_t>(r)],
                  unit_tolerance(row_of(w.decoded, r, w.cols), x));
    }
  }
}

TEST(MatrixUnits, GroupsThatStayWalkOverAllTiles) {
  Random random(69);
  struct Case {
    int bits;
    int64_t rows;
    int64_t cols;
  };
  // More tiles than groups at once, and not as many for each: rows of one split, of as many as
  // SIMD groups take at once and of more, whose activations come split by split.
  for (const Case& c : {Case{4, 2900, 64}, Case{4, 405, 1600}, Case{4, 277, 4800},
                        Case{8, 277, 1088}, Case{8, 149, 4160}}) {
    const EncodedWeight w =
        random_weight(random, QuantFormat::affine(c.bits, 64, DType::kBf16), c.rows, c.cols);
    const std::vector<float> x = random.floats(5 * w.cols, -2.0f, 2.0f);
    const std::vector<float> many = product(units(), w, x, 5);
    for (const int64_t n : {1, 2}) {
      const auto some = static_cast<size_t>(n);
      expect_same_bits(format("{}x{} of {} bits, {} tokens", c.rows, c.cols, c.bits, n),
                       std::span(many).first(some * static_cast<size_t>(c.rows)),
                       product(units(), w, std::span(x).first(some * w.cols), n));
    }
  }
}

TEST(MatrixUnits, ProductsOfOneInputShareALaunchAndKeepTheirBits) {
  Random random(61);
  const std::vector<float> x = random.floats(6 * 256);
  std::vector<EncodedWeight> weights;
  for (const int64_t rows : {200, 5, 33, 16, 40}) {
    weights.push_back(random_weight(random, formats()[static_cast<size_t>(rows % 2)], rows, 256));
  }
  for (const int64_t n : {1, 6}) {
    Session s(units());
    const std::span<const float> some(x.data(), static_cast<size_t>(n * 256));
    const Tensor in = s.floats({n, 256}, some);
    std::vector<Tensor> outs;
    for (const EncodedWeight& w : weights) outs.push_back(s.zeros({n, w.rows}));
    std::vector<Weight> views;
    for (const EncodedWeight& w : weights) views.push_back(s.weight(w));
    for (size_t i = 0; i < weights.size(); ++i) s.encoder().linear(outs[i], in, views[i]);
    for (size_t i = 0; i < weights.size(); ++i) {
      expect_same_bits(format("matrix {}, {} tokens", i, n), product(units(), weights[i], some, n),
                       s.read(outs[i]));
    }
  }
}

TEST(MatrixUnits, ExpertsMatchTheReferenceAndDoNotDependOnOtherTokens) {
  Random random(62);
  for (const QuantFormat& format : formats()) {
    // Experts of more slots than a tile has, and of few.
    const int64_t n = format.group_size == 64 ? 140 : 9;
    MoeProblem p = MoeProblem::make(
        random, format, {.hidden = 640, .intermediate = 128, .experts = 4, .top_k = 2, .n = n});
    p.add_biases(random, DType::kBf16);
    Session oracle(reference());
    const std::vector<float> expected = p.run(oracle, p.all_at_once());
    Session whole(units());
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
      Session s(units());
      const std::vector<float> alone = p.run_tokens(s, t, 1, p.all_at_once());
      expect_same_bits(moeflux::format("{}, token {}", format.to_string(), t),
                       std::span(got).subspan(static_cast<size_t>(t) * slots, slots),
                       std::span(alone).first(slots));
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

enum class Placement { kEvenly, kUnevenly, kInWaves };

/// Evenly: in one buffer; otherwise in buffers of their own, which lie as they come.
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
      for (Tensor* tensor : {&w.data, &w.scales, &w.biases}) {
        if (placement != Placement::kEvenly) break;
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

/// Routed and shared rows of tokens [begin, begin + count), then ids and weights as numbers.
/// `alone`: each op is handed over before the next, so that nothing shares a launch.
std::vector<float> run_layer(Device& device, const LayerProblem& p, int64_t begin, int64_t count,
                             Placement placement, bool alone) {
  const MoeProblem& m = p.experts;
  Session s(device);
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
  s.encoder().route(routes, logits, p.router);
  hand_over();
  s.encoder().gated_ffn(shared_out, x, shared, p.has_out_gate ? out_gate : Tensor{}, m.glu);
  hand_over();
  if (placement == Placement::kInWaves) {
    const std::span<const ExpertWeights> ready = *experts;
    s.encoder().expert_ffn(slots, space, x, routes, ready.first(2), m.glu);
    s.encoder().expert_ffn(slots, space, x, routes, ready.subspan(2), m.glu);
  } else {
    s.encoder().experts_stay(experts);
    // The second time everything is known.
    s.encoder().expert_ffn(slots, space, x, routes, *experts, m.glu);
    s.encoder().route(routes, logits, p.router);
    hand_over();
    s.encoder().expert_ffn(slots, space, x, routes, *experts, m.glu);
  }
  std::vector<float> result = s.read(slots);
  for (const float value : s.read(shared_out)) result.push_back(value);
  for (const int32_t id : s.read_ints(routes.ids)) result.push_back(static_cast<float>(id));
  for (const float weight : s.read(routes.weights)) result.push_back(weight);
  return result;
}

void expect_one_layer(const std::string& what, const LayerProblem& p) {
  const int64_t n = p.experts.n;
  const std::vector<float> expected = run_layer(reference(), p, 0, n, Placement::kInWaves, true);
  const std::vector<float> apart = run_layer(units(), p, 0, n, Placement::kInWaves, true);
  ASSERT_EQ(apart.size(), expected.size());
  double error = 0.0;
  for (size_t i = 0; i < apart.size(); ++i) error += std::pow(apart[i] - expected[i], 2.0);
  EXPECT_LE(error, 1e-8 * std::pow(norm(expected), 2.0)) << what;
  for (const Placement placement :
       {Placement::kEvenly, Placement::kUnevenly, Placement::kInWaves}) {
    for (const bool alone : {false, true}) {
      expect_same_bits(
          format("{}, placement {}, alone {}", what, static_cast<int>(placement), alone), apart,
          run_layer(units(), p, 0, n, placement, alone));
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
  const std::vector<QuantFormat> f = formats();
  expect_one_layer("4 bits", make(f[0], f[0], 5, 3, 1, 64, 576));
  expect_one_layer("wide layers", make(f[0], f[0], 4, 1, 1, 64, 4672));
  expect_one_layer("wide layers of two tokens", make(f[0], f[0], 5, 3, 2, 64, 4160));
  expect_one_layer("8 bits, two tokens", make(f[1], f[1], 40, 2, 2, 64));
  expect_one_layer("wide groups", make(QuantFormat::affine(4, 64, DType::kF16),
                                       QuantFormat::affine(4, 64, DType::kF16), 4, 4, 4, 64));
  expect_one_layer("8-bit network beside 4-bit experts", make(f[0], f[1], 4, 2, 2, 64));
  expect_one_layer("a wider network", make(f[0], f[0], 4, 2, 3, 192));
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

TEST(MatrixUnits, ALayerOfExpertsDoesNotDependOnOtherTokens) {
  Random random(64);
  const LayerProblem p = LayerProblem::make(
      random, formats()[0], formats()[0],
      {.hidden = 128, .intermediate = 64, .experts = 6, .top_k = 2, .n = 20}, 64);
  const std::vector<float> whole = run_layer(units(), p, 0, 20, Placement::kEvenly, false);
  const auto slot_values = static_cast<size_t>(2 * 128);
  for (const int64_t t : {0, 19}) {
    const std::vector<float> one = run_layer(units(), p, t, 1, Placement::kEvenly, false);
    expect_same_bits("slots",
                     std::span(whole).subspan(static_cast<size_t>(t) * slot_values, slot_values),
                     std::span(one).first(slot_values));
    expect_same_bits("shared",
                     std::span(whole).subspan(20 * slot_values + static_cast<size_t>(t) * 128, 128),
                     std::span(one).subspan(slot_values, 128));
  }
}

}  // namespace
}  // namespace moeflux::conformance
