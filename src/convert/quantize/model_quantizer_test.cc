#include "convert/quantize/model_quantizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "engine/tiny_engine_test_util.h"
#include "io/file.h"
#include "tests/support/expect_error.h"

namespace moeflux {
namespace {

using testing::expect_error;
using testing::read_bytes;
using testing::TempFolder;
using testing::write_bytes;

constexpr QuantizeType kEightBits = {&affine_format, 8, 32};

class ModelQuantizerTest : public TinyEngineTest {
 protected:
  // The source in folder_ is what Hugging Face would write.
  ModelQuantizerTest() {
    testing::make_tiny_model({.experts = testing::ExpertNames::kSeparate,
                              .hugging_face = true,
                              .prefix = "model.language_model."})
        .write(folder_.path());
    write_bytes(folder_ / "tokenizer.json", "{}");
  }

  Status write(const QuantizeOptions& options, QuantizeRun run) const {
    MF_ASSIGN_OR_RETURN(PackSource source, open_pack_source(folder_.path()));
    MF_ASSIGN_OR_RETURN(const auto quantizer,
                        ModelQuantizer::create(std::move(source), *host_, options));
    if (run.directory.empty()) run.directory = output_.path();
    if (run.threads == 0) run.threads = 2;
    return quantizer->write(run);
  }
  void expect_written(const QuantizeOptions& options, const QuantizeRun& run = {}) const {
    const Status written = write(options, run);
    EXPECT_TRUE(written.ok()) << (written.ok() ? "" : written.error().to_string());
  }
  std::vector<float> logits_of(const std::string& folder) {
    auto engine = Engine::open(folder, *host_, {});
    EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().to_string());
    return engine.ok() ? all_logits(**engine, some_tokens(9)) : std::vector<float>();
  }
  static float furthest(const std::vector<float>& a, const std::vector<float>& b) {
    EXPECT_EQ(a.size(), b.size());
    float most = 0;
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      most = std::max(most, std::abs(a[i] - b[i]));
    }
    return most;
  }

  static float cosine(const std::vector<float>& a, const std::vector<float>& b) {
    EXPECT_EQ(a.size(), b.size());
    double ab = 0;
    double aa = 0;
    double bb = 0;
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      ab += double{a[i]} * b[i];
      aa += double{a[i]} * a[i];
      bb += double{b[i]} * b[i];
    }
    return static_cast<float>(ab / std::sqrt(aa * bb));
  }

  std::unique_ptr<Device> host_ = testing::make_test_device({.device = "reference"});
  TempFolder output_;
};

TEST_F(ModelQuantizerTest, ConfigsOfModulesGoWithTheModel) {
  write_bytes(folder_ / "modules.json", "[]");
  for (const char* folder : {"1_Pooling", "empty", ".hidden"}) {
    std::filesystem::create_directory(folder_ / folder);
  }
  write_bytes(folder_ / "1_Pooling/config.json", "{\"pooling_mode\": \"mean\"}");
  write_bytes(folder_ / ".hidden/config.json", "{}");
  expect_written({.type = kEightBits});
  EXPECT_EQ(read_bytes(output_ / "modules.json"), "[]");
  EXPECT_EQ(read_bytes(output_ / "1_Pooling/config.json"), "{\"pooling_mode\": \"mean\"}");
  EXPECT_FALSE(std::filesystem::exists(output_ / "empty"));
  EXPECT_FALSE(std::filesystem::exists(output_ / ".hidden"));
}

TEST_F(ModelQuantizerTest, WritesTheNamesAndShapesOfMlx) {
  expect_written({.type = kEightBits});
  EXPECT_EQ(read_bytes(output_ / "tokenizer.json"), "{}");
  const auto index = TensorIndex::open(output_.path());
  ASSERT_TRUE(index.ok()) << index.error().to_string();
  const std::string layer = "language_model.model.layers.0.";
  const TensorEntry* codes = index->find(layer + "mlp.switch_mlp.gate_proj.weight");
  const TensorEntry* scales = index->find(layer + "mlp.switch_mlp.gate_proj.scales");
  ASSERT_TRUE(codes != nullptr && scales != nullptr);
  EXPECT_EQ(codes->dtype, DType::kU32);
  EXPECT_EQ(codes->shape.rank(), 3);
  EXPECT_EQ(codes->shape.back() * 4, scales->shape.back() * 32);
  const TensorEntry* conv = index->find(layer + "linear_attn.conv1d.weight");
  ASSERT_NE(conv, nullptr);
  EXPECT_EQ(conv->shape.back(), 1);
  for (const auto& [name, entry] : index->entries()) {
    EXPECT_TRUE(name.starts_with("language_model.")) << name;
    EXPECT_EQ(name.find(".experts."), std::string::npos) << name;
  }
  const auto config = parse_json(read_bytes(output_ / "config.json"), "config.json");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ((*config)["quantization"]["bits"], 8);
  EXPECT_EQ((*config)["quantization"]["group_size"], 32);
  EXPECT_EQ((*config)["quantization"]["mode"], "affine");
  EXPECT_EQ((*config)["quantization"], (*config)["quantization_config"]);
}

