// Embeddings through the public interface.
#include <cmath>
#include <cstring>

#include "tests/library/library_model.h"

namespace moeflux::testing {
namespace {

constexpr size_t kWidth = 256;

class Embed : public LibraryTest {
 protected:
  static float length_of(std::span<const float> vector) {
    float squares = 0.0f;
    for (const float number : vector) squares += number * number;
    return std::sqrt(squares);
  }
};

TEST_F(Embed, EachVectorHasLengthOneAndTheBitsThatItHasAlone) {
  const std::vector<std::string> texts = {"A fox", "Once upon a time there was", "A"};
  const std::vector<float> all = take(model_.embed(texts));
  ASSERT_EQ(all.size(), texts.size() * kWidth);
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto one = std::span(all).subspan(i * kWidth, kWidth);
    EXPECT_NEAR(length_of(one), 1.0f, 1e-5f);
    EXPECT_EQ(take(model_.embed(std::span(texts).subspan(i, 1))),
              std::vector<float>(one.begin(), one.end()));
  }
  const std::vector<float> cut = take(model_.embed(texts, {.dimensions = 16}));
  ASSERT_EQ(cut.size(), texts.size() * 16);
  EXPECT_NEAR(length_of(std::span(cut).first(16)), 1.0f, 1e-5f);
  EXPECT_NE(take(model_.embed(texts, {.pooling = "mean"})), all);
  EXPECT_TRUE(take(model_.embed({})).empty());
  EXPECT_EQ(take(model_.embedding_width()), kWidth);
  EXPECT_EQ(take(model_.embedding_width({.dimensions = 16})), 16u);
}

TEST_F(Embed, ImpossibleCallsSayWhatIsWrong) {
  const std::vector<std::string> texts = {"A fox"};
  expect_error(model_.embed(texts, {.dimensions = 257}), Code::kInvalidArgument,
               {"dimensions is 257", "256"});
  expect_error(model_.embed(texts, {.pooling = "max"}), Code::kInvalidArgument, {"'max'", "mean"});
  expect_error(model_.embed(texts, {.prompt_name = "query"}), Code::kInvalidArgument,
               {"prompt_name", "have none"});
  expect_error(model_.embed(std::vector<std::string>{"a", ""}), Code::kInvalidArgument,
               {"text 1", "no tokens"});
  std::string long_text;
  for (int i = 0; i < 300; ++i) long_text += "one two ";
  expect_error(model_.embed(std::vector<std::string>{long_text}), Code::kResourceExhausted,
               {"text 0", "context"});
}

TEST_F(Embed, TheSizeOfABufferIsToldBeforeAnythingIsEvaluated) {
  const mf_text texts[2] = {{"A fox", 5}, {"A", 1}};
  size_t dimensions = 0;
  mf_error error;
  const uint64_t before = take(model_.metrics()).evaluated_tokens;
  EXPECT_EQ(mf_model_embed(model_.get(), texts, 2, nullptr, nullptr, 0, &dimensions, &error),
            MF_ERROR_BUFFER_TOO_SMALL);
  EXPECT_EQ(dimensions, kWidth);
  EXPECT_NE(std::strstr(error.message, "2 embeddings of 256"), nullptr) << error.message;
  EXPECT_EQ(take(model_.metrics()).evaluated_tokens, before);
  std::vector<float> room(2 * kWidth);
  EXPECT_EQ(mf_model_embed(model_.get(), texts, 2, nullptr, room.data(), room.size(), &dimensions,
                           &error),
            MF_OK);
  EXPECT_GT(take(model_.metrics()).evaluated_tokens, before);
  EXPECT_EQ(mf_model_embed(nullptr, texts, 2, nullptr, nullptr, 0, &dimensions, &error),
            MF_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(mf_model_embed(model_.get(), nullptr, 2, nullptr, nullptr, 0, &dimensions, &error),
            MF_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(mf_model_embed(model_.get(), texts, 2, nullptr, nullptr, 9, &dimensions, &error),
            MF_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(mf_model_embed(model_.get(), texts, 2, nullptr, nullptr, 0, nullptr, &error),
            MF_ERROR_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace moeflux::testing
