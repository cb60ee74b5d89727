// Latent attention as the block computes it, absorbed into the latents, against a second opinion in
// f64 that expands every head's keys and values. Head sizes, rope and scale are DeepSeek-V3's;
// there are fewer heads and a narrower trunk.
#include "model/mixers/latent_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/config/config.h"
#include "model/family/family.h"
#include "tests/support/device_session.h"
#include "tests/support/golden_file.h"
#include "tests/support/run_model.h"

namespace moeflux::testing {
namespace {

constexpr int64_t kHidden = 192;
constexpr int64_t kHeads = 6;
constexpr int64_t kQueryRank = 160;
constexpr int64_t kLatent = 512;
constexpr int64_t kNope = 128;
constexpr int64_t kRope = 64;
constexpr int64_t kValue = 128;
constexpr int64_t kLatentTokens = 20;
constexpr int64_t kPositionStep = 37;  // far enough apart for YaRN's slow frequencies to turn
constexpr double kNormEps = 1e-6;
// The block rounds what it stores to f32, angles among them; outputs are about 1.
constexpr double kLatentTolerance = 2e-4;

constexpr std::string_view kConfig = R"({
  "model_type": "deepseek_v3", "hidden_act": "silu", "hidden_size": 192, "vocab_size": 1024,
  "num_hidden_layers": 1, "num_attention_heads": 6, "q_lora_rank": 160, "kv_lora_rank": 512,
  "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "rms_norm_eps": 1e-6,
  "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1, "n_group": 1,
  "topk_group": 1, "routed_scaling_factor": 2.5, "norm_topk_prob": true,
  "moe_intermediate_size": 64, "intermediate_size": 128,
  "first_k_dense_replace": 1, "max_position_embeddings": 163840, "tie_word_embeddings": false,
  "rope_theta": 10000.0, "rope_scaling": {"type": "yarn", "factor": 40,
  "original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0,
  "mscale_all_dim": 1.0}})";

ModelSpec latent_spec() {
  auto config = Config::parse(kConfig);
  EXPECT_TRUE(config.ok());
  const auto family = find_family("deepseek_v3");
  EXPECT_TRUE(family.ok());
  const auto spec = (*family)->read_spec(*config);
  EXPECT_TRUE(spec.ok()) << (spec.ok() ? "" : spec.error().to_string());
  return spec.ok() ? *spec : ModelSpec{};
}

struct PlainMatrix {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<float> values;
  double at(int64_t r, int64_t c) const { return values[static_cast<size_t>(r * cols + c)]; }
};

// Uniform numbers of a variance that keeps activations near 1.
PlainMatrix random_matrix(uint32_t seed, int64_t rows, int64_t cols, double size) {
  PlainMatrix m{rows, cols, {}};
  for (int64_t i = 0; i < rows * cols; ++i) {
    seed = seed * 1664525u + 1013904223u;
    m.values.push_back(static_cast<float>((static_cast<double>(seed >> 8) * 0x1p-23 - 1.0) * size));
  }
  return m;
}

PlainMatrix random_linear(uint32_t seed, int64_t rows, int64_t cols) {
  return random_matrix(seed, rows, cols, std::sqrt(3.0 / static_cast<double>(cols)));
}

struct Weights {
  PlainMatrix q_a = random_linear(1, kQueryRank, kHidden);
  PlainMatrix q_norm = random_matrix(2, 1, kQueryRank, 1.5);
  PlainMatrix q_b = random_linear(3, kHeads*(kNope + kRope), kQueryRank);
  PlainMatrix kv_a = random_linear(4, kLatent + kRope, kHidden);
  PlainMatrix kv_norm = random_matrix(5, 1, kLatent, 1.5);
  PlainMatrix kv_b = random_linear(6, kHeads*(kNope + kValue), kLatent);
  PlainMatrix o = random_linear(7, kHidden, kHeads* kValue);
  PlainMatrix x = random_matrix(8, kLatentTokens, kHidden, 1.7);
};