TEST_F(ModelQuantizerTest, EightBitsChangeLogitsLittleAndTheSameNumbersAgainNotAtAll) {
  expect_written({.type = kEightBits});
  const std::vector<float> original = logits_of(folder_.path());
  const std::vector<float> once = logits_of(output_.path());
  // A rounding may choose other experts for a token of a random model, but not for most.
  EXPECT_GT(cosine(original, once), 0.95f);
  EXPECT_GT(furthest(original, once), 0.0f);
  // A weight on a grid stays on it: a second time is the same model.
  const TempFolder again;
  auto source = open_pack_source(output_.path());
  ASSERT_TRUE(source.ok());
  const auto quantizer =
      ModelQuantizer::create(std::move(source).value(), *host_, {.type = kEightBits});
  ASSERT_TRUE(quantizer.ok()) << quantizer.error().to_string();
  ASSERT_TRUE((*quantizer)->write({.directory = again.path(), .threads = 2}).ok());
  EXPECT_GT(cosine(once, logits_of(again.path())), 0.9999f);
}

TEST_F(ModelQuantizerTest, ThreadsAndShardSizesDoNotShowInTheModel) {
  expect_written({.type = kEightBits});
  const TempFolder other;
  expect_written({.type = kEightBits, .shard_bytes_max = 4096},
                 {.directory = other.path(), .threads = 1});
  const auto one = TensorIndex::open(output_.path());
  const auto many = TensorIndex::open(other.path());
  ASSERT_TRUE(one.ok() && many.ok());
  EXPECT_GT(many->num_files(), one->num_files());
  ASSERT_EQ(one->entries().size(), many->entries().size());
  for (const auto& [name, entry] : one->entries()) {
    const TensorEntry* twin = many->find(name);
    ASSERT_NE(twin, nullptr) << name;
    std::vector<std::byte> a(entry.size_bytes);
    std::vector<std::byte> b(twin->size_bytes);
    ASSERT_TRUE(one->file(entry.file).read_at(entry.offset_bytes, a).ok());
    ASSERT_TRUE(many->file(twin->file).read_at(twin->offset_bytes, b).ok());
    EXPECT_EQ(a, b) << name;
  }
}

TEST_F(ModelQuantizerTest, AStoppedRunLeavesNoModelAndCanBeRepeated) {
  std::stop_source stop;
  stop.request_stop();
  expect_error(write({.type = kEightBits}, {.stop = stop.get_token()}), ErrorCode::kCancelled, {});
  EXPECT_FALSE(path_exists(output_ / "config.json"));
  expect_written({.type = kEightBits});
  EXPECT_FALSE(logits_of(output_.path()).empty());
}

TEST_F(ModelQuantizerTest, AnotherModelIsReplacedOnlyWhereAsked) {
  expect_written({.type = kEightBits});
  const QuantizeOptions four = {.type = {&affine_format, 4, 32}};
  expect_error(write(four, {}), ErrorCode::kInvalidArgument, {output_.path(), "--force"});
  expect_written(four, {.replace = true});
  const auto config = parse_json(read_bytes(output_ / "config.json"), "config.json");
  EXPECT_EQ((*config)["quantization"]["bits"], 4);
  expect_error(write(four, {.directory = folder_.path()}), ErrorCode::kInvalidArgument, {});
}

TEST(QuantizeType, NamesAreParsedAndOthersListed) {
  const auto type = QuantizeType::parse("affine-6", 128);
  ASSERT_TRUE(type.ok());
  EXPECT_EQ(type->to_string(), "affine-6/128");
  EXPECT_EQ(QuantizeType::parse("mxfp4", 64)->group_size, 32);
  expect_error(QuantizeType::parse("affine-7", 64), ErrorCode::kInvalidArgument,
               {"affine-7", "affine-8", "mxfp4"});
}

}  // namespace
}  // namespace moeflux
