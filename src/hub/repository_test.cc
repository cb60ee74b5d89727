#include "hub/repository.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/format.h"

namespace moeflux::hub {
namespace {

const std::string kCommit(40, 'c');
const std::string kLarge(64, 'a');

std::string file_json(const std::string& name, int size = 10) {
  return formatted(R"({{"rfilename":"{}","size":{},"blobId":"{}","lfs":{{"sha256":"{}"}}}})", name,
                   size, std::string(40, 'b'), kLarge);
}

Result<Repository> parse(const std::string& files) {
  return parse_repository("org/model",
                          formatted(R"({{"sha":"{}","siblings":[{}]}})", kCommit, files));
}

Repository with_files(std::initializer_list<const char*> names) {
  Repository repository{.name = "org/model", .commit = kCommit};
  uint64_t size = 100;
  for (const char* name : names) repository.files.push_back({name, ++size, kLarge});
  return repository;
}

TEST(ModelName, HasARepositoryAndPerhapsAPart) {
  EXPECT_EQ(parse_model_name("org/m.x-1")->repository, "org/m.x-1");
  EXPECT_EQ(parse_model_name("org/m:Q4_K_M")->part, "Q4_K_M");
  EXPECT_EQ(parse_model_name("org/m:BF16/m-00001-of-00002.gguf")->part,
            "BF16/m-00001-of-00002.gguf");
  for (const char* same : {"hf.co/org/m:Q4_K_M", "HuggingFace.co/org/m:Q4_K_M",
                           "https://huggingface.co/org/m:Q4_K_M", "http://hf.co/org/m:Q4_K_M"}) {
    const auto name = parse_model_name(same);
    ASSERT_TRUE(name.ok()) << same;
    EXPECT_EQ(name->repository, "org/m") << same;
    EXPECT_EQ(name->part, "Q4_K_M") << same;
  }
  EXPECT_EQ(parse_model_name("hf.co/org/m:latest")->part, "");
  for (const char* wrong :
       {"", "m", "a/b/c", "/m", "org/", "../m", "org/..", "org/a--b", "-o/m", "hf.co/m",
        "org/m:", "org/m:../x", "org/m:/x", "o rg/m", "org/m\n", "org/m?x"}) {
    EXPECT_FALSE(parse_model_name(wrong).ok()) << wrong;
  }
}

TEST(FileName, LeadsNowhereElse) {
  for (const char* right : {"a", "a/b.gguf", ".gitattributes", "a b", "..a", "\xc3\xa9"}) {
    EXPECT_TRUE(check_file_name(right).ok()) << right;
  }
  for (const char* wrong :
       {"", "/a", "a//b", "a/", "..", "a/../b", "./a", "a\nb", "a\x7f", "a\\b"}) {
    EXPECT_FALSE(check_file_name(wrong).ok()) << wrong;
  }
  EXPECT_FALSE(check_file_name(std::string(256, 'a')).ok());
  EXPECT_FALSE(check_file_name(std::string("a\0b", 3)).ok());
}

TEST(Repository, AnAnswerIsReadWithItsHashes) {
  const auto found =
      parse(file_json("a.gguf", 7) + R"(,{"rfilename":"config.json","size":3,"blobId":")" +
            std::string(40, 'b') + "\"}");
  ASSERT_TRUE(found.ok()) << found.error().message();
  EXPECT_EQ(found->commit, kCommit);
  ASSERT_EQ(found->files.size(), 2u);
  EXPECT_TRUE(found->files[0].is_large());
  EXPECT_EQ(found->files[0].size_bytes, 7u);
  EXPECT_EQ(found->files[1].hash, std::string(40, 'b'));
}

TEST(Repository, AnAnswerThatLiesIsRefused) {
  for (const std::string& wrong :
       {file_json("../x"), file_json("/etc/passwd"), file_json("a", -1),
        file_json("a") + "," + file_json("a"), std::string(R"({"rfilename":"a","blobId":"b"})"),
        std::string(R"({"rfilename":"a","size":1,"blobId":"xyz"})"), std::string("1"),
        std::string(R"({"rfilename":3,"size":1})")}) {
    EXPECT_FALSE(parse(wrong).ok()) << wrong;
  }
  EXPECT_FALSE(parse_repository("o/m", "{}").ok());
  EXPECT_FALSE(parse_repository("o/m", R"({"sha":"../..","siblings":[]})").ok());
}

TEST(Repository, AMillionFilesAreRefused) {
  std::string files;
  for (int i = 0; i < 1'000'000; ++i) files += i == 0 ? "{}" : ",{}";
  const auto found = parse(files);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code(), ErrorCode::kResourceExhausted);
}