// --- The second opinion ---

using Vector = std::vector<double>;

Vector times(const PlainMatrix& w, const Vector& x) {
  Vector y(static_cast<size_t>(w.rows));
  for (int64_t r = 0; r < w.rows; ++r) {
    for (int64_t c = 0; c < w.cols; ++c) {
      y[static_cast<size_t>(r)] += w.at(r, c) * x[static_cast<size_t>(c)];
    }
  }
  return y;
}

Vector part(const Vector& x, int64_t begin, int64_t count) {
  return {x.begin() + begin, x.begin() + begin + count};
}

Vector normed(Vector x, const PlainMatrix& weight) {
  double squares = 0.0;
  for (const double value : x) squares += value * value;
  const double scale = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + kNormEps);
  for (size_t i = 0; i < x.size(); ++i) x[i] *= scale * static_cast<double>(weight.values[i]);
  return x;
}

double dot(const Vector& a, const Vector& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// A wrong implementation, to see that the comparison notices.
struct Mistakes {
  bool half_rope = false;
  bool plain_frequencies = false;
  bool no_mscale = false;
  bool norm_on_rope_key = false;
};

// Pairs of neighbours, with YaRN's frequencies for factor 40 over 4096 positions: pairs up to 10
// keep theirs, those from 23 are 40 times slower, a linear ramp between.
Vector rotated(const Vector& x, int64_t position, const Mistakes& mistakes) {
  Vector y(x.size());
  const auto pairs = static_cast<int64_t>(x.size()) / 2;
  for (int64_t i = 0; i < pairs; ++i) {
    double frequency = std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(pairs));
    const double slow = std::clamp((static_cast<double>(i) - 10.0) / 13.0, 0.0, 1.0);
    if (!mistakes.plain_frequencies) frequency *= 1.0 - slow + slow / 40.0;
    const double angle = static_cast<double>(position) * frequency;
    const auto a = static_cast<size_t>(mistakes.half_rope ? i : 2 * i);
    const auto b = static_cast<size_t>(mistakes.half_rope ? i + pairs : 2 * i + 1);
    y[a] = x[a] * std::cos(angle) - x[b] * std::sin(angle);
    y[b] = x[b] * std::cos(angle) + x[a] * std::sin(angle);
  }
  return y;
}

struct Opinion {
  std::vector<float> outputs;  // [tokens, hidden]
  std::vector<float> cache;    // [tokens, latent + rope]
};

Opinion second_opinion(const Weights& w, const Mistakes& mistakes) {
  const double m = mistakes.no_mscale ? 1.0 : 0.1 * std::log(40.0) + 1.0;
  const double scale = m * m / std::sqrt(static_cast<double>(kNope + kRope));
  std::vector<Vector> rope_keys;
  std::vector<Vector> expanded;  // per token: of every head, keys and then values
  Opinion opinion;
  for (int64_t t = 0; t < kLatentTokens; ++t) {
    Vector x;
    for (int64_t c = 0; c < kHidden; ++c) x.push_back(w.x.at(t, c));
    const Vector q = times(w.q_b, normed(times(w.q_a, x), w.q_norm));
    const Vector kv = times(w.kv_a, x);
    const Vector latent = normed(part(kv, 0, kLatent), w.kv_norm);
    Vector rope_key = part(kv, kLatent, kRope);
    if (mistakes.norm_on_rope_key) rope_key = normed(rope_key, w.kv_norm);
    rope_keys.push_back(rotated(rope_key, t * kPositionStep, mistakes));
    expanded.push_back(times(w.kv_b, latent));
    for (const double value : latent) opinion.cache.push_back(static_cast<float>(value));
    for (const double value : rope_keys.back()) opinion.cache.push_back(static_cast<float>(value));
    Vector heads;
    for (int64_t h = 0; h < kHeads; ++h) {
      const Vector q_nope = part(q, h * (kNope + kRope), kNope);
      const Vector q_rope =
          rotated(part(q, h * (kNope + kRope) + kNope, kRope), t * kPositionStep, mistakes);
      Vector p;
      double total = 0.0;
      for (size_t s = 0; s < rope_keys.size(); ++s) {
        const Vector key = part(expanded[s], h * (kNope + kValue), kNope);
        p.push_back(std::exp(scale * (dot(q_nope, key) + dot(q_rope, rope_keys[s]))));
        total += p.back();
      }
      Vector out(static_cast<size_t>(kValue));
      for (size_t s = 0; s < p.size(); ++s) {
        const Vector value = part(expanded[s], h * (kNope + kValue) + kNope, kValue);
        for (size_t i = 0; i < out.size(); ++i) out[i] += p[s] / total * value[i];
      }
      heads.insert(heads.end(), out.begin(), out.end());
    }
    for (const double y : times(w.o, heads)) opinion.outputs.push_back(static_cast<float>(y));
  }
  return opinion;
}

