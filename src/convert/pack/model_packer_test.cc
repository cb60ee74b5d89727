#include "convert/pack/model_packer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "convert/random/synthetic.h"
#include "convert/random/synthetic_model.h"
#include "engine/engine.h"
#include "engine/tiny_engine_test_util.h"
#include "io/output_folder.h"
#include "tests/support/eval_last.h"
#include "tests/support/expect_error.h"
#include "tests/support/packed_copy.h"

namespace moeflux {
namespace {

using testing::expect_error;
using testing::make_tiny_model;
using testing::pack_folder;
using testing::read_bytes;
using testing::TempFolder;
using testing::write_bytes;

using Folder = std::map<std::string, std::string>;  // contents by name

Folder read_folder(const std::string& path) {
  Folder files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    if (!entry.is_regular_file()) continue;
    files[entry.path().string().substr(path.size() + 1)] = read_bytes(entry.path().string());
  }
  return files;
}

std::unique_ptr<ModelPacker> packer_of(const std::string& from, const PackFormat& format) {
  auto source = open_pack_source(from);
  EXPECT_TRUE(source.ok());
  auto packer = ModelPacker::create(std::move(source).value(), format);
  EXPECT_TRUE(packer.ok()) << (packer.ok() ? "" : packer.error().to_string());
  return std::move(packer).value();
}

class ModelPackerTest : public TinyEngineTest {
 protected:
  static constexpr std::string_view kLayer = "experts/layer-00001.experts";

  ModelPackerTest() {
    make_tiny_model({.bits = 4}).write(quantised_.path());
    write_bytes(quantised_ / "tokenizer.json", "{}");
    write_bytes(quantised_ / "pytorch_model.bin", "no part of it");
  }

  void pack() { testing::expect_packed(quantised_.path(), packed_.path(), {}); }
  void flip_bit(const std::string& path, size_t byte) const {
    std::string bytes = read_bytes(path);
    bytes[byte] = static_cast<char>(bytes[byte] ^ 4);
    write_bytes(path, bytes);
  }
  Result<std::unique_ptr<Engine>> open_packed(uint64_t cache = uint64_t{1} << 30) {
    return Engine::open(packed_.path(), *device_, {.expert_cache_bytes = cache});
  }