TEST(QuantLabel, IsTheLastWordThatNamesOne) {
  EXPECT_EQ(quant_label("Model-30B-A3B-Q4_K_M.gguf"), "Q4_K_M");
  EXPECT_EQ(quant_label("Model-UD-IQ2_XXS.gguf"), "UD-IQ2_XXS");
  EXPECT_EQ(quant_label("model.q8_0.gguf"), "q8_0");
  EXPECT_EQ(quant_label("BF16/Model-BF16-00001-of-00002.gguf"), "BF16");
  EXPECT_EQ(quant_label("Q6_K/Model-00001-of-00002.gguf"), "Q6_K");
  EXPECT_EQ(quant_label("model-mxfp4.gguf"), "mxfp4");
  EXPECT_EQ(quant_label("Model.gguf"), "");
  EXPECT_EQ(label_bits("UD-IQ2_XXS"), 2);
  EXPECT_EQ(label_bits("MXFP4"), 4);
  EXPECT_EQ(label_bits("BF16"), 16);
}

TEST(FileSets, SplitsAreTakenWholeAndUnfinishedOnesNotAtAll) {
  const auto sets = find_file_sets(
      with_files({"m-Q4_K_M.gguf", "mmproj-F16.gguf", "Q8_0/m-Q8_0-00002-of-00002.gguf",
                  "Q8_0/m-Q8_0-00001-of-00002.gguf", "m-F16-00001-of-00003.gguf", "config.json"}));
  ASSERT_EQ(sets.size(), 2u);
  EXPECT_EQ(sets[0].label, "Q4_K_M");
  ASSERT_EQ(sets[1].files.size(), 2u);
  EXPECT_EQ(sets[1].files[0].name, "Q8_0/m-Q8_0-00001-of-00002.gguf");
}

TEST(FileSets, SafetensorsComeWithWhatBelongsToThem) {
  const auto sets = find_file_sets(
      with_files({"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                  "config.json", "tokenizer.json", "README.md", "pytorch_model.bin",
                  "consolidated.safetensors", "chat_template.jinja", "original/params.json"}));
  ASSERT_EQ(sets.size(), 1u);
  EXPECT_EQ(sets[0].files.size(), 5u);
  EXPECT_FALSE(sets[0].is_gguf());
}

TEST(FileSets, SafetensorsComeWithWhatIsReadBesideThem) {
  const auto sets = find_file_sets(with_files(
      {"model.safetensors", "config.json", "modules.json", "config_sentence_transformers.json",
       "1_Pooling/config.json", "10_LogitScore/config.json", "mtp.safetensors",
       "hf_quant_config.json", "onnx/config.json", "_Pooling/config.json", "1/config.json",
       "1_Dense/model.safetensors", "a/1_Pooling/config.json"}));
  ASSERT_EQ(sets.size(), 1u);
  std::vector<std::string> names;
  for (const RemoteFile& file : sets[0].files) names.push_back(file.name);
  EXPECT_EQ(names, (std::vector<std::string>{
                       "config.json", "modules.json", "config_sentence_transformers.json",
                       "1_Pooling/config.json", "10_LogitScore/config.json", "mtp.safetensors",
                       "hf_quant_config.json", "model.safetensors"}));
}

TEST(FileSets, APartMeansOneModelOrIsRefused) {
  const Repository repository =
      with_files({"m-Q4_K_M.gguf", "m-UD-Q4_K_XL.gguf", "m-Q4_K_S.gguf", "a/m-Q4_K_S.gguf"});
  EXPECT_EQ(choose_file_sets(repository, "q4_k_m")->front().label, "Q4_K_M");
  EXPECT_EQ(choose_file_sets(repository, "Q4_K_XL")->front().label, "UD-Q4_K_XL");
  EXPECT_EQ(choose_file_sets(repository, "a/m-Q4_K_S.gguf")->front().files.front().name,
            "a/m-Q4_K_S.gguf");
  EXPECT_EQ(choose_file_sets(repository, "")->size(), 4u);
  EXPECT_FALSE(choose_file_sets(repository, "Q4_K_S").ok());
  EXPECT_FALSE(choose_file_sets(repository, "Q9").ok());
}

}  // namespace
}  // namespace moeflux::hub
