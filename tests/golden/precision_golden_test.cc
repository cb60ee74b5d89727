// Every family in the precision that users get: activations rounded to int8, which `--precision
// auto` takes wherever such kernels are fast. Forced here, so that no machine leaves it out.
//
// Rounding makes routers of tiny random models choose other experts, and then nothing can be
// compared. So both sides take the routes and weights that the reference's routers chose, and where
// an index chooses keys, those that the reference's chose. The golden weights are bf16, where int8
// does nothing; their 4-bit twins are what is compared, with the reference's f64 sums over the same
// 4-bit weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/format.h"
#include "tests/support/golden_families.h"
#include "tests/support/golden_file.h"
#include "tests/support/quantized_copy.h"
#include "tests/support/run_model.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {
namespace {

// Bounds that no cosine of a position falls below, and that seven eighths of them reach.
struct Bound {
  double all = 0.999;
  double most = 0.999;
};
using Bounds = std::map<std::string, Bound>;

// Models whose tiny random weights turn any rounding far, as that of f32 shows. The cosine of f32
// logits with the reference's is below 1 by 2e-10 (gemma4_text) to 1e-9 (the gated delta rule's
// models), by 9e-12 for glm4_moe and by 1e-12 to 4e-12 for the others. The gated delta rule divides
// each head's output by its norm, and some are nearly zero. Int8 moves all of them in proportion.
// lfm2_moe multiplies three rounded rows in every short convolution. The sum of kimi_k3 begins anew
// with each block of layers, so that little stands beside what a branch rounds. deepseek_v41 rounds
// entries to steps of e2m1, so that a small difference may become a quarter of a number.
const Bounds kLayerBounds = {{"gemma4_text", {.all = 0.998}}, {"gemma4_text_e", {.all = 0.998}},
                             {"kimi_k3", {.all = 0.998}},     {"qwen3_5_moe_text", {.all = 0.97}},
                             {"qwen3_5_text", {.all = 0.99}}, {"qwen3_next", {.all = 0.98}}};
const Bounds kLogitBounds = {{"axk1", {.all = 0.997, .most = 0.998}},
                             {"bailing_hybrid", {.all = 0.997, .most = 0.998}},
                             {"beam", {.all = 0.997, .most = 0.998}},
                             {"deepseek_v3", {.all = 0.998}},
                             {"deepseek_v41", {.all = 0.98, .most = 0.99}},
                             {"dots3_note_text", {.all = 0.998}},
                             {"gemma4_text", {.all = 0.95, .most = 0.98}},
                             {"gemma4_text_dense", {.all = 0.95, .most = 0.98}},
                             {"gemma4_text_e", {.all = 0.98, .most = 0.99}},
                             {"glm4_moe", {.all = 0.997}},
                             {"glm5_next_text", {.all = 0.997, .most = 0.998}},
                             {"granite", {.all = 0.998}},
                             {"granite_swa", {.all = 0.998}},
                             {"hy_v3", {.all = 0.998}},
                             {"hy_v4", {.all = 0.997}},
                             {"inkling2_loop_text", {.all = 0.997}},
                             {"kimi_k3", {.all = 0.9, .most = 0.98}},
                             {"kimi_linear", {.all = 0.997, .most = 0.998}},
                             {"laguna", {.all = 0.998}},
                             {"lara_mini", {.all = 0.97, .most = 0.995}},
                             {"lfm2_moe", {.all = 0.998}},
                             {"mistral", {.all = 0.998}},
                             {"mistral_large4_text", {.all = 0.998}},
                             {"muse_glimmer_text", {.all = 0.98, .most = 0.99}},
                             {"muse_spark_text", {.all = 0.97, .most = 0.99}},
                             {"qwen2", {.all = 0.998}},
                             {"qwen3_5_moe_text", {.all = 0.7, .most = 0.95}},
                             {"qwen3_5_text", {.all = 0.5, .most = 0.95}},
                             {"qwen3_next", {.all = 0.7, .most = 0.95}},
                             {"smollm3", {.all = 0.998, .most = 0.998}},
                             {"step3p5", {.all = 0.998}}};

const std::set<std::string> kFamiliesThatChooseKeys = {"axk2",
                                                       "dots3_note_text",
                                                       "hy_v4",
                                                       "mistral_large4_text",
                                                       "deepseek_v32",
                                                       "deepseek_v4",
                                                       "deepseek_v41",
                                                       "deepseek_v4_saved",
                                                       "glm5_next_text",
                                                       "glm_moe_dsa",
                                                       "glm_moe_dsa_shared",
                                                       "minimax_m3_vl_text",
                                                       "qwen4_exp_text"};

Bound bound_of(const Bounds& exceptions, const std::string& family) {
  const auto found = exceptions.find(family);
  return found == exceptions.end() ? Bound{} : found->second;
}

void expect_cosines(std::vector<double> cosines, const Bound& bound) {
  ASSERT_FALSE(cosines.empty());
  std::sort(cosines.begin(), cosines.end());
  EXPECT_GE(cosines.front(), bound.all) << "of " << cosines.size() << " positions";
  EXPECT_GE(cosines[cosines.size() / 8], bound.most) << "of " << cosines.size() << " positions";
}

// Compares the residual stream with another run's after every layer, and puts the other's in its
// place: each layer begins from the same numbers, so that what it does shows by itself.
class LayerByLayer : public HiddenObserver {
 public:
  explicit LayerByLayer(const std::map<int64_t, std::vector<float>>& expected)
      : expected_(expected) {}

