#include "checkpoint/tensor_index.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/format.h"
#include "checkpoint/safetensors.h"

namespace moeflux {
namespace {

class TensorIndexTest : public ::testing::Test {
 protected:
  TensorIndexTest() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = ::testing::TempDir() + "moeflux_index_" + std::to_string(::getpid()) + info->name();
    std::filesystem::create_directories(folder_);
  }
  ~TensorIndexTest() override { std::filesystem::remove_all(folder_); }

  /// A shard whose tensors are U8 [4] and filled with the first letter of their name.
  void write_shard(std::string_view name, const std::vector<std::string>& tensors) {
    std::vector<std::vector<std::byte>> data;
    for (const std::string& tensor : tensors) data.emplace_back(4, std::byte(tensor.front()));
    std::vector<safetensors::WriteEntry> entries;
    for (size_t i = 0; i < tensors.size(); ++i) {
      entries.push_back({tensors[i], DType::kU8, {4}, data[i]});
    }
    const Status status = safetensors::write_file(path(name), entries, {});
    ASSERT_TRUE(status.ok()) << status.error().to_string();
  }
  void write_text(std::string_view name, std::string_view text) {
    std::ofstream(path(name)) << text;
  }
  void write_index(std::string_view weight_map) {
    write_text("model.safetensors.index.json",
               R"({"metadata":{"total_size":8},"weight_map":)" + std::string(weight_map) + "}");
  }
  std::string path(std::string_view name) const { return folder_ + "/" + std::string(name); }

  void expect_refused(ErrorCode code, std::initializer_list<std::string_view> words) {
    const auto index = TensorIndex::open(folder_);
    ASSERT_FALSE(index.ok());
    EXPECT_EQ(index.error().code(), code) << index.error().to_string();
    EXPECT_NE(index.error().message().find(folder_), std::string::npos) << index.error().message();
    for (const std::string_view word : words) {
      EXPECT_NE(index.error().message().find(word), std::string::npos)
          << "'" << word << "' in: " << index.error().message();
    }
  }