  TempFolder quantised_;
  TempFolder packed_;
};

TEST_F(ModelPackerTest, FolderHoldsTheModelAndNothingElse) {
  pack();
  std::set<std::string> names;
  for (const auto& [name, contents] : read_folder(packed_.path())) names.insert(name);
  EXPECT_EQ(names, (std::set<std::string>{
                       "config.json", "expert_pack.json", "experts/layer-00000.experts",
                       "experts/layer-00001.experts", "model-00001-of-00001.safetensors",
                       "model.safetensors.index.json", "moeflux_files.json", "tokenizer.json"}));
  const auto index = TensorIndex::open(packed_.path());
  ASSERT_TRUE(index.ok());
  for (const auto& [name, entry] : index->entries()) {
    EXPECT_EQ(name.find("switch_mlp"), std::string::npos) << name;
  }
}

TEST_F(ModelPackerTest, SlotsOfAPackAreAlignedForDirectReads) {
  pack();
  const auto loaded = load_model(packed_.path(), *device_, WeightLoading::kCheckOnly);
  ASSERT_TRUE(loaded.ok()) << loaded.error().to_string();
  EXPECT_EQ((*loaded)->experts.slot_bytes_max() % kBlobAlignment, 0u);
  for (const ExpertLayer& layer : (*loaded)->experts.layers) {
    for (int32_t e = 0; e < layer.num_experts; ++e) {
      uint64_t end = static_cast<uint64_t>(e) * layer.checked_bytes;
      for (const ExpertExtent& extent : layer.extents_of(ExpertId{e})) {
        EXPECT_EQ(extent.offset, end);  // adjacent: one read serves all three
        EXPECT_EQ(extent.offset - static_cast<uint64_t>(e) * layer.checked_bytes,
                  extent.slot_offset);
        end = extent.offset + extent.bytes;
      }
      EXPECT_EQ(end % kBlobAlignment, 0u);
    }
  }
}

TEST_F(ModelPackerTest, ThreadsAndShardSizesDoNotShowInExperts) {
  pack();
  const TempFolder other;
  ASSERT_TRUE(
      pack_folder(quantised_.path(), other.path(), {.shard_bytes_max = 1000}, {.threads = 1}).ok());
  EXPECT_EQ(read_bytes(other / kLayer), read_bytes(packed_ / kLayer));
  EXPECT_TRUE(path_exists(other / "model-00002-of-00003.safetensors") ||
              read_folder(other.path()).size() > read_folder(packed_.path()).size());
  const Tokens tokens = some_tokens(9);
  const auto engine = Engine::open(other.path(), *device_, {});
  ASSERT_TRUE(engine.ok()) << engine.error().to_string();
  EXPECT_EQ(all_logits(**engine, tokens), all_logits(**open_packed(), tokens));
}

TEST_F(ModelPackerTest, APackCanBePackedInAnotherOrder) {
  pack();
  const TempFolder row_major;
  const TempFolder again;
  testing::expect_packed(packed_.path(), row_major.path(), {.order = WeightOrder::kRowMajor});
  testing::expect_packed(row_major.path(), again.path(), {.order = WeightOrder::kTiled});
  EXPECT_NE(read_bytes(row_major / kLayer), read_bytes(packed_ / kLayer));
  EXPECT_EQ(read_bytes(again / kLayer), read_bytes(packed_ / kLayer));
}

TEST_F(ModelPackerTest, SyntheticSourceNeedsNoCheckpoint) {
  const auto checkpoint = make_synthetic_model("tiny", {});
  ASSERT_TRUE(checkpoint.ok());
  ASSERT_TRUE(write_synthetic(*checkpoint, {.directory = folder_.path(), .seed = 7}).ok());
  std::filesystem::remove(folder_ / "model.safetensors");
  testing::expect_packed(folder_.path(), packed_.path(), {});
  const TempFolder direct;
  auto packer = ModelPacker::create({.name = "tiny",
                                     .identity = "seed 7",
                                     .config_json = checkpoint->config_json,
                                     .index = index_synthetic(*checkpoint, 7)},
                                    {});
  ASSERT_TRUE(packer.ok()) << packer.error().to_string();
  const Status written = (*packer)->pack({.directory = direct.path()});
  ASSERT_TRUE(written.ok()) << written.error().to_string();
  Folder from_files = read_folder(packed_.path());
  Folder from_nothing = read_folder(direct.path());
  // The recipe names the seed, which files do not tell.
  from_files.erase("expert_pack.json");
  from_nothing.erase("expert_pack.json");
  EXPECT_EQ(from_files, from_nothing);
}

TEST_F(ModelPackerTest, RefusesAFolderThatHoldsSomethingElse) {
  write_bytes(packed_ / "something", "else");
  expect_error(pack_folder(quantised_.path(), packed_.path(), {}), ErrorCode::kInvalidArgument,
               {packed_.path(), "not empty", "--force"});
}

TEST_F(ModelPackerTest, AFlippedBitIsAnErrorOnFirstUseAndHealsWithTheFile) {
  pack();
  const Tokens tokens = some_tokens(12);
  const std::vector<float> expected = all_logits(**open_packed(), tokens);
  const std::string path = packed_ / kLayer;
  const uint64_t stride = TensorIndex::open(packed_.path())->packed_layers().at(1).layout.stride;
  for (uint64_t expert = 0; expert < 4; ++expert) flip_bit(path, expert * stride + 100);
  const auto engine = open_packed();
  ASSERT_TRUE(engine.ok()) << engine.error().to_string();
  const auto sequence = start(**engine);
  expect_error(eval_last(**engine, *sequence, tokens), ErrorCode::kCorruption,
               {"layer 1 expert ", path, "checksum", "damaged"});
  expect_error(eval_last(**engine, *start(**engine), tokens), ErrorCode::kCorruption, {"layer 1"});
  for (uint64_t expert = 0; expert < 4; ++expert) flip_bit(path, expert * stride + 100);
  EXPECT_EQ(all_logits(**engine, tokens), expected);
  expect_error(eval_last(**engine, *sequence, some_tokens(1)), ErrorCode::kFailedPrecondition, {});
}

TEST_F(ModelPackerTest, ChecksCanBeDoneWithout) {
  pack();
  const Tokens tokens = some_tokens(12);
  // Padding: the checksum covers it, no computation does.
  const uint64_t stride = TensorIndex::open(packed_.path())->packed_layers().at(1).layout.stride;
  for (uint64_t expert = 1; expert <= 4; ++expert) flip_bit(packed_ / kLayer, expert * stride - 1);
  const auto careful = open_packed();
  expect_error(eval_last(**careful, *start(**careful), tokens), ErrorCode::kCorruption, {});
  const auto trusting = Engine::open(packed_.path(), *device_, {.check_experts = false});
  ASSERT_TRUE(trusting.ok());
  EXPECT_TRUE(eval_last(**trusting, *start(**trusting), tokens).ok());
}

TEST_F(ModelPackerTest, FilesOfWrongLengthAreRefusedAtOnce) {
  pack();
  const std::string whole = read_bytes(packed_ / kLayer);
  write_bytes(packed_ / kLayer, whole.substr(0, whole.size() - 1));
  expect_error(
      open_packed(), ErrorCode::kCorruption,
      {std::string(kLayer), std::to_string(whole.size() - 1), std::to_string(whole.size())});
  std::filesystem::remove(packed_ / kLayer);
  expect_error(open_packed(), ErrorCode::kNotFound, {"expert_pack.json", "layer 1"});
}

TEST_F(ModelPackerTest, APackOfAnotherModelIsRefused) {
  pack();
  const TempFolder other;
  testing::TinyModel model = make_tiny_model({.bits = 8});
  model.write(other.path());
  const TempFolder other_packed;
  testing::expect_packed(other.path(), other_packed.path(), {});
  std::filesystem::copy_file(other_packed / "expert_pack.json", packed_ / "expert_pack.json",
                             std::filesystem::copy_options::overwrite_existing);
  expect_error(open_packed(), ErrorCode::kCorruption, {"layer-00000.experts", "expected"});
}

TEST_F(ModelPackerTest, AConfigThatWasChangedAfterwardsIsNoticed) {
  pack();
  Json config = *parse_json(read_bytes(packed_ / "config.json"), "config");
  write_bytes(packed_ / "config.json", config.dump());  // white space does not matter
  EXPECT_TRUE(open_packed().ok());
  config["note"] = 1;
  write_bytes(packed_ / "config.json", config.dump());
  expect_error(open_packed(), ErrorCode::kCorruption, {"fingerprint", "pack the model again"});
}

TEST_F(ModelPackerTest, StoppedAnywhereItGoesOnToTheSameFolder) {
  pack();
  const Folder expected = read_folder(packed_.path());
  const TempFolder other;
  std::vector<uint64_t> steps;
  const auto count = [&](uint64_t done) { steps.push_back(done); };
  ASSERT_TRUE(pack_folder(quantised_.path(), other.path(), {}, {.progress = count}).ok());
  ASSERT_GT(steps.size(), 20u);
  for (size_t stop_at = 0; stop_at < steps.size(); stop_at += 7) {
    const TempFolder folder;
    std::stop_source stop;
    size_t step = 0;
    const auto interrupt = [&](uint64_t) {
      if (step++ == stop_at) stop.request_stop();
    };
    const PackRun run = {.stop = stop.get_token(), .progress = interrupt};
    const Status stopped = pack_folder(quantised_.path(), folder.path(), {}, run);
    if (!stopped.ok()) {  // after the last tensor there is nothing left to stop
      expect_error(stopped, ErrorCode::kCancelled, {});
      expect_error(Engine::open(folder.path(), *device_, {}), ErrorCode::kFailedPrecondition,
                   {folder.path(), "has not finished"});
      expect_error(pack_folder(quantised_.path(), folder.path(), {.order = WeightOrder::kRowMajor}),
                   ErrorCode::kInvalidArgument, {"other options"});
      write_bytes(folder / "experts/layer-00000.experts.tmp-1-0", "left by a killed process");
    }
    ASSERT_TRUE(pack_folder(quantised_.path(), folder.path(), {}).ok());
    EXPECT_EQ(read_folder(folder.path()), expected) << "stopped at step " << stop_at;
  }
}

TEST_F(ModelPackerTest, ReplacingStoppedAnywhereLeavesTheOldModel) {
  const TempFolder fresh;
  ASSERT_TRUE(pack_folder(quantised_.path(), fresh.path(), {}).ok());
  const Folder expected = read_folder(fresh.path());
  testing::expect_packed(quantised_.path(), packed_.path(), {.order = WeightOrder::kRowMajor});
  const Folder old = read_folder(packed_.path());
  ASSERT_NE(old, expected);
  bool stopped = true;
  for (size_t stop_at = 0; stopped; stop_at += 9) {
    std::stop_source stop;
    size_t step = 0;
    const auto interrupt = [&](uint64_t) {
      if (step++ == stop_at) stop.request_stop();
    };
    const Status packed =
        pack_folder(quantised_.path(), packed_.path(), {},
                    {.replace = true, .stop = stop.get_token(), .progress = interrupt});
    stopped = !packed.ok();
    if (!stopped) break;
    expect_error(packed, ErrorCode::kCancelled, {});
    EXPECT_EQ(read_folder(packed_.path()), old);
    if (stop_at % 2 == 0) write_bytes(packed_.path() + ".moeflux-new/config.json.tmp-1-0", "half");
  }
  EXPECT_EQ(read_folder(packed_.path()), expected);
  EXPECT_FALSE(path_exists(packed_.path() + ".moeflux-new"));
}

TEST_F(ModelPackerTest, ItsSourceIsNeverItsTarget) {
  const Folder before = read_folder(quantised_.path());
  std::filesystem::create_directory_symlink(quantised_.path(), packed_ / "link");
  for (const std::string& target : {quantised_.path(), quantised_ / ".", packed_ / "link"}) {
    for (const bool replace : {false, true}) {
      expect_error(pack_folder(quantised_.path(), target, {}, {.replace = replace}),
                   ErrorCode::kInvalidArgument, {target, "is an input", "another folder"});
    }
  }
  EXPECT_EQ(read_folder(quantised_.path()), before);
}

TEST_F(ModelPackerTest, VerifyingFindsWhatChanged) {
  pack();
  const auto packer = packer_of(quantised_.path(), {});
  const PackRun run = {.directory = packed_.path(), .threads = 2};
  const auto verify = [&] { return verify_expert_pack(*TensorIndex::open(packed_.path()), run); };
  EXPECT_TRUE(verify().ok());
  EXPECT_TRUE(packer->compare(run).ok());
  expect_error(packer_of(quantised_.path(), {.order = WeightOrder::kRowMajor})->compare(run),
               ErrorCode::kInvalidArgument, {"other options"});
  const uint64_t stride = TensorIndex::open(packed_.path())->packed_layers().at(1).layout.stride;
  flip_bit(packed_ / kLayer, 2 * stride + 3);
  expect_error(verify(), ErrorCode::kCorruption, {"layer 1 expert 2", std::string(kLayer)});
  expect_error(packer->compare(run), ErrorCode::kCorruption,
               {std::string(kLayer), std::to_string(2 * stride + 3)});
  flip_bit(packed_ / kLayer, 2 * stride + 3);
  const std::string dense = packed_ / "model-00001-of-00001.safetensors";
  flip_bit(dense, read_bytes(dense).size() - 1);
  EXPECT_TRUE(verify().ok());
  expect_error(packer->compare(run), ErrorCode::kCorruption, {dense});
}

}  // namespace
}  // namespace moeflux
