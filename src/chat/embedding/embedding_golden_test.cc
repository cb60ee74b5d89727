// Embeddings against transformers' numbers, and their bits alone and in company.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "chat/embedding/embedding.h"
#include "tests/support/expect_error.h"
#include "tests/support/golden_families.h"
#include "tests/support/golden_file.h"

namespace moeflux {
namespace {

using testing::GoldenTensor;
using Vectors = std::vector<std::vector<float>>;
using Texts = std::vector<std::vector<TokenId>>;

constexpr double kTolerance = 1e-3;
constexpr double kCosineLeast = 0.999999;

std::shared_ptr<OpenModel> open(const std::string& model, const std::string& device,
                                int64_t chunk = 0) {
  auto opened = open_model(
      testing::golden_folder(model),
      {.device = {.name = device, .threads = 2, .precision = device == "cpu" ? "f32" : "auto"},
       .engine = {.reader_threads = 1,
                  .prefill_chunk = chunk,
                  .cache_type_k = DType::kF32,
                  .cache_type_v = DType::kF32}});
  EXPECT_TRUE(opened.ok()) << opened.error().to_string();
  return std::move(opened).value();
}

Vectors embed_all(OpenModel& model, const Texts& texts, Pooling pooling = Pooling::kLast,
                  int64_t dimensions = 0) {
  auto vectors = embed(model, {.pooling = pooling}, texts, {.dimensions = dimensions});
  EXPECT_TRUE(vectors.ok()) << vectors.error().to_string();
  return std::move(vectors).value();
}

class EmbeddingGolden : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  void SetUp() override {
    const auto& [model, device] = GetParam();
    model_ = open(model, device);
    golden_ = testing::read_golden(testing::golden_folder(model) + "/golden.safetensors");
  }
  std::vector<TokenId> prefix(size_t length) {
    const std::vector<int32_t>& tokens = golden_["tokens"].ints;
    return {tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(length)};
  }
  static void expect_near(std::span<const float> found, std::span<const float> expected) {
    ASSERT_EQ(found.size(), expected.size());
    EXPECT_LE(testing::max_abs_difference(found, expected), kTolerance);
    EXPECT_GE(testing::cosine(found, expected), kCosineLeast);
  }
  // The last layer's, behind the final norm.
  std::span<const float> hidden_row(size_t position) {
    const GoldenTensor& hidden = golden_["hidden_states"];
    return hidden.row((hidden.shape[0] - 1) * hidden.shape[1] + static_cast<int64_t>(position));
  }

