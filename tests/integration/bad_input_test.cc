// Mistakes in a command line, a model folder or a prompt give one line on standard error that names
// them, a non-zero exit status, and no crash.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/integration/moeflux_program.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace moeflux::testing {
namespace {

using Words = std::vector<std::string>;

void expect_failure(const ProgramOutput& output, int status, const Words& pieces) {
  EXPECT_EQ(output.status, status) << output.err;
  EXPECT_EQ(output.signal, 0);
  const auto lines = output.err_lines();
  ASSERT_EQ(lines.size(), 1u) << output.err;
  EXPECT_EQ(lines[0].rfind("error: ", 0), 0u) << lines[0];
  for (const std::string& piece : pieces) {
    EXPECT_TRUE(contains(lines[0], piece)) << "'" << piece << "' is not in: " << lines[0];
  }
}

void expect_usage_error(const Words& arguments, const Words& pieces) {
  expect_failure(moeflux(arguments), 2, pieces);
}

TEST(BadCommandLine, UsageErrorsNameTheFlag) {
  expect_usage_error({"frobnicate"}, {"moeflux --help"});
  expect_usage_error({"run", "--frobnicate", "x"}, {"--frobnicate", "moeflux run --help"});
  expect_usage_error({"run", "-t", "-1", "x"}, {"--threads"});
  expect_usage_error({"run", "-t", "many", "x"}, {"many"});
  expect_usage_error({"run", "-n", "ten", "x"}, {"ten"});
  expect_usage_error({"run", "--reader-threads", "0", "x"}, {"--reader-threads"});
  expect_usage_error({"run", "-m", "", "x"}, {"--model", "empty"});
  expect_usage_error({"run", "--expert-cache", "", "x"}, {"--expert-cache", "empty"});
  expect_usage_error({"run", "-s", "-2", "x"}, {"--seed", "-2", "-1"});
  expect_usage_error({"run", "-s", "7x", "x"}, {"--seed", "7x"});
  expect_usage_error({"run", "Once", "upon"}, {"upon"});
  expect_usage_error({"perplexity", "-f", "x", "--chunks", "-1"}, {"--chunks", "-1"});
  expect_usage_error({"logits", "--tokens", "1"}, {"--output"});
  expect_usage_error({"logits", "-o", "x"}, {"--tokens"});
  expect_usage_error({"perplexity"}, {"--file"});
  expect_usage_error({"inspect", "--json", "surplus"}, {"surplus"});
}

TEST(BadCommandLine, OptionsOfLlamaCppAreAnsweredByOurs) {
  for (const char* option : {"-ngl", "--n-gpu-layers", "-ot", "-ncmoe", "--n-cpu-moe"}) {
    expect_usage_error({"run", option, "99", "x"}, {option, "--near-cache SIZE"});
  }
  expect_usage_error({"run", "--cpu-moe", "x"}, {"--cpu-moe", "--near-cache 0"});
}

TEST(BadCommandLine, ValuesThatCannotBeRightAreNamed) {
  const auto run = [](const Words& more) {
    Words words = {"run"};
    words.insert(words.end(), more.begin(), more.end());
    words.push_back("Once upon a time");
    return moeflux(words);
  };
  expect_failure(run({"--device", "quantum"}), 1, {"device quantum", "cpu", "reference"});
  expect_failure(run({"--cpu-isa", "mmx"}), 1, {"mmx"});
  expect_failure(run({"--precision", "int8", "--device", "reference"}), 1,
                 {"precision int8", "device reference"});
  expect_failure(run({"--pin", "--device", "reference"}), 1, {"pinned", "device reference"});
  expect_failure(run({"--near-cache", "lots"}), 2, {"--near-cache", "lots"});
  expect_failure(run({"--near-cache", "1G", "--device", "cpu"}), 1, {"near cache", "device cpu"});
  expect_failure(run({"--expert-cache", "lots"}), 2, {"--expert-cache", "lots"});
  expect_failure(run({"--expert-cache", "-1"}), 2, {"--expert-cache", "-1"});
  expect_failure(run({"--expert-cache", "1B"}), 1, {"1 B", "one expert"});
  expect_failure(run({"-c", "999999"}), 1, {"999999", "4096"});
  expect_failure(run({"-c", "-5"}), 1, {"-5"});
  expect_failure(run({"--top-p", "-3"}), 1, {"top_p", "-3"});
  expect_failure(run({"--temp", "nan"}), 1, {"temperature"});
  expect_failure(run({"--logit-bias", "abc"}), 1, {"--logit-bias", "abc"});
  expect_failure(run({"--logit-bias", "8192+1"}), 1, {"logit_bias", "8192", "vocabulary"});
  expect_failure(moeflux({"serve", "-m", fable(), "--port", "0", "--logit-bias", "8192+1"}), 1,
                 {"logit_bias", "8192", "vocabulary"});
  expect_failure(moeflux({"inspect", "-c", "4097"}), 1, {"4097", "4096"});
}

TEST(BadCommandLine, TokensThatCannotBeRightAreNamed) {
  const TempFolder folder;
  const auto logits = [&](const std::string& tokens) {
    return moeflux({"logits", "--tokens", tokens, "-o", folder / "out"});
  };
  expect_failure(logits("1,8192"), 1, {"token 8192", "position 1", "8192"});
  expect_failure(logits("1,-2"), 1, {"-2"});
  expect_failure(logits("1,,2"), 1, {"--tokens", ",2"});
  expect_failure(logits("1,2,"), 1, {"--tokens"});
  expect_failure(logits("99999999999"), 1, {"--tokens", "99999999999"});
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
}

TEST(BadPrompt, EmptyOrTooLongOrNowhere) {
  expect_failure(moeflux({"run", ""}), 1, {"prompt is empty"});
  expect_failure(moeflux({"run"}), 1, {"prompt is empty"});
  expect_failure(moeflux({"run", "-c", "3", "Once upon a time"}), 1,
                 {"4 tokens", "context of 3", "--ctx-size"});
  expect_failure(moeflux({"run", "-f", "no-such-file"}), 1, {"no-such-file"});
  expect_failure(moeflux({"run", "-f", fable()}), 1, {fable()});
  expect_failure(moeflux({"run", "-f", "x", "text"}), 1, {"not both"});
  expect_failure(moeflux({"tokenize"}), 1, {"text", "-f"});
  expect_failure(moeflux({"perplexity", "-f", "-"}, {.standard_input = "a"}), 1, {"at least 2"});
}

TEST(BadOutput, UnwritableFileIsNamed) {
  const std::string path = "no-such-folder/logits.safetensors";
  expect_failure(moeflux({"logits", "--tokens", "1", "-o", path}), 1, {"no-such-folder"});
}

class BadModel : public ::testing::Test {
 protected:
  BadModel() { make_tiny_model({}).write(folder_.path()); }