  std::string folder_;
};

TEST_F(TensorIndexTest, OpensShardsThroughTheIndex) {
  write_shard("model-1.safetensors", {"a", "b"});
  write_shard("model-2.safetensors", {"c"});
  write_shard("unrelated.safetensors", {"d"});
  write_index(R"({"a":"model-1.safetensors","c":"model-2.safetensors","b":"model-1.safetensors"})");
  const auto index = TensorIndex::open(folder_);
  ASSERT_TRUE(index.ok()) << index.error().to_string();
  EXPECT_EQ(index->num_files(), 2);
  EXPECT_EQ(index->entries().size(), 3u);
  for (const char* name : {"a", "b", "c"}) {
    const TensorEntry* entry = index->find(name);
    ASSERT_NE(entry, nullptr) << name;
    EXPECT_EQ(entry->dtype, DType::kU8);
    EXPECT_EQ(entry->shape, Shape({4}));
    EXPECT_EQ(entry->size_bytes, 4u);
    std::vector<std::byte> bytes(4);
    ASSERT_TRUE(read_tensor(*index, *entry, bytes).ok());
    EXPECT_EQ(bytes, std::vector<std::byte>(4, std::byte(name[0])));
  }
  EXPECT_EQ(index->find("d"), nullptr);
  EXPECT_EQ(index->file(index->find("c")->file).path(), path("model-2.safetensors"));
}

TEST_F(TensorIndexTest, ShardsMayLieInAFolderBelow) {
  std::filesystem::create_directory(path("shards"));
  write_shard("shards/1.safetensors", {"a"});
  write_index(R"({"a":"shards/1.safetensors"})");
  EXPECT_TRUE(TensorIndex::open(folder_).ok());
}

TEST_F(TensorIndexTest, OpensModelSafetensorsBesideOtherFiles) {
  write_shard("adapter.safetensors", {"x"});
  write_shard("model.safetensors", {"a"});
  const auto index = TensorIndex::open(folder_);
  ASSERT_TRUE(index.ok()) << index.error().to_string();
  EXPECT_NE(index->find("a"), nullptr);
  EXPECT_EQ(index->find("x"), nullptr);
}

TEST_F(TensorIndexTest, OpensALoneFileOfAnyName) {
  write_shard("weights.safetensors", {"a"});
  write_text("model.gguf", "GGUF");
  const auto index = TensorIndex::open(folder_);
  ASSERT_TRUE(index.ok()) << index.error().to_string();
  EXPECT_EQ(index->num_files(), 1);
  EXPECT_NE(index->find("a"), nullptr);
}

TEST_F(TensorIndexTest, AWholeSetOfShardsNeedsNoIndex) {
  write_shard("model-00001-of-00002.safetensors", {"a"});
  expect_refused(ErrorCode::kNotFound, {"part 2 of 2", "model-00001-of-00002.safetensors"});
  write_shard("model-00002-of-00002.safetensors", {"b"});
  write_shard("extra.safetensors", {"c"});
  write_shard("consolidated-00001-of-00001.safetensors", {"d"});
  const auto index = TensorIndex::open(folder_);
  ASSERT_TRUE(index.ok()) << index.error().to_string();
  EXPECT_EQ(index->num_files(), 2);
  EXPECT_EQ(index->entries().size(), 2u);
  write_shard("model-00002-of-00002.safetensors", {"a"});
  expect_refused(ErrorCode::kCorruption, {"\"a\"", path("model-00001-of-00002.safetensors"),
                                          path("model-00002-of-00002.safetensors")});
}

TEST_F(TensorIndexTest, FilesThatAreNoPartsOfOneModelAreListed) {
  for (int i = 0; i < 9; ++i) write_shard(formatted("s{}.safetensors", i), {"a"});
  expect_refused(ErrorCode::kInvalidArgument,
                 {"9 .safetensors files", "s4.safetensors and 4 more"});
}

TEST_F(TensorIndexTest, FilesBesideAModelAreNoPartOfIt) {
  write_shard("weights.safetensors", {"a"});
  write_text("._weights.safetensors", "\0\5\x16\a");
  write_text("mmproj.safetensors", "");
  write_shard("adapter_model.safetensors", {"x"});
  write_shard("consolidated.safetensors", {"a"});
  const auto index = TensorIndex::open(folder_);
  ASSERT_TRUE(index.ok()) << index.error().to_string();
  EXPECT_EQ(index->file(0).path(), path("weights.safetensors"));
}

TEST_F(TensorIndexTest, AFileBesideAModelIsReadWhereItIsAskedFor) {
  write_shard("model.safetensors", {"a", "b"});
  EXPECT_TRUE(TensorIndex::open(folder_, "mtp.safetensors").ok());
  write_shard("mtp.safetensors", {"mtp.c"});
  EXPECT_EQ(TensorIndex::open(folder_)->entries().size(), 2u);
  const auto both = TensorIndex::open(folder_, "mtp.safetensors");
  ASSERT_TRUE(both.ok());
  EXPECT_EQ(both->file(both->find("mtp.c")->file).path(), path("mtp.safetensors"));
  // An index that has it already.
  write_index(R"({"a":"model.safetensors","mtp.c":"mtp.safetensors"})");
  const auto listed = TensorIndex::open(folder_, "mtp.safetensors");
  ASSERT_TRUE(listed.ok());
  EXPECT_EQ(listed->entries().size(), 3u);
}

TEST_F(TensorIndexTest, AFileBesideAModelHasTensorsOfItsOwn) {
  write_shard("model.safetensors", {"a"});
  write_shard("mtp.safetensors", {"a"});
  const auto index = TensorIndex::open(folder_, "mtp.safetensors");
  ASSERT_FALSE(index.ok());
  EXPECT_EQ(index.error().code(), ErrorCode::kCorruption);
}

TEST_F(TensorIndexTest, AnAdapterAloneIsNamed) {
  write_shard("adapter_model.safetensors", {"x"});
  expect_refused(ErrorCode::kUnsupported, {"adapter_model.safetensors", "merge"});
}

TEST_F(TensorIndexTest, AnIndexOfOtherFilesDoesNotCount) {
  write_index(R"({"a":"model-00001-of-00003.safetensors","b":"model-00002-of-00003.safetensors"})");
  write_shard("model.safetensors", {"a"});
  auto index = TensorIndex::open(folder_);
  ASSERT_TRUE(index.ok()) << index.error().to_string();
  EXPECT_EQ(index->entries().size(), 1u);
  std::filesystem::remove(path("model.safetensors"));
  write_shard("model-00001-of-00002.safetensors", {"a"});
  expect_refused(ErrorCode::kNotFound, {"index.json", "model-00001-of-00003.safetensors"});
  write_shard("model-00002-of-00002.safetensors", {"b"});
  index = TensorIndex::open(folder_);
  ASSERT_TRUE(index.ok()) << index.error().to_string();
  EXPECT_EQ(index->entries().size(), 2u);
}

TEST_F(TensorIndexTest, WhatIsNoSafetensorsFileIsNamed) {
  write_text("model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n");
  expect_refused(ErrorCode::kCorruption, {path("model.safetensors"), "LFS", "git lfs pull"});
  write_text("model.safetensors", "<html><body>401</body></html>");
  expect_refused(ErrorCode::kCorruption, {path("model.safetensors"), "web page"});
  write_text("model.safetensors", "");
  expect_refused(ErrorCode::kCorruption, {path("model.safetensors"), "empty"});
}

TEST_F(TensorIndexTest, MissingFolderAndFileInPlaceOfAFolder) {
  const auto missing = TensorIndex::open(path("nowhere"));
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code(), ErrorCode::kNotFound);
  EXPECT_NE(missing.error().message().find(path("nowhere")), std::string::npos);
  write_shard("file.safetensors", {"a"});
  const auto file = TensorIndex::open(path("file.safetensors"));
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().code(), ErrorCode::kInvalidArgument);
}

