// Rerankers in GGUF files: a pooling_type, labels, a template and a head of scores.
#include "chat/embedding/reranking.h"

#include <gtest/gtest.h>

#include <cmath>

#include "chat/embedding/embedding.h"
#include "tests/support/edited_gguf.h"
#include "tests/support/expect_error.h"
#include "tests/support/golden_file.h"
#include "tests/support/temp_folder.h"

namespace moeflux {
namespace {

using testing::expect_error;

class GgufRerankerTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kWidth = 64;

  GgufRerankerTest()
      : edited_(testing::tests_directory() + "/golden/formats/gguf-qwen3/model.gguf") {}

  void rank() { edited_.image().u32("qwen3.pooling_type", 4); }
  void add_labels(std::initializer_list<std::string_view> labels) {
    testing::GgufBytes bytes;
    bytes.number<uint32_t>(8).number<uint64_t>(labels.size());
    for (const std::string_view label : labels) bytes.string(label);
    edited_.image().key("qwen3.classifier.output_labels", 9, bytes.text());
  }
  void add_head(uint64_t labels) {
    std::vector<float> rows(labels * kWidth);
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i] = 0.1f * static_cast<float>(static_cast<int>(i * 7 % 11) - 5);
    }
    edited_.add_floats("cls.output.weight", {kWidth, labels}, rows);
    rows_ = std::move(rows);
  }
  Result<EmbeddingSpec> spec() {
    edited_.write(folder_ / "m.gguf");
    auto source = open_model_source(folder_ / "m.gguf");
    EXPECT_TRUE(source.ok()) << source.error().to_string();
    return read_embedding_spec(**source);
  }
  /// With the tokenizer of another model: the file has none.
  std::shared_ptr<OpenModel> open() {
    auto read = spec();
    EXPECT_TRUE(read.ok()) << read.error().to_string();
    ModelText text = load_model_text(std::string(MOEFLUX_SOURCE_DIR) + "/models/fable-20m").value();
    text.embedding = std::move(read);
    auto model = open_model(folder_ / "m.gguf", {.device = {.name = "reference"}}, std::move(text));
    EXPECT_TRUE(model.ok()) << model.error().to_string();
    return std::move(model).value();
  }

  testing::EditedGguf edited_;
  testing::TempFolder folder_;
  std::vector<float> rows_;
};

TEST_F(GgufRerankerTest, PoolingTypesAreThoseOfLlamaCpp) {
  const std::vector<std::pair<uint32_t, Pooling>> cases = {
      {0, Pooling::kLast}, {1, Pooling::kMean}, {2, Pooling::kCls}, {3, Pooling::kLast}};
  for (const auto& [type, pooling] : cases) {
    edited_.drop("qwen3.pooling_type").image().u32("qwen3.pooling_type", type);
    const auto read = spec();
    ASSERT_TRUE(read.ok()) << read.error().to_string();
    EXPECT_EQ(read->pooling, pooling) << type;
    EXPECT_TRUE(read->normalize);
    EXPECT_EQ(read->source, type == 0 ? "" : "qwen3.pooling_type");
  }
  edited_.drop("qwen3.pooling_type").image().u32("qwen3.pooling_type", 9);
  expect_error(spec(), ErrorCode::kUnsupported, {"m.gguf", "qwen3.pooling_type is 9"});
  edited_.drop("qwen3.pooling_type").image().text("qwen3.pooling_type", "mean");
  expect_error(spec(), ErrorCode::kCorruption, {"qwen3.pooling_type", "whole number"});
}

TEST_F(GgufRerankerTest, TheLabelYesOfTheHeadIsTheScore) {
  rank();
  add_labels({"no", "yes"});
  add_head(2);
  edited_.image().text("tokenizer.chat_template.rerank", "q {query} d {document}.");
  const auto model = open();
  const auto reranker = Reranker::create(*model, nullptr, false);
  ASSERT_TRUE(reranker.ok()) << reranker.error().to_string();
  EXPECT_EQ(*reranker->prompt("{document}", "a fox"),
            *model->text.tokenizer->encode("q {document} d a fox."));
  const std::vector<std::vector<TokenId>> prompts = {{1, 2, 3}, {9, 8}, {5}};
  const auto hidden = embed(*model, {.normalize = false}, prompts).value();
  const auto scores = reranker->score(*model, prompts, in_this_turn).value();
  for (size_t i = 0; i < prompts.size(); ++i) {
    double labels[2] = {0.0, 0.0};
    for (size_t j = 0; j < 2 * kWidth; ++j) {
      labels[j / kWidth] += static_cast<double>(rows_[j]) * hidden[i][j % kWidth];
    }
    EXPECT_NEAR(scores[i], 1.0 / (1.0 + std::exp(labels[0] - labels[1])), 1e-6) << i;
  }
}

TEST_F(GgufRerankerTest, OneRowIsOneScoreByThePublishedPrompt) {
  rank();
  add_head(1);
  const auto model = open();
  const auto reranker = Reranker::create(*model, nullptr, false);
  ASSERT_TRUE(reranker.ok()) << reranker.error().to_string();
  const auto tokens = reranker->prompt("a <|im_end|> fox", "the sea").value();
  EXPECT_NE(model->text.tokenizer->decode(tokens).find("<Query>: a <|im_end|> fox\n<Document>: "
                                                       "the sea<|im_end|>\n"),
            std::string::npos);
  const std::vector<std::vector<TokenId>> prompts = {{1, 2, 3}};
  const auto hidden = embed(*model, {.normalize = false}, prompts).value();
  double score = 0.0;
  for (size_t j = 0; j < kWidth; ++j) score += static_cast<double>(rows_[j]) * hidden[0][j];
  EXPECT_NEAR(reranker->score(*model, prompts, in_this_turn).value()[0],
              1.0 / (1.0 + std::exp(-score)), 1e-6);
}

TEST_F(GgufRerankerTest, FilesThatContradictThemselvesAreRefused) {
  rank();
  add_labels({"a", "b", "yes"});
  expect_error(Reranker::create(*open(), nullptr, false), ErrorCode::kNotFound,
               {"cls.output.weight"});
  add_head(2);
  expect_error(Reranker::create(*open(), nullptr, false), ErrorCode::kCorruption,
               {"cls.output.weight", "labels"});
  edited_.image().text("tokenizer.chat_template.rerank", "q {query}");
  expect_error(spec(), ErrorCode::kUnsupported, {"rerank has no {document}"});
}

TEST_F(GgufRerankerTest, AModelThatIsNoneIsOneOnlyWhereTheUserSaysSo) {
  const auto model = open();
  expect_error(Reranker::create(*model, nullptr, false), ErrorCode::kUnsupported,
               {"does not rerank", "--reranking"});
  const auto asked = Reranker::create(*model, nullptr, true);
  const Tokenizer& tokenizer = *model->text.tokenizer;
  EXPECT_EQ(asked.ok(), tokenizer.find("yes") && tokenizer.find("no") &&
                            *tokenizer.find("yes") < 256 && *tokenizer.find("no") < 256);
}

}  // namespace
}  // namespace moeflux
