// Vocabularies as people's GGUF files have them, odd keys and all.
#include "chat/gguf_vocabulary.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "chat/model_text.h"
#include "tests/support/expect_error.h"
#include "tests/support/gguf_bytes.h"
#include "tests/support/temp_folder.h"
#include "text/encoding/byte_alphabet.h"

namespace moeflux {
namespace {

using testing::expect_error;
using testing::GgufBytes;
using testing::GgufImage;
using testing::read_bytes;
using testing::small_gguf;
using testing::TempFolder;
using testing::write_bytes;

constexpr uint32_t kArray = 9;
constexpr uint32_t kOfI32 = 5;
constexpr uint32_t kOfText = 8;
constexpr uint32_t kAbsent = 4294967295u;

std::string texts(const std::vector<std::string>& all) {
  GgufBytes bytes;
  bytes.number<uint32_t>(kOfText).number<uint64_t>(all.size());
  for (const std::string& text : all) bytes.string(text);
  return bytes.text();
}

std::string ints(const std::vector<int32_t>& all) {
  GgufBytes bytes;
  bytes.number<uint32_t>(kOfI32).number<uint64_t>(all.size());
  for (const int32_t number : all) bytes.number(number);
  return bytes.text();
}

// The 256 bytes, <s>, <stop> and <|im_end|>, without types.
GgufImage image_of_bytes() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    tokens.push_back(spelling_of_bytes(std::string_view(&c, 1)));
  }
  tokens.insert(tokens.end(), {"<s>", "<stop>", "<|im_end|>"});
  GgufImage image = small_gguf();
  image.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", "smollm");
  image.key("tokenizer.ggml.tokens", kArray, texts(tokens));
  image.key("tokenizer.ggml.merges", kArray, texts({}));
  return image;
}

Result<Tokenizer> load(const GgufImage& image) {
  const TempFolder folder;
  write_bytes(folder / "m.gguf", image.bytes());
  return load_tokenizer(folder / "m.gguf");
}

using Ids = std::vector<TokenId>;

TEST(GgufVocabulary, IdsOfMinusOneAreAbsent) {
  GgufImage image = image_of_bytes();
  for (const char* name : {"bos", "eos", "eot", "eom", "unknown", "padding", "fim_pad"}) {
    image.u32(std::string("tokenizer.ggml.") + name + "_token_id", kAbsent);
  }
  const auto tokenizer = load(image);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().to_string();
  EXPECT_EQ(tokenizer->end_tokens(), (Ids{258}));  // by its name
  EXPECT_EQ(*tokenizer->encode("a", {.add_special_tokens = true}), (Ids{'a'}));
}

TEST(GgufVocabulary, EveryKeyThatNamesAnEndCounts) {
  GgufImage image = image_of_bytes();
  image.u32("tokenizer.ggml.eos_token_id", 257).u32("tokenizer.ggml.eot_token_id", 3);
  image.u32("tokenizer.ggml.eom_token_id", 2).u32("tokenizer.ggml.fim_sep_token_id", 5);
  image.key("tokenizer.ggml.eos_token_ids", kArray, ints({257, 7, -1}));
  const auto tokenizer = load(image);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().to_string();
  EXPECT_EQ(tokenizer->end_tokens(), (Ids{2, 3, 5, 7, 257, 258}));
}

TEST(GgufVocabulary, TypesOfZeroAreNormal) {
  GgufImage image = image_of_bytes();
  image.key("tokenizer.ggml.token_type", kArray, ints(std::vector<int32_t>(259, 0)));
  const auto tokenizer = load(image);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().to_string();
  EXPECT_EQ(*tokenizer->encode("a<|im_end|>"), (Ids{'a', 258}));
}

TEST(GgufVocabulary, ListsOfAnotherLengthNameFileAndKey) {
  GgufImage image = image_of_bytes();
  image.key("tokenizer.ggml.token_type", kArray, ints({1, 1}));
  expect_error(load(image), ErrorCode::kCorruption,
               {"m.gguf", "tokenizer.ggml.token_type has 2 entries for 259 tokens"});
  image = image_of_bytes();
  image.keys.pop_back();
  expect_error(load(image), ErrorCode::kCorruption, {"tokenizer.ggml.merges is absent"});
}

TEST(GgufVocabulary, AFileWithoutItsPreTokenizerOpensWithAWarning) {
  GgufImage image = image_of_bytes();
  image.keys.erase(image.keys.begin() + 2);
  const auto tokenizer = load(image);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().to_string();
  EXPECT_TRUE(tokenizer->warning().starts_with("tokenizer.ggml.pre is absent"))
      << tokenizer->warning();
  EXPECT_EQ(*tokenizer->encode("ab"), (Ids{'a', 'b'}));
}

TEST(GgufVocabulary, AnUnknownPreTokenizerIsNamed) {
  GgufImage image = image_of_bytes();
  image.keys.erase(image.keys.begin() + 2);
  image.text("tokenizer.ggml.pre", "mine");
  expect_error(load(image), ErrorCode::kUnsupported,
               {"m.gguf", "tokenizer.ggml.pre is \"mine\", expected a name"});
}

// A model with these keys behind its own. Their length keeps tensors where they are aligned.
std::string with_keys(std::string bytes, GgufImage more) {
  size_t size = 0;
  for (const std::string& key : more.keys) size += key.size();
  constexpr size_t kFillerBytes = 8 + 14 + 4 + 8;
  more.text("general.filler", std::string(32 - (size + kFillerBytes) % 32, ' '));
  std::string all;
  for (const std::string& key : more.keys) all += key;
  EXPECT_EQ(all.size() % 32, 0u);
  uint64_t count = 0;
  std::memcpy(&count, bytes.data() + 16, sizeof(count));
  count += more.keys.size();
  std::memcpy(bytes.data() + 16, &count, sizeof(count));
  return bytes.insert(24, all);
}

// As converters leave it: the end is user-defined or normal, and no key names it.
TEST(GgufVocabulary, AnEndNeedsNoKeyAndNoType) {
  const std::string model =
      read_bytes(std::string(MOEFLUX_SOURCE_DIR) + "/tests/golden/formats/gguf-dots1/model.gguf");
  for (const int32_t kind : {0, 1, 3, 4}) {
    GgufImage image = image_of_bytes();
    image.keys.erase(image.keys.begin());  // the model has an architecture
    std::vector<int32_t> kinds(259, 1);
    kinds[258] = kind;
    image.key("tokenizer.ggml.token_type", kArray, ints(kinds));
    image.u32("tokenizer.ggml.eos_token_id", 257);
    const TempFolder folder;
    write_bytes(folder / "m.gguf", with_keys(model, image));
    const auto text = load_model_text(folder / "m.gguf");
    ASSERT_TRUE(text.ok()) << text.error().to_string();
    EXPECT_EQ(text->defaults.stop_tokens, (Ids{257, 258})) << kind;
    EXPECT_EQ(*text->tokenizer->encode("<|im_end|>"), (Ids{258})) << kind;
    EXPECT_EQ(text->tokenizer->decode(Ids{'a', 258}, {.skip_special = true}), "a") << kind;
  }
}

}  // namespace
}  // namespace moeflux
