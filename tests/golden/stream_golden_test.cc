// Families whose residual has several streams: what each layer leaves in all of them, and what the
// head sees of them, on every device that computes by itself.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/golden_families.h"
#include "tests/support/golden_file.h"
#include "tests/support/run_model.h"

namespace moeflux::testing {
namespace {

// As that of hidden states.
constexpr double kStreamTolerance = 1e-3;
// As many as let every kind of layer leave keys out.
constexpr size_t kEmulatedTokens = 22;

class StreamGolden : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  void SetUp() override {
    if (const std::string missing = missing_gpu(device()); !missing.empty()) {
      GTEST_SKIP() << "hardware: " << missing;
    }
    golden_ = read_golden(folder() + "/golden.safetensors");
    ASSERT_TRUE(golden_.contains("streams") && golden_.contains("collapsed"));
  }
  std::string folder() const { return golden_folder(std::get<0>(GetParam())); }
  const std::string& device() const { return std::get<1>(GetParam()); }

  std::map<std::string, GoldenTensor> golden_;
};

TEST_P(StreamGolden, EveryStreamAfterEveryLayerAndWhatTheHeadSeesAgree) {
  const GoldenTensor& streams = golden_["streams"];  // [layers + 1, tokens, streams * hidden]
  const GoldenTensor& collapsed = golden_["collapsed"];
  std::span<const TokenId> tokens = golden_["tokens"].ints;
  if (device().starts_with("emulator")) tokens = tokens.first(kEmulatedTokens);
  const RunOutput run = run_model(
      folder(), tokens,
      {.device = device(), .cache_type = DType::kF32, .chunks = {17, 1, 4}, .hidden_states = true});
  ASSERT_EQ(run.hidden_states.size(), static_cast<size_t>(streams.shape[0]) + 1);
  for (const auto& [layer, seen] : run.hidden_states) {
    const bool is_last = layer == streams.shape[0];
    const GoldenTensor& of = is_last ? collapsed : streams;
    const auto width = static_cast<size_t>(of.shape.back());
    const size_t begin = is_last ? 0 : static_cast<size_t>(layer * streams.shape[1]) * width;
    ASSERT_EQ(seen.size(), tokens.size() * width);
    EXPECT_LE(max_abs_difference(seen, std::span(of.floats).subspan(begin, seen.size())),
              kStreamTolerance)
        << (is_last ? "before the head" : "before layer ") << layer;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, StreamGolden,
    ::testing::Combine(::testing::ValuesIn(asked(families_of_several_streams())),
                       ::testing::ValuesIn(and_built_gpus({"reference", "cpu", "emulator",
                                                           "emulator with matrix units"}))),
    [](const auto& test) {
      return std::get<0>(test.param) + "_" + test_name_of(std::get<1>(test.param));
    });

}  // namespace
}  // namespace moeflux::testing
