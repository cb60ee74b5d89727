// Chooses the files of a model folder that become its tokenizer.
#include "chat/model_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

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
  write_bytes(folder / "config.json", "{}");
  expect_error(load_tokenizer(folder.path()), ErrorCode::kNotFound,
               {folder.path(), "tokenizer.json", "tiktoken.model"});
  copy_ranks(folder);
  expect_error(load_tokenizer(folder.path()), ErrorCode::kNotFound, {"tokenizer_config.json"});
  copy_config(folder);
  write_bytes(folder / "tiktoken.model", "YQ== 0\nYQ== x\n");
  expect_error(load_tokenizer(folder.path()), ErrorCode::kCorruption, {"tiktoken.model", "line 2"});
}

std::vector<TokenId> stops_of(const std::string& path) {
  const auto text = load_model_text(path);
  EXPECT_TRUE(text.ok()) << text.error().to_string();
  if (!text.ok()) return {};
  std::vector<TokenId> stops = text->defaults.stop_tokens;
  std::ranges::sort(stops);
  return stops;
}

// It has <|endoftext|> 0, <|im_end|> 700, <mask> 701, <pad> 702 and <think> 704.
void copy_tokenizer(const TempFolder& folder) {
  write_bytes(folder / "tokenizer.json", read_bytes(kGolden + "qwen2.tokenizer.json"));
}

using Ids = std::vector<TokenId>;

TEST(LoadModelText, EndsOfATextAreUnitedFromEveryPlaceThatNamesOne) {
  const TempFolder folder;
  copy_tokenizer(folder);
  EXPECT_EQ(stops_of(folder.path()), (Ids{0, 700}));
  write_bytes(folder / "config.json",
              R"({"eos_token_id": 5, "text_config": {"eos_token_id": [6, -1]}})");
  EXPECT_EQ(stops_of(folder.path()), (Ids{0, 5, 6, 700}));
  write_bytes(folder / "generation_config.json", R"({"eos_token_id": [7, 4294967295]})");
  EXPECT_EQ(stops_of(folder.path()), (Ids{0, 5, 6, 7, 700}));
  write_bytes(folder / "tokenizer_config.json", R"({"eos_token": "<mask>", "eot_token": "none"})");
  EXPECT_EQ(stops_of(folder.path()), (Ids{0, 5, 6, 7, 700, 701}));
  write_bytes(folder / "special_tokens_map.json",
              R"({"eos_token": {"content": "<pad>", "special": true}, "eom_token": "<think>"})");
  EXPECT_EQ(stops_of(folder.path()), (Ids{0, 5, 6, 7, 700, 701, 702, 704}));
}

TEST(LoadModelText, EndsOfModelsOfPiecesAndRanksAreTheirOwn) {
  const TempFolder pieces;
  write_bytes(pieces / "tokenizer.model",
              read_bytes(kGolden + "sentencepiece-plain.tokenizer.model"));
  EXPECT_EQ(stops_of(pieces.path()), (Ids{2, 4}));  // </s> by its id, <|im_end|> by its name
  const TempFolder ranks;
  copy_ranks(ranks);
  copy_config(ranks);
  const auto tokenizer = load_tokenizer(ranks.path());
  ASSERT_TRUE(tokenizer.ok());
  for (const char* name : {"[EOS]", "<|im_end|>", "[EOT]"}) {
    const auto id = tokenizer->find(name);
    if (!id) continue;
    EXPECT_TRUE(std::ranges::count(stops_of(ranks.path()), *id) == 1) << name;
  }
}

}  // namespace
}  // namespace moeflux