  std::shared_ptr<OpenModel> model_;
  std::map<std::string, GoldenTensor> golden_;
};

TEST_P(EmbeddingGolden, TheLastTokensStateIsTheEmbeddingOfEachPrefix) {
  Texts texts;
  for (const int32_t length : golden_["embedding_lengths"].ints) {
    texts.push_back(prefix(static_cast<size_t>(length)));
  }
  ASSERT_EQ(texts.size(), 4u);
  const Vectors vectors = embed_all(*model_, texts);
  for (size_t i = 0; i < texts.size(); ++i) {
    expect_near(vectors[i], golden_["embeddings"].row(static_cast<int64_t>(i)));
  }
  expect_near(vectors.back(), golden_["embedding"].floats);
  expect_near(embed_all(*model_, {texts.back()}, Pooling::kLast, 32)[0],
              golden_["embedding_first32"].floats);
}

TEST_P(EmbeddingGolden, MeanAndFirstStateAreThoseOfTheHiddenStates) {
  const size_t length = 20;
  const auto width = static_cast<size_t>(model_->engine->spec().hidden_size);
  std::vector<double> sum(width, 0.0);
  for (size_t position = 0; position < length; ++position) {
    for (size_t i = 0; i < width; ++i) sum[i] += static_cast<double>(hidden_row(position)[i]);
  }
  double squares = 0.0;
  for (const double number : sum) squares += number * number;
  std::vector<float> mean;
  for (const double number : sum) mean.push_back(static_cast<float>(number / std::sqrt(squares)));
  expect_near(embed_all(*model_, {prefix(length)}, Pooling::kMean)[0], mean);
  const std::vector<float> first = embed_all(*model_, {prefix(length)}, Pooling::kCls)[0];
  EXPECT_GE(testing::cosine(first, hidden_row(0)), kCosineLeast);
}

INSTANTIATE_TEST_SUITE_P(All, EmbeddingGolden,
                         ::testing::Combine(::testing::Values("qwen3", "qwen3_embedding"),
                                            ::testing::Values("reference", "cpu")),
                         [](const auto& test) {
                           return std::get<0>(test.param) + "_" + std::get<1>(test.param);
                         });

// Random models of all families: the state behind the last norm is the one that the head sees.
TEST(Embedding, EveryFamilyGivesItsLastHiddenState) {
  std::vector<std::string> of_several = testing::families_of_several_streams();
  for (const std::string& family : testing::golden_families()) {
    const auto model = open(family, "reference");
    auto golden = testing::read_golden(testing::golden_folder(family) + "/golden.safetensors");
    const std::vector<int32_t>& tokens = golden["tokens"].ints;
    const Texts texts = {{tokens.begin(), tokens.begin() + 4}};
    const std::vector<float> vector = embed_all(*model, texts)[0];
    double squares = 0.0;
    for (const float number : vector) squares += static_cast<double>(number) * number;
    EXPECT_NEAR(squares, 1.0, 1e-5) << family;
    if (std::ranges::find(of_several, family) != of_several.end()) continue;
    const GoldenTensor& hidden = golden["hidden_states"];
    EXPECT_GE(testing::cosine(vector, hidden.row((hidden.shape[0] - 1) * hidden.shape[1] + 3)),
              0.9999)
        << family;
  }
}

// The company changes which texts share a step, where chunks end and the order of rows.
TEST(Embedding, ItsBitsDependOnItsTextAlone) {
  Texts texts;
  for (const size_t length : {5, 1, 17, 40, 2, 9, 30}) {
    texts.emplace_back();
    for (size_t i = 0; i < length; ++i) {
      texts.back().push_back(static_cast<TokenId>((i * 37 + length * 11) % 256));
    }
  }
  for (const char* name : {"qwen3_embedding", "qwen3_moe"}) {
    for (const char* device : {"reference", "cpu", "emulator"}) {
      const auto model = open(name, device, 64);
      const auto narrow = open(name, device, 8);
      for (const Pooling pooling : {Pooling::kLast, Pooling::kMean}) {
        const Vectors together = embed_all(*model, texts, pooling);
        EXPECT_EQ(embed_all(*narrow, texts, pooling), together) << name << ", " << device;
        for (size_t i = 0; i < texts.size(); ++i) {
          EXPECT_EQ(embed_all(*model, {texts[i]}, pooling)[0], together[i])
              << name << ", " << device << ", text " << i;
        }
        if (std::string(device) == "emulator") break;  // an emulated step takes long
      }
    }
  }
}

TEST(Embedding, ImpossibleDimensionsAndTextsAreRefused) {
  const auto model = open("qwen3_embedding", "reference");
  testing::expect_error(embed(*model, {}, Texts{{1, 2}}, {.dimensions = 65}),
                        ErrorCode::kInvalidArgument, {"dimensions is 65", "has 64"});
  testing::expect_error(embed(*model, {}, Texts{{1, 2}, {1, 300}}), ErrorCode::kInvalidArgument,
                        {"text 1", "token 300"});
  testing::expect_error(embed(*model, {}, Texts{std::vector<TokenId>(600, 1)}),
                        ErrorCode::kResourceExhausted, {"text 0", "do not fit the context"});
  EXPECT_TRUE(embed(*model, {}, Texts{}).value().empty());
}

}  // namespace
}  // namespace moeflux