// --- The block ---

enum class UpProjection { kWhole, kSplit };

Weight place(DeviceSession& session, const PlainMatrix& m) {
  return session.weight(m.rows, m.cols, m.values);
}

LatentAttentionWeights place_weights(DeviceSession& session, const Weights& w,
                                     const LatentAttentionSpec& spec, UpProjection up) {
  LatentAttentionWeights placed;
  placed.q = place(session, w.q_a);
  placed.q_norm = session.floats({kQueryRank}, w.q_norm.values);
  placed.q_b = place(session, w.q_b);
  placed.kv_a = place(session, w.kv_a);
  placed.kv_norm = session.floats({kLatent}, w.kv_norm.values);
  placed.o = place(session, w.o);
  placed.inverse_frequencies = session.floats({kRope / 2}, spec.rope.inverse_frequencies);
  placed.k_up_is_transposed = up == UpProjection::kSplit;
  if (up == UpProjection::kWhole) {
    placed.k_up = placed.v_up = place(session, w.kv_b);
    return placed;
  }
  PlainMatrix keys{kHeads * kLatent, kNope, {}};
  PlainMatrix values{kHeads * kValue, kLatent, {}};
  for (int64_t h = 0; h < kHeads; ++h) {
    const int64_t first = h * (kNope + kValue);
    for (int64_t c = 0; c < kLatent; ++c) {
      for (int64_t r = 0; r < kNope; ++r) {
        keys.values.push_back(static_cast<float>(w.kv_b.at(first + r, c)));
      }
    }
    for (int64_t r = 0; r < kValue; ++r) {
      for (int64_t c = 0; c < kLatent; ++c) {
        values.values.push_back(static_cast<float>(w.kv_b.at(first + kNope + r, c)));
      }
    }
  }
  placed.k_up = place(session, keys);
  placed.v_up = place(session, values);
  return placed;
}

// The block's outputs for tokens that arrive in `chunks`, and what it left in the cache.
Opinion run_block(Device& device, const Weights& w, UpProjection up,
                  const std::vector<int64_t>& chunks) {
  const ModelSpec model = latent_spec();
  const LatentAttentionSpec& spec = *mixer_as<LatentAttentionSpec>(model.layers.at(0));
  DeviceSession session(device);
  const LatentAttentionMixer mixer(spec, place_weights(session, w, spec, up));
  auto state = SequenceState::create(device, state_specs(model), kLatentTokens);
  EXPECT_TRUE(state.ok());
  const std::unique_ptr<ExpertStore> experts = make_empty_expert_store();
  Opinion result;
  int64_t done = 0;
  for (const int64_t n : chunks) {
    EXPECT_TRUE((*state)->reserve(done + n, session.encoder()).ok());
    std::vector<int32_t> positions;
    for (int64_t t = done; t < done + n; ++t) {
      positions.push_back(static_cast<int32_t>(t * kPositionStep));
    }
    const Tensor position = session.ints({n}, positions);
    const Tensor x = session.floats({n, kHidden}, std::span(w.x.values)
                                                      .subspan(static_cast<size_t>(done * kHidden),
                                                               static_cast<size_t>(n * kHidden)));
    const Tensor out = session.zeros({n, kHidden});
    StepBatch batch;
    batch.add(**state, {.rows = n});
    const ForwardStep step{session.encoder(), {}, position, batch, *experts};
    mixer.forward(step, LayerId{0}, out, x);
    const std::vector<float> rows = session.read(out);
    result.outputs.insert(result.outputs.end(), rows.begin(), rows.end());
    (*state)->advance(n);
    done += n;
  }
  EXPECT_EQ(done, kLatentTokens);
  const KvView kv = (*state)->key_value(LayerId{0});
  EXPECT_EQ(kv.k_pages.size(), 1u);
  result.cache = session.read(
      kv.k_pages[0].slice(0, 0, kLatentTokens).reshape({kLatentTokens, spec.latent_dim()}));
  return result;
}

