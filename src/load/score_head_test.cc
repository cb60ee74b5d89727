#include "load/score_head.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/expect_error.h"
#include "tests/support/run_model.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace moeflux {
namespace {

using testing::expect_error;

class ScoreHeadTest : public ::testing::Test {
 protected:
  void add(const std::string& name, const Shape& shape, const std::vector<float>& numbers) {
    std::string bytes(numbers.size() * sizeof(float), '\0');
    std::memcpy(bytes.data(), numbers.data(), bytes.size());
    model_.tensors[name] = {.dtype = DType::kF32, .shape = shape, .bytes = std::move(bytes)};
  }
  Result<std::optional<ScoreHead>> read() {
    model_.write(folder_.path());
    loaded_ = load_model(folder_.path(), *device_, WeightLoading::kRead);
    EXPECT_TRUE(loaded_.ok()) << loaded_.error().to_string();
    return read_score_head(**loaded_);
  }
  int64_t width() const {
    const Json& config = model_.config;
    const Json& trunk = config.contains("text_config") ? config["text_config"] : config;
    return trunk["hidden_size"].get<int64_t>();
  }

  testing::TinyModel model_ = testing::make_tiny_model({});
  testing::TempFolder folder_;
  std::unique_ptr<Device> device_ = testing::make_test_device({});
  Result<std::unique_ptr<LoadedModel>> loaded_ = std::unique_ptr<LoadedModel>();
};

TEST_F(ScoreHeadTest, AModelWithoutOneHasNone) {
  const auto head = read();
  ASSERT_TRUE(head.ok());
  EXPECT_FALSE(*head);
}

TEST_F(ScoreHeadTest, ItsRowsAndBiasesGiveAScoreOfEachLabel) {
  std::vector<float> rows(static_cast<size_t>(2 * width()), 0.0f);
  rows[0] = 1.0f;
  rows[static_cast<size_t>(width()) + 1] = 2.0f;
  add("score.weight", {2, width()}, rows);
  add("score.bias", {2}, {0.5f, -0.5f});
  const auto head = read();
  ASSERT_TRUE(head.ok() && head->has_value());
  std::vector<float> hidden(static_cast<size_t>(width()), 0.0f);
  hidden[0] = 3.0f;
  hidden[1] = 4.0f;
  EXPECT_EQ((*head)->scores(hidden), (std::vector<double>{3.5, 7.5}));
}

TEST_F(ScoreHeadTest, OtherShapesAreRefusedByName) {
  add("score.weight", {2, 3}, std::vector<float>(6));
  expect_error(read(), ErrorCode::kUnsupported, {"score.weight", "columns"});
  add("score.weight", {1, width()}, std::vector<float>(static_cast<size_t>(width())));
  add("score.bias", {2}, {0.0f, 0.0f});
  expect_error(read(), ErrorCode::kUnsupported, {"score.bias", "expected 1"});
}

}  // namespace
}  // namespace moeflux
