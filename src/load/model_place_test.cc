#include "load/model_place.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "load/model_source.h"
#include "tests/support/expect_error.h"
#include "tests/support/gguf_bytes.h"
#include "tests/support/temp_folder.h"

namespace moeflux {
namespace {

using testing::expect_error;
using testing::GgufImage;
using testing::small_gguf;
using testing::TempFolder;
using testing::write_bytes;

void put(const std::string& path, std::string_view bytes) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  write_bytes(path, bytes);
}

void put_folder(const std::string& folder) {
  put(folder + "/config.json", "{}");
  put(folder + "/model.safetensors", "");
}

std::string place_of(const std::string& path) {
  const auto place = find_model_place(path);
  EXPECT_TRUE(place.ok()) << (place.ok() ? "" : place.error().to_string());
  return place.ok() ? *place : "";
}

TEST(ModelPlace, AModelStaysWhereItIs) {
  const TempFolder folder;
  EXPECT_EQ(place_of(folder.path()), folder.path());  // nothing is known of it
  put_folder(folder / "a");
  EXPECT_EQ(place_of(folder / "a"), folder / "a");
  EXPECT_EQ(place_of(folder / "a/"), folder / "a");
  put(folder / "b/m.gguf", small_gguf().bytes());
  EXPECT_EQ(place_of(folder / "b"), folder / "b");
  EXPECT_EQ(place_of(folder / "b/m.gguf"), folder / "b/m.gguf");
  expect_error(find_model_place(folder / "nowhere"), ErrorCode::kNotFound, {"no such folder"});
}

TEST(ModelPlace, AFileOfAFolderMeansTheFolder) {
  const TempFolder folder;
  put_folder(folder / "a");
  put(folder / "a/model.safetensors.index.json", "{}");
  for (const char* name : {"config.json", "model.safetensors", "model.safetensors.index.json"}) {
    EXPECT_EQ(place_of(folder / "a/" + name), folder / "a");
  }
  put(folder / "a/adapter_model.safetensors", std::string(16, 'x'));
  expect_error(find_model_place(folder / "a/adapter_model.safetensors"), ErrorCode::kNotFound,
               {"adapter_model.safetensors", "safetensors"});
}

TEST(ModelPlace, ACacheOfHuggingFaceMeansTheSnapshotOfMain) {
  const TempFolder folder;
  const std::string hub = folder / "hub";
  const std::string root = hub + "/models--org--name";
  put_folder(root + "/snapshots/aaa");
  EXPECT_EQ(place_of(root), root + "/snapshots/aaa");
  EXPECT_EQ(place_of(hub), root + "/snapshots/aaa");
  EXPECT_EQ(place_of(folder.path()), root + "/snapshots/aaa");
  put_folder(root + "/snapshots/bbb");
  expect_error(find_model_place(root), ErrorCode::kInvalidArgument,
               {"2 snapshots", "snapshots/aaa", "snapshots/bbb"});
  put(root + "/refs/main", "bbb\n");
  EXPECT_EQ(place_of(root), root + "/snapshots/bbb");
  put(hub + "/models--org--begun/refs/main", "ccc");
  EXPECT_EQ(place_of(hub), root + "/snapshots/bbb");
  expect_error(find_model_place(hub + "/models--org--begun"), ErrorCode::kNotFound,
               {"Hugging Face's cache", "download"});
  put(hub + "/models--org--other/snapshots/ddd/Q4_K_M/m.gguf", small_gguf().bytes());
  expect_error(
      find_model_place(hub), ErrorCode::kInvalidArgument,
      {"2 models", "models--org--name/snapshots/bbb", "models--org--other/snapshots/ddd/Q4_K_M"});
  EXPECT_EQ(place_of(hub + "/models--org--other"),
            hub + "/models--org--other/snapshots/ddd/Q4_K_M");
}

TEST(ModelPlace, ABlobOfACacheHasTheNameOfItsLink) {
  const TempFolder folder;
  const std::string root = folder / "models--org--name";
  put(root + "/blobs/0a1b", small_gguf().bytes());
  std::filesystem::create_directories(root + "/snapshots/aaa/Q8_0");
  const std::string link = root + "/snapshots/aaa/Q8_0/m-00002-of-00003.gguf";
  std::filesystem::create_symlink("../../../blobs/0a1b", link);
  EXPECT_EQ(place_of(root + "/blobs/0a1b"), link);
  put(root + "/blobs/0a1c", small_gguf().bytes());  // of no snapshot
  EXPECT_EQ(place_of(root + "/blobs/0a1c"), root + "/blobs/0a1c");
}

TEST(ModelPlace, APublishersFolderMeansItsOnlyModel) {
  const TempFolder folder;
  put(folder / "publisher/model/m-q4.gguf", small_gguf().bytes());
  put(folder / "publisher/model/mmproj-m.gguf", "");
  put(folder / ".hidden/model/m.gguf", "");
  put(folder / "publisher/notes/read.me", "text");
  for (const char* name : {"", "publisher", "publisher/model"}) {
    EXPECT_EQ(place_of(folder / name), folder / "publisher/model") << name;
  }
  put(folder / "other/model/m.gguf", small_gguf().bytes());
  EXPECT_EQ(place_of(folder / "publisher"), folder / "publisher/model");
  expect_error(find_model_place(folder.path()), ErrorCode::kInvalidArgument,
               {folder.path(), "2 models", "name one", "other/model, publisher/model"});
}

constexpr std::string_view kManifest = R"({"schemaVersion": 2, "layers": [
  {"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:0c"},
  {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:0a"}]})";

TEST(ModelPlace, OllamasFoldersAndManifestsMeanTheirBlob) {
  const TempFolder folder;
  const std::string models = folder / ".ollama/models";
  const std::string own = models + "/manifests/registry.ollama.ai/library/";
  put(models + "/blobs/sha256-0a", small_gguf().bytes());
  put(models + "/blobs/sha256-0c", "{{ .Prompt }}");
  put(own + "toy/latest", kManifest);
  const std::string blob = models + "/blobs/sha256-0a";
  for (const std::string& path :
       {folder / ".ollama", models, models + "/blobs", blob, own + "toy/latest"}) {
    EXPECT_EQ(place_of(path), blob) << path;
  }
  put(models + "/blobs/sha256-0b", small_gguf().bytes());
  put(own + "other/7b", R"({"layers": [{"mediaType": "application/vnd.ollama.image.model",
                                        "digest": "sha256:0d"}]})");
  expect_error(find_model_place(models), ErrorCode::kInvalidArgument,
               {"Ollama's folder", "2", "library/other/7b", "library/toy/latest"});
  expect_error(find_model_place(models + "/blobs"), ErrorCode::kInvalidArgument,
               {"2 of them GGUF", "sha256-0a", "sha256-0b"});
  expect_error(find_model_place(own + "other/7b"), ErrorCode::kNotFound,
               {"library/other/7b", "blobs/sha256-0d", "not there"});
}