class LatentAttention : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Device> device_ = make_test_device({.device = GetParam()});
  Weights weights_;
};

TEST_P(LatentAttention, AbsorbedFormAgreesWithExpandedHeads) {
  const Opinion expected = second_opinion(weights_, {});
  for (const UpProjection up : {UpProjection::kWhole, UpProjection::kSplit}) {
    const Opinion got = run_block(*device_, weights_, up, {9, 1, kLatentTokens - 10});
    EXPECT_LE(max_abs_difference(got.outputs, expected.outputs), kLatentTolerance);
  }
}

TEST_P(LatentAttention, TheCacheHoldsTheNormedLatentAndTheRotatedKey) {
  const Opinion expected = second_opinion(weights_, {});
  const Opinion got = run_block(*device_, weights_, UpProjection::kWhole, {7, kLatentTokens - 7});
  ASSERT_EQ(got.cache.size(), static_cast<size_t>(kLatentTokens * (kLatent + kRope)));
  EXPECT_LE(max_abs_difference(got.cache, expected.cache), kLatentTolerance);
}

TEST_P(LatentAttention, ChunksDoNotChangeABit) {
  for (const UpProjection up : {UpProjection::kWhole, UpProjection::kSplit}) {
    const Opinion whole = run_block(*device_, weights_, up, {kLatentTokens});
    EXPECT_EQ(run_block(*device_, weights_, up, std::vector<int64_t>(kLatentTokens, 1)).outputs,
              whole.outputs);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, LatentAttention, ::testing::Values("reference", "cpu"),
                         [](const auto& test) { return test.param; });

TEST(LatentAttentionState, KeepsLatentAndRopeKeyAndNothingElse) {
  const ModelSpec model = latent_spec();
  const std::vector<LayerStateSpec> specs = state_specs(model);
  ASSERT_EQ(specs.size(), 1u);
  EXPECT_EQ(specs[0].bytes_per_token(), (kLatent + kRope) * sizeof(float));
  EXPECT_EQ(specs[0].bytes_fixed(), 0u);
  const std::unique_ptr<Device> device = make_test_device({.device = "reference"});
  auto state = SequenceState::create(*device, specs, kLatentTokens);
  ASSERT_TRUE(state.ok());
  DeviceSession session(*device);
  ASSERT_TRUE((*state)->reserve(1, session.encoder()).ok());
  EXPECT_EQ((*state)->size_bytes(),
            static_cast<uint64_t>(SequenceState::kPageTokens * (kLatent + kRope)) * sizeof(float));
}

TEST(LatentAttentionOpinion, NoticesTheUsualMistakes) {
  const Weights weights;
  const Opinion right = second_opinion(weights, {});
  for (const Mistakes& mistakes :
       {Mistakes{.half_rope = true}, Mistakes{.plain_frequencies = true},
        Mistakes{.no_mscale = true}, Mistakes{.norm_on_rope_key = true}}) {
    EXPECT_GT(max_abs_difference(second_opinion(weights, mistakes).outputs, right.outputs),
              20 * kLatentTolerance);
  }
}

}  // namespace
}  // namespace moeflux::testing