  /// The tiny model, changed and written again.
  template <typename Change>
  void rewrite(Change change) {
    TinyModel model = make_tiny_model({});
    change(model);
    model.write(folder_.path());
  }
  /// Commands that read the weights, and one that reads headers only, agree.
  void expect_refusal(const Words& pieces) { expect_refusal_of(folder_.path(), pieces); }
  void expect_refusal_of(const std::string& model, const Words& pieces) {
    expect_failure(moeflux({"logits", "-m", model, "--tokens", "1,2", "-o", folder_ / "out"}), 1,
                   pieces);
    expect_failure(moeflux({"inspect", "-m", model}), 1, pieces);
    EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
  }
  std::string weights() const { return folder_ / "model.safetensors"; }

  TempFolder folder_;
};

TEST_F(BadModel, IsFineBeforeItIsBroken) {
  expect_success(
      moeflux({"logits", "-m", folder_.path(), "--tokens", "1,2", "-o", folder_ / "out"}));
}

TEST_F(BadModel, FolderThatIsNotThere) {
  expect_refusal_of(folder_ / "nowhere", {"nowhere", "no such folder"});
  write_bytes(folder_ / "notes.md", "text");
  expect_refusal_of(folder_ / "notes.md", {"notes.md", "not a folder", "GGUF"});
  write_bytes(folder_ / "m.gguf", "version https://git-lfs.github.com/spec/v1\n");
  expect_refusal_of(folder_ / "m.gguf", {"m.gguf", "Git LFS pointer", "git lfs pull"});
}

TEST_F(BadModel, AFileOfTheFolderIsNone) {
  for (const std::string& path : {weights(), folder_ / "config.json"}) {
    expect_success(moeflux({"logits", "-m", path, "--tokens", "1,2", "-o", folder_ / "out"}));
  }
}

TEST_F(BadModel, FolderWithoutConfig) {
  std::filesystem::remove(folder_ / "config.json");
  expect_refusal({"config.json"});
}

TEST_F(BadModel, FolderWithoutWeights) {
  std::filesystem::remove(weights());
  const Words command = {"logits", "-m", folder_.path(), "--tokens", "1,2", "-o", folder_ / "out"};
  expect_failure(moeflux(command), 1, {folder_.path(), "safetensors"});
  // A config alone can still be described, with assumed weights.
  expect_success(moeflux({"inspect", "-m", folder_.path()}));
}

TEST_F(BadModel, BrokenConfigs) {
  for (const std::string text : {"", "{", "{\"model_type\": \"qwen3_5_moe\",}", "[]", "\xFF\xFE"}) {
    write_bytes(folder_ / "config.json", text);
    expect_refusal({"config.json"});
  }
}

TEST_F(BadModel, UnknownModelType) {
  rewrite([](TinyModel& m) { m.config["model_type"] = "frobnicator"; });
  expect_refusal({"frobnicator", "known are", "qwen3_5_moe"});
}

TEST_F(BadModel, NamesFromFilesCannotBreakTheLine) {
  rewrite([](TinyModel& m) { m.config["model_type"] = "two\nlines\x1b[31m"; });
  expect_refusal({"two?lines?[31m"});
}

TEST_F(BadModel, ConfigThatContradictsTheWeights) {
  rewrite([](TinyModel& m) { m.config["moe_intermediate_size"] = 64; });
  expect_refusal({"switch_mlp.gate_proj.weight", "[4, 32, 32]", "[4, 64, 32]"});
  rewrite([](TinyModel& m) { m.config["layer_types"] = {"full_attention"}; });
  expect_refusal({"layer_types has 1", "num_hidden_layers is 2"});
}

TEST_F(BadModel, TruncatedWeights) {
  const std::string whole = read_bytes(weights());
  for (const size_t size : {size_t{0}, size_t{7}, size_t{100}, whole.size() - 1}) {
    write_bytes(weights(), whole.substr(0, size));
    expect_refusal({"model.safetensors"});
  }
}

TEST_F(BadModel, HeaderThatLiesAboutOffsets) {
  const auto with_header = [&](const std::string& json) {
    std::string bytes(8, '\0');
    bytes[0] = static_cast<char>(json.size());
    write_bytes(weights(), bytes + json + std::string(16, '\0'));
  };
  with_header(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,99]}})");
  expect_refusal({"model.safetensors", "a", "99"});
  with_header(R"({"a":{"dtype":"F32","shape":[5],"data_offsets":[0,16]}})");
  expect_refusal({"model.safetensors", "a", "16"});
  with_header(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[16,0]}})");
  expect_refusal({"model.safetensors", "a"});
  write_bytes(weights(), std::string(8, '\xFF') + "{}");
  expect_refusal({"model.safetensors", "header"});
}