TEST(ModelPlace, FilesThatAreNoModelSayWhatTheyAre) {
  const TempFolder folder;
  const std::string zip = std::string("PK\x03\x04") + std::string(40, 'z');
  struct Case {
    std::string name;
    std::string bytes;
    std::string word;
  };
  for (const auto& [name, bytes, word] : std::vector<Case>{
           {"m.gguf", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "LFS"},
           {"m2.gguf", "", "empty"},
           {"m3.gguf", "<!DOCTYPE html><html>", "web page"},
           {"m4.gguf", "\n", "nor a GGUF file"},
           {"m.bin", zip, "safetensors"},
           {"pytorch_model.bin", std::string("\x80\x02", 2) + "}", "PyTorch"},
           {"m.zip", zip, "ZIP"},
           {"m.tar.gz", "\x1f\x8b", "unpack"},
           {"m.onnx", "\x08\x07", "ONNX"},
           {"old.bin", "tjgg\x03", "before GGUF"},
           {"m.gguf.part", "GGU", "not finished"},
           {"0a.incomplete", "xyz", "not finished"},
           {"zeros.gguf", std::string(64, '\0'), "zeros"},
           {"e.gguf", "{\"error\":\"Invalid credentials\"}", "error message"},
           {"alone.safetensors", std::string("\x02\0\0\0\0\0\0\0{}", 10), "config.json"}}) {
    write_bytes(folder / name, bytes);
    expect_error(find_model_place(folder / name), ErrorCode::kNotFound, {folder / name, word});
    expect_error(open_model_source(folder / name), ErrorCode::kNotFound, {folder / name, word});
  }
}

TEST(ModelPlace, FoldersWithoutAConfigSayWhatTheyAre) {
  const auto config_of = [](const TempFolder& folder) {
    const auto source = open_model_source(folder.path());
    EXPECT_TRUE(source.ok());
    return (*source)->config();
  };
  const auto tokenizer_of = [](const TempFolder& folder) {
    const auto source = open_model_source(folder.path());
    EXPECT_TRUE(source.ok());
    return (*source)->tokenizer();
  };
  const TempFolder folder;
  expect_error(config_of(folder), ErrorCode::kNotFound, {folder.path(), "empty folder"});
  expect_error(tokenizer_of(folder), ErrorCode::kNotFound, {folder.path(), "empty folder"});
  write_bytes(folder / "mmproj-m.gguf", "");
  expect_error(config_of(folder), ErrorCode::kNotFound, {"accompany a model", "mmproj-m.gguf"});
  write_bytes(folder / "params.json", "{}");
  expect_error(config_of(folder), ErrorCode::kNotFound, {"publisher's own format"});
  write_bytes(folder / "adapter_config.json", "{}");
  expect_error(config_of(folder), ErrorCode::kNotFound, {"adapter", "merge"});
  expect_error(tokenizer_of(folder), ErrorCode::kNotFound, {"adapter", "merge"});
  write_bytes(folder / "config.json", "version https://git-lfs.github.com/spec/v1\n");
  expect_error(config_of(folder), ErrorCode::kCorruption, {"config.json", "LFS", "git lfs pull"});
}

}  // namespace
}  // namespace moeflux
