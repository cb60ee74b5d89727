#include "hub/hub_cache.h"

#include <gtest/gtest.h>

#include "base/format.h"
#include "hub/local_models.h"
#include "io/file.h"
#include "io/file_use.h"
#include "io/part_file.h"
#include "tests/support/temp_folder.h"

namespace moeflux::hub {
namespace {

using moeflux::testing::TempFolder;

class HubCacheTest : public ::testing::Test {
 protected:
  // As if these files had been downloaded.
  Repository get(std::initializer_list<const char*> names) {
    Repository repository{.name = "org/m.x", .commit = std::string(40, 'c')};
    EXPECT_TRUE(cache_.prepare(repository.name).ok());
    char digit = 'a';
    for (const char* name : names) {
      RemoteFile file{.name = name, .size_bytes = 3, .hash = std::string(64, digit++)};
      EXPECT_TRUE(write_text_file(cache_.blob_path(repository.name, file.hash), "abc").ok());
      repository.files.push_back(std::move(file));
    }
    EXPECT_TRUE(cache_.link(repository, "main", repository.files).ok());
    return repository;
  }
  std::string snapshot(const std::string& file) const {
    return formatted("{}/{}", cache_.snapshot_folder("org/m.x", std::string(40, 'c')), file);
  }

  TempFolder folder_;
  HubCache cache_{folder_.path()};
};

TEST_F(HubCacheTest, LinksAreRelativeAndLeadToBlobs) {
  get({"config.json", "a/b/m-Q8_0.gguf"});
  EXPECT_EQ(read_link(snapshot("config.json")), "../../blobs/" + std::string(64, 'a'));
  EXPECT_EQ(read_link(snapshot("a/b/m-Q8_0.gguf")), "../../../../blobs/" + std::string(64, 'b'));
  EXPECT_EQ(*read_text_file(snapshot("a/b/m-Q8_0.gguf"), 10), "abc");
  EXPECT_EQ(*read_text_file(cache_.model_folder("org/m.x") + "/refs/main", 100),
            std::string(40, 'c'));
}

TEST_F(HubCacheTest, ASnapshotIsReadAsARepository) {
  get({"config.json", "a/m-Q8_0.gguf"});
  const auto found = cache_.snapshot("org/m.x", "main");
  ASSERT_TRUE(found.ok()) << found.error().message();
  ASSERT_EQ(found->files.size(), 2u);
  EXPECT_EQ(found->files[0].name, "a/m-Q8_0.gguf");
  EXPECT_EQ(found->files[0].hash, std::string(64, 'b'));
  EXPECT_EQ(cache_.repositories(), std::vector<std::string>{"org/m.x"});
  EXPECT_FALSE(cache_.snapshot("org/other", "main").ok());
  EXPECT_FALSE(cache_.snapshot("org/m.x", "../main").ok());
}

TEST_F(HubCacheTest, RemovingAPartKeepsTheOthersBlobs) {
  get({"m-Q4_K_M.gguf", "m-Q8_0.gguf"});
  EXPECT_EQ(*cache_.remove({"org/m.x", "Q4_K_M"}), 3u);
  EXPECT_FALSE(path_exists(cache_.blob_path("org/m.x", std::string(64, 'a'))));
  EXPECT_EQ(*read_text_file(snapshot("m-Q8_0.gguf"), 10), "abc");
  EXPECT_FALSE(cache_.remove({"org/m.x", "Q4_K_M"}).ok());
  EXPECT_EQ(*cache_.remove({"org/m.x", ""}), 3u);
  EXPECT_FALSE(path_exists(cache_.model_folder("org/m.x")));
}

TEST_F(HubCacheTest, RemovingLeavesFilesOfOthers) {
  get({"m-Q8_0.gguf"});
  const std::string own = cache_.model_folder("org/m.x") + "/notes.txt";
  ASSERT_TRUE(write_text_file(own, "mine").ok());
  EXPECT_TRUE(cache_.remove({"org/m.x", ""}).ok());
  EXPECT_TRUE(path_exists(own));
}

TEST_F(HubCacheTest, NothingIsRemovedWhileItIsDownloaded) {
  get({"m-Q8_0.gguf"});
  const auto lock = FileLock::take(cache_.lock_path("org/m.x", std::string(64, 'a')));
  ASSERT_TRUE(lock.ok());
  const auto removed = cache_.remove({"org/m.x", ""});
  ASSERT_FALSE(removed.ok());
  EXPECT_EQ(removed.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_TRUE(path_exists(snapshot("m-Q8_0.gguf")));
}

TEST_F(HubCacheTest, ALinkOutOfTheCacheIsRefused) {
  TempFolder elsewhere;
  ASSERT_TRUE(create_folders(cache_.model_folder("org/m.x")).ok());
  ASSERT_TRUE(write_link(cache_.model_folder("org/m.x") + "/blobs", elsewhere.path()).ok());
  EXPECT_FALSE(cache_.prepare("org/m.x").ok());
}

TEST_F(HubCacheTest, ModelsOfOtherProgramsAreFound) {
  get({"m-Q8_0.gguf"});
  const std::string home = folder_.path() + "/home";
  const auto write = [&](const std::string& path, std::string_view text) {
    const std::string whole = home + path;
    ASSERT_TRUE(create_folders(whole.substr(0, whole.rfind('/'))).ok());
    ASSERT_TRUE(write_text_file(whole, text).ok());
  };
  write("/.lmstudio/models/pub/model/model-Q4_K_M.gguf", "x");
  write("/.ollama/models/manifests/registry.ollama.ai/library/tiny/latest",
        R"({"layers":[{"mediaType":"application/vnd.ollama.image.model","size":5,"digest":"d"}]})");
  write("/.cache/llama.cpp/flat-Q2_K.gguf", "x");
  const auto models = find_local_models(cache_, [&](const char* name) -> const char* {
    return std::string_view(name) == "HOME" ? home.c_str() : nullptr;
  });
  ASSERT_EQ(models.size(), 4u);
  EXPECT_EQ(models[0].name, "org/m.x:Q8_0");
  EXPECT_EQ(models[1].name, "pub/model:Q4_K_M");
  EXPECT_EQ(models[2].name, "tiny:latest");
  EXPECT_EQ(models[2].bytes, 5u);
  EXPECT_EQ(models[3].path, home + "/.cache/llama.cpp/flat-Q2_K.gguf");
}

}  // namespace
}  // namespace moeflux::hub
