// Which files of a model folder become its tokenizer.
#include "chat/model_text.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace moeflux {
namespace {

using testing::expect_error;
using testing::read_bytes;
using testing::TempFolder;
using testing::write_bytes;

const std::string kGolden = std::string(MOEFLUX_SOURCE_DIR) + "/tests/golden/tokenizer/";

void copy_ranks(const TempFolder& folder) {
  write_bytes(folder / "tiktoken.model", read_bytes(kGolden + "tiktoken-trained.tiktoken.model"));
}

void copy_config(const TempFolder& folder) {
  write_bytes(folder / "tokenizer_config.json",
              read_bytes(kGolden + "tiktoken-trained.tokenizer_config.json"));
}

TEST(LoadTokenizer, ReadsTheRanksOfAFolderWithoutTokenizerJson) {
  const TempFolder folder;
  copy_ranks(folder);
  copy_config(folder);
  const auto tokenizer = load_tokenizer(folder.path());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().to_string();
  EXPECT_EQ(tokenizer->find("[BOS]"), 698);
  EXPECT_EQ(tokenizer->vocab_size(), 698 + 256);
}

TEST(LoadTokenizer, ReadsThePiecesOfAFolderWithNothingElse) {
  const TempFolder folder;
  write_bytes(folder / "tokenizer.model",
              read_bytes(kGolden + "sentencepiece-plain.tokenizer.model"));
  const auto tokenizer = load_tokenizer(folder.path());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().to_string();
  EXPECT_EQ(tokenizer->find("<|im_end|>"), 4);
  EXPECT_EQ(tokenizer->decode(*tokenizer->encode("Hello, world.")), "Hello, world.");
}

TEST(LoadTokenizer, PrefersTokenizerJson) {
  const TempFolder folder;
  copy_ranks(folder);
  copy_config(folder);
  write_bytes(folder / "tokenizer.json", read_bytes(kGolden + "qwen2.tokenizer.json"));
  const auto tokenizer = load_tokenizer(folder.path());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().to_string();
  EXPECT_FALSE(tokenizer->find("[BOS]").has_value());
}

TEST(LoadTokenizer, NamesTheFileThatIsMissingOrBroken) {
  const TempFolder folder;
  expect_error(load_tokenizer(folder.path()), ErrorCode::kNotFound,
               {folder.path(), "tokenizer.json", "tiktoken.model"});
  copy_ranks(folder);
  expect_error(load_tokenizer(folder.path()), ErrorCode::kNotFound, {"tokenizer_config.json"});
  copy_config(folder);
  write_bytes(folder / "tiktoken.model", "YQ== 0\nYQ== x\n");
  expect_error(load_tokenizer(folder.path()), ErrorCode::kCorruption, {"tiktoken.model", "line 2"});
}

}  // namespace
}  // namespace moeflux