  void hidden_state(Encoder& encoder, int64_t layer, Tensor hidden) override {
    std::vector<float> values(static_cast<size_t>(hidden.num_elements()));
    ASSERT_TRUE(encoder.read(std::as_writable_bytes(std::span(values)), hidden).ok());
    std::vector<double>& cosines = cosines_[layer];
    const auto width = static_cast<size_t>(hidden.dim(1));
    const auto same = std::span(expected_.at(layer)).subspan(cosines.size() * width, values.size());
    for (size_t at = 0; at < values.size(); at += width) {
      cosines.push_back(cosine(std::span(values).subspan(at, width), same.subspan(at, width)));
    }
    encoder.write(hidden, std::as_bytes(same));
  }
  /// By layer, of each position.
  const std::map<int64_t, std::vector<double>>& cosines() const { return cosines_; }

 private:
  const std::map<int64_t, std::vector<float>>& expected_;
  std::map<int64_t, std::vector<double>> cosines_;
};

class Int8Golden : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::string folder = golden_folder(GetParam());
    write_quantized_copy(folder, quantized_.path(), twin_.path(), {});
    tokens_ = read_golden(folder + "/golden.safetensors")["tokens"].ints;
    ASSERT_GT(tokens_.size(), 8u);
    chunks_ = {static_cast<int64_t>(tokens_.size()) - 8, 1};
    reference_ = run({.device = "reference",
                      .hidden_states = true,
                      .record_routes = !is_dense(GetParam()),
                      .record_keys = &keys_});
    ASSERT_EQ(reference_.routes.has_value(), !is_dense(GetParam()));
    ASSERT_EQ(keys_.empty(), !kFamiliesThatChooseKeys.contains(GetParam()));
  }
  RunOutput run(RunOptions options) {
    options.chunks = chunks_;
    return run_model(quantized_.path(), tokens_, options);
  }

  /// The routes of the reference; null without routers.
  const RouteTrace* routes() const { return reference_.routes ? &*reference_.routes : nullptr; }

  TempFolder quantized_;
  TempFolder twin_;
  std::vector<TokenId> tokens_;
  std::vector<int64_t> chunks_;  // a prompt, and eight decoded
  RunOutput reference_;
  KeyChoices keys_;
};

TEST_P(Int8Golden, EachLayerAgreesGivenTheReferencesInput) {
  LayerByLayer layers(reference_.hidden_states);
  const RunOutput output = run({.precision = Precision::kInt8,
                                .observer = &layers,
                                .forced_routes = routes(),
                                .forced_keys = &keys_});
  ASSERT_EQ(output.logits.size(), reference_.logits.size());
  ASSERT_EQ(layers.cosines().size(), reference_.hidden_states.size());
  for (const auto& [layer, cosines] : layers.cosines()) {
    SCOPED_TRACE(formatted("after layer {}", layer));
    expect_cosines(cosines, bound_of(kLayerBounds, GetParam()));
  }
}

TEST_P(Int8Golden, LogitsAgreeOnTheReferencesRoutesAndKeys) {
  const RunOutput output =
      run({.precision = Precision::kInt8, .forced_routes = routes(), .forced_keys = &keys_});
  ASSERT_EQ(output.logits.size(), reference_.logits.size());
  std::vector<double> cosines;
  for (int64_t i = 0; i < static_cast<int64_t>(tokens_.size()); ++i) {
    cosines.push_back(cosine(output.row(i), reference_.row(i)));
  }
  expect_cosines(cosines, bound_of(kLogitBounds, GetParam()));
}

TEST_P(Int8Golden, DefaultPrecisionIsOneOfThoseThatAreTested) {
  const auto chosen = chosen_precision({.precision = Precision::kAuto});
  ASSERT_TRUE(chosen.ok()) << chosen.error().to_string();
  const RunOutput by_default = run({.precision = Precision::kAuto});
  ASSERT_FALSE(by_default.logits.empty());
  EXPECT_EQ(by_default.logits, run({.precision = *chosen}).logits);
  const Precision other = *chosen == Precision::kInt8 ? Precision::kF32 : Precision::kInt8;
  EXPECT_NE(by_default.logits, run({.precision = other}).logits);
}

TEST_P(Int8Golden, ChunksCacheSizeAndThreadsDoNotChangeABit) {
  const RunOutput whole = run_model(quantized_.path(), tokens_, {.precision = Precision::kInt8});
  ASSERT_FALSE(whole.logits.empty());
  for (const int threads : {1, 3}) {
    const RunOutput cut = run_model(quantized_.path(), tokens_,
                                    {.precision = Precision::kInt8,
                                     .threads = threads,
                                     .expert_cache_bytes = uint64_t{0},
                                     .chunks = {3, 1, 30, 1}});
    EXPECT_EQ(cut.logits, whole.logits) << threads << " threads";
  }
}

TEST_P(Int8Golden, PlainWeightsMeetFloats) {
  const std::string folder = golden_folder(GetParam());
  const RunOutput floats = run_model(folder, tokens_, {});
  ASSERT_FALSE(floats.logits.empty());
  EXPECT_EQ(run_model(folder, tokens_, {.precision = Precision::kInt8}).logits, floats.logits);
}

INSTANTIATE_TEST_SUITE_P(All, Int8Golden, ::testing::ValuesIn(asked(golden_families())),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace moeflux::testing
