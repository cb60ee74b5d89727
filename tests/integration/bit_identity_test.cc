// The size of the expert cache and the number of threads change no bit of the logits.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/integration/moeflux_program.h"
#include "tests/support/golden_file.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {
namespace {

// Any tokens will do for bits.
const std::string kAnyTokens = "430,1,77,8191,0,12,300,4096,5,5,5,2048,999,31,7,640";

std::string bf16_model() {
  return std::string(MOEFLUX_SOURCE_DIR) + "/../shared/models/fable-20m-bf16";
}

struct Knobs {
  std::string expert_cache = "1GiB";
  int threads = 2;
  std::string precision = "f32";
};

GoldenTensor logits(const std::string& model, const std::string& tokens, const Knobs& knobs) {
  const TempFolder folder;
  const ProgramOutput output = moeflux({"logits", "-m", model, "--tokens", tokens, "--expert-cache",
                                        knobs.expert_cache, "-t", std::to_string(knobs.threads),
                                        "--precision", knobs.precision, "-o", folder / "logits"});
  EXPECT_EQ(output.status, 0) << output.err;
  return output.status == 0 ? read_golden(folder / "logits")["logits"] : GoldenTensor{};
}

void expect_the_same_bits_whatever_the_knobs(const std::string& model) {
  for (const std::string precision : {"f32", "int8"}) {
    const GoldenTensor expected = logits(model, kAnyTokens, {.precision = precision});
    ASSERT_EQ(expected.floats.size(), size_t{16} * 8192);
    for (const std::string cache : {"0", "1MiB", "4MiB", "1GiB"}) {
      for (const int threads : {1, 2, 3}) {
        EXPECT_EQ(logits(model, kAnyTokens, {cache, threads, precision}).floats, expected.floats)
            << precision << ", cache " << cache << ", threads " << threads;
      }
    }
  }
}

TEST(BitIdentity, EmbeddedModel) { expect_the_same_bits_whatever_the_knobs(fable()); }

TEST(BitIdentity, ModelInThreeShardsWithFusedExperts) {
  if (!std::filesystem::exists(bf16_model() + "/config.json")) {
    GTEST_SKIP() << "no fable-20m-bf16 beside the source tree";
  }
  expect_the_same_bits_whatever_the_knobs(bf16_model());
}

TEST(BitIdentity, FourBitsAgreeWithSixteenInDirection) {
  if (!std::filesystem::exists(bf16_model() + "/config.json")) {
    GTEST_SKIP() << "no fable-20m-bf16 beside the source tree";
  }
  // Of the kind the model has learnt; on random tokens the two stray further apart.
  const ProgramOutput text = moeflux(
      {"tokenize", "--ids",
       "Once upon a time there was a king who had three sons. The eldest went out into the world "
       "to seek his fortune, and he came to a great forest."});
  ASSERT_EQ(text.status, 0) << text.err;
  const std::string tokens = text.out.substr(0, text.out.size() - 1);
  const GoldenTensor four = logits(fable(), tokens, {});
  const GoldenTensor sixteen = logits(bf16_model(), tokens, {});
  ASSERT_EQ(four.rows(), sixteen.rows());
  ASSERT_GT(four.rows(), 20);
  for (int64_t i = 0; i < four.rows(); ++i) {
    EXPECT_GT(cosine(four.row(i), sixteen.row(i)), 0.98) << "position " << i;
  }
}

}  // namespace
}  // namespace moeflux::testing
