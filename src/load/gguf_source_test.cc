#include "load/gguf_source.h"

#include <gtest/gtest.h>

#include <limits>

#include "load/model_loader.h"
#include "tests/support/expect_error.h"
#include "tests/support/gguf_bytes.h"
#include "tests/support/temp_folder.h"

namespace moeflux {
namespace {

using testing::expect_error;
using testing::GgufBytes;
using testing::GgufImage;
using testing::small_gguf;
using testing::TempFolder;
using testing::write_bytes;

TEST(FindGguf, AFileIsItselfWhateverItsName) {
  const TempFolder folder;
  const std::string blob = folder / "sha256-0a1b";
  write_bytes(blob, small_gguf().bytes());
  EXPECT_EQ(**find_gguf(blob), blob);
  EXPECT_TRUE(check_model_folder(blob).ok());
  write_bytes(folder / "other.gguf", "not one");
  EXPECT_FALSE(find_gguf(folder / "other.gguf")->has_value());
  expect_error(open_model_source(folder / "other.gguf"), ErrorCode::kNotFound,
               {"other.gguf", "not a folder", "GGUF"});
}

TEST(FindGguf, AFolderHasOneOrOneSplitSet) {
  const TempFolder folder;
  EXPECT_FALSE(find_gguf(folder.path())->has_value());
  write_bytes(folder / "mmproj-m.gguf", "");
  write_bytes(folder / "config.json", "{}");
  EXPECT_FALSE(find_gguf(folder.path())->has_value());
  write_bytes(folder / "m-00002-of-00003.gguf", "");
  write_bytes(folder / "m-00001-of-00003.gguf", "");
  EXPECT_EQ(**find_gguf(folder.path()), folder / "m-00001-of-00003.gguf");
  write_bytes(folder / "n.gguf", "");
  expect_error(find_gguf(folder.path()), ErrorCode::kInvalidArgument,
               {folder.path(), "2 GGUF models", "m-00001-of-00003.gguf", "n.gguf"});
}

TEST(FindGguf, FilesBesideAModelAreNone) {
  const TempFolder folder;
  write_bytes(folder / "m.gguf", small_gguf().bytes());
  for (const char* name : {"._m.gguf", "mmproj-F16.gguf", "m.mmproj-q8.gguf", "imatrix.gguf",
                           "m-imatrix.gguf", "MMPROJ.gguf", "n.gguf.part"}) {
    write_bytes(folder / name, "");
  }
  EXPECT_EQ(**find_gguf(folder.path()), folder / "m.gguf");
  // Others say what they are, whatever their names.
  const auto other = [](const char* key, const char* value) {
    return GgufImage().text(key, value).bytes();
  };
  write_bytes(folder / "a.gguf", other("general.type", "mmproj"));
  write_bytes(folder / "b.gguf", other("general.type", "imatrix"));
  write_bytes(folder / "c.gguf", other("general.type", "adapter"));
  write_bytes(folder / "d.gguf", other("general.architecture", "clip"));
  EXPECT_EQ(**find_gguf(folder.path()), folder / "m.gguf");
  write_bytes(folder / "m-q8.gguf", small_gguf().bytes());
  expect_error(find_gguf(folder.path()), ErrorCode::kInvalidArgument,
               {"2 GGUF models", "m-q8.gguf, m.gguf", "name the file", folder / "m-q8.gguf"});
}

TEST(FindGguf, AFolderOfSafetensorsStaysOne) {
  const TempFolder folder;
  write_bytes(folder / "config.json", "{}");
  write_bytes(folder / "model.safetensors", "");
  write_bytes(folder / "keys.gguf", small_gguf().bytes());
  EXPECT_FALSE(find_gguf(folder.path())->has_value());
}

std::unique_ptr<ModelSource> open(const TempFolder& folder, const GgufImage& image) {
  write_bytes(folder / "m.gguf", image.bytes());
  auto source = open_model_source(folder.path());
  EXPECT_TRUE(source.ok()) << (source.ok() ? "" : source.error().to_string());
  return source.ok() ? std::move(source).value() : nullptr;
}

TEST(GgufSource, GivesTheTemplateAndTheSamplingOfTheFile) {
  const TempFolder folder;
  GgufImage image = small_gguf();
  image.text("tokenizer.chat_template", "{{ messages }}");
  image.text("tokenizer.chat_template.tool_use", "{{ tools }}");
  image.f32("general.sampling.temp", 0.8f).u32("general.sampling.top_k", 40);
  const auto source = open(folder, image);
  ASSERT_NE(source, nullptr);
  const auto chat = source->chat_templates();
  ASSERT_TRUE(chat.ok());
  EXPECT_EQ(chat->text, "{{ messages }}");
  EXPECT_EQ(chat->named.at("tool_use"), "{{ tools }}");
  EXPECT_EQ(**source->generation_config(), R"({"temperature":0.8,"top_k":40})");
  EXPECT_FALSE(*source->holds_tensors());
}

TEST(GgufSource, SamplingThatIsNotFiniteIsNamedWithItsKey) {
  const TempFolder folder;
  GgufImage image = small_gguf();
  image.f32("general.sampling.top_p", std::numeric_limits<float>::quiet_NaN());
  const auto source = open(folder, image);
  ASSERT_NE(source, nullptr);
  expect_error(source->generation_config(), ErrorCode::kCorruption,
               {"key general.sampling.top_p is nan, expected a finite number"});
}

TEST(GgufSource, AFileWithoutVocabularySaysSoWhereTextIsWanted) {
  const TempFolder folder;
  GgufImage image = small_gguf();
  image.text("tokenizer.ggml.model", "none");
  const auto source = open(folder, image);
  ASSERT_NE(source, nullptr);
  expect_error(source->tokenizer(), ErrorCode::kNotFound, {"m.gguf", "tokenizer.ggml.tokens"});
  EXPECT_FALSE(source->chat_templates()->text);
  EXPECT_FALSE(source->generation_config()->has_value());
}

TEST(GgufSource, AWholeTokenizerInTheFileIsPreferred) {
  const TempFolder folder;
  GgufImage image = small_gguf();
  image.text("tokenizer.huggingface.json", "{}");
  image.key("tokenizer.ggml.tokens", 9,
            GgufBytes().number<uint32_t>(8).number<uint64_t>(1).string("a").text());
  auto tokenizer = open(folder, image)->tokenizer();
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(tokenizer->kind, TokenizerText::Kind::kJson);
  EXPECT_EQ(tokenizer->text, "{}");
  image.keys.erase(image.keys.begin() + 1);
  tokenizer = open(folder, image)->tokenizer();
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(tokenizer->kind, TokenizerText::Kind::kGguf);
  EXPECT_NE(tokenizer->gguf->keys().find("tokenizer.ggml.tokens"), nullptr);
}

}  // namespace
}  // namespace moeflux