TEST_F(TensorIndexTest, FolderWithoutACheckpointSaysWhatIsExpected) {
  write_text("config.json", "{}");
  expect_refused(ErrorCode::kNotFound, {"no checkpoint", ".safetensors"});
}

TEST_F(TensorIndexTest, GgufAndPyTorchFilesAreNamedAsNotSupported) {
  write_text("pytorch_model.bin", "");
  expect_refused(ErrorCode::kUnsupported, {"pytorch_model.bin", "PyTorch", ".safetensors"});
  write_text("model-q4.gguf", "GGUF");
  expect_refused(ErrorCode::kUnsupported,
                 {"model-q4.gguf", "GGUF files are not supported", ".safetensors"});
}

TEST_F(TensorIndexTest, MissingShardIsNamed) {
  write_shard("1.safetensors", {"a"});
  write_index(R"({"a":"1.safetensors","b":"2.safetensors"})");
  expect_refused(ErrorCode::kNotFound, {"index.json", "\"2.safetensors\"", "1 of 2"});
}

TEST_F(TensorIndexTest, ShardNamesMustStayInsideTheFolder) {
  for (const char* name : {"../1.safetensors", "/etc/passwd", "", "a/../../b"}) {
    write_index(R"({"a":")" + std::string(name) + "\"}");
    expect_refused(ErrorCode::kInvalidArgument, {"index.json", "inside the folder"});
  }
}

TEST_F(TensorIndexTest, WhatFilesHoldCountsNotWhatTheIndexSays) {
  write_shard("1.safetensors", {"a", "unlisted"});
  write_shard("2.safetensors", {"b", "moved"});
  write_index(R"({"a":"1.safetensors","b":"2.safetensors","moved":"1.safetensors",
                  "gone":"1.safetensors"})");
  const auto index = TensorIndex::open(folder_);
  ASSERT_TRUE(index.ok()) << index.error().to_string();
  EXPECT_EQ(index->entries().size(), 4u);
  EXPECT_EQ(index->find("gone"), nullptr);
  EXPECT_NE(index->find("unlisted"), nullptr);
  EXPECT_EQ(index->file(index->find("moved")->file).path(), path("2.safetensors"));
}

TEST_F(TensorIndexTest, OfATensorInTwoFilesTheListedOneCounts) {
  write_shard("1.safetensors", {"a", "twin"});
  write_shard("2.safetensors", {"b", "twin"});
  for (const char* name : {"1.safetensors", "2.safetensors"}) {
    write_index(formatted(R"({{"a":"1.safetensors","b":"2.safetensors","twin":"{}"}})", name));
    const auto index = TensorIndex::open(folder_);
    ASSERT_TRUE(index.ok()) << index.error().to_string();
    EXPECT_EQ(index->file(index->find("twin")->file).path(), path(name));
  }
  write_index(R"({"a":"1.safetensors","b":"2.safetensors"})");
  expect_refused(ErrorCode::kCorruption,
                 {"twin", path("1.safetensors"), path("2.safetensors"), "which one counts"});
}

TEST_F(TensorIndexTest, IndexesThatAreNoIndexesAreRefused) {
  for (const char* text :
       {"", "[]", "{}", R"({"weight_map":[]})", R"({"weight_map":{}})", R"({"weight_map":{"a":7}})",
        R"({"weight_map":{"a":"1.safetensors","a":"1.safetensors"}})"}) {
    write_text("model.safetensors.index.json", text);
    expect_refused(ErrorCode::kCorruption, {"model.safetensors.index.json"});
  }
}

TEST_F(TensorIndexTest, DamagedShardIsNamed) {
  write_text("1.safetensors", "tiny");
  write_index(R"({"a":"1.safetensors"})");
  expect_refused(ErrorCode::kCorruption, {path("1.safetensors"), "4 bytes"});
}

TEST_F(TensorIndexTest, TruncatedFileIsRefusedWhenOpened) {
  write_shard("model.safetensors", {"a", "b"});
  const auto bytes = std::filesystem::file_size(path("model.safetensors"));
  std::filesystem::resize_file(path("model.safetensors"), bytes - 1);
  expect_refused(ErrorCode::kCorruption, {path("model.safetensors"), "\"b\"", "8", "7"});
}

TEST_F(TensorIndexTest, FileCutAfterOpeningIsAnIoErrorAtReading) {
  write_shard("model.safetensors", {"a"});
  const auto index = TensorIndex::open(folder_);
  ASSERT_TRUE(index.ok());
  std::filesystem::resize_file(path("model.safetensors"), 20);
  std::vector<std::byte> bytes(4);
  const Status status = read_tensor(*index, *index->find("a"), bytes);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::kIo);
  EXPECT_NE(status.error().message().find(path("model.safetensors")), std::string::npos);
}

}  // namespace
}  // namespace moeflux