TEST_F(BadModel, MissingShard) {
  std::filesystem::rename(weights(), folder_ / "model-00001-of-00002.safetensors");
  Json map;
  for (const auto& [name, tensor] : make_tiny_model({}).tensors) {
    map[name] = "model-00001-of-00002.safetensors";
  }
  map["language_model.model.norm.weight"] = "model-00002-of-00002.safetensors";
  Json index;
  index["weight_map"] = map;
  write_bytes(folder_ / "model.safetensors.index.json", index.dump());
  expect_refusal({"model-00002-of-00002.safetensors"});
}

TEST_F(BadModel, MissingOrBrokenTokenizer) {
  expect_failure(moeflux({"run", "-m", folder_.path(), "x"}), 1,
                 {folder_.path(), "tokenizer.json"});
  write_bytes(folder_ / "tokenizer.json", "{\"model\": 5}");
  for (const Words& command : std::vector<Words>{{"run", "x"}, {"tokenize", "x"}}) {
    Words words = command;
    words.insert(words.end(), {"-m", folder_.path()});
    expect_failure(moeflux(words), 1, {"tokenizer.json"});
  }
}

TEST_F(BadModel, BrokenGenerationConfig) {
  write_bytes(folder_ / "generation_config.json", "{\"temperature\": \"hot\"}");
  expect_failure(moeflux({"run", "-m", folder_.path(), "x"}), 1,
                 {"generation_config.json", "temperature", "hot"});
}

}  // namespace
}  // namespace moeflux::testing
