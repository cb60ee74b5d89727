// Checkpoints that contradict their config are refused by the name of the tensor; checkpoints that
// say the same in another spelling give the same bytes and the same logits.
#include "model/weights/weight_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "load/model_loader.h"
#include "tests/support/expect_error.h"
#include "tests/support/run_model.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace moeflux {
namespace {

using testing::expect_error;
using testing::ExpertNames;
using testing::make_tiny_model;
using testing::TempFolder;
using testing::TinyModel;
using testing::TinyOptions;
using testing::TinyTensor;

const std::string kPrefix = "language_model.model.";

/// Opens the tiny model after `change`; both ways of loading must agree on what is wrong.
Result<std::unique_ptr<LoadedModel>> load(const TinyModel& model) {
  const TempFolder folder;
  model.write(folder.path());
  const std::unique_ptr<Device> device = testing::make_test_device({.device = "reference"});
  auto checked = load_model(folder.path(), *device, WeightLoading::kCheckOnly);
  auto loaded = load_model(folder.path(), *device, WeightLoading::kRead);
  EXPECT_EQ(checked.ok(), loaded.ok());
  if (!checked.ok() && !loaded.ok()) {
    EXPECT_EQ(checked.error().message(), loaded.error().message());
  }
  if (checked.ok() && loaded.ok()) {
    EXPECT_EQ((*checked)->dense.bytes, (*loaded)->dense.bytes);
    EXPECT_EQ((*checked)->dense.stored_bytes, (*loaded)->dense.stored_bytes);
    EXPECT_EQ((*checked)->dense.parameters, (*loaded)->dense.parameters);
  }
  return loaded;
}

Result<std::unique_ptr<LoadedModel>> load_after(const TinyOptions& options,
                                                const std::function<void(TinyModel&)>& change) {
  TinyModel model = make_tiny_model(options);
  change(model);
  return load(model);
}

TinyTensor zeros(DType dtype, const Shape& shape) {
  const auto bytes = static_cast<size_t>(shape.num_elements() * dtype_bits(dtype) / 8);
  return {dtype, shape, std::string(bytes, '\0')};
}

TEST(WeightStore, MissingTensorIsNamed) {
  for (const std::string name :
       {"embed_tokens.weight", "norm.weight", "layers.1.self_attn.k_proj.weight",
        "layers.0.linear_attn.A_log", "layers.1.mlp.switch_mlp.up_proj.weight"}) {
    expect_error(load_after({}, [&](TinyModel& m) { m.tensors.erase(kPrefix + name); }),
                 ErrorCode::kNotFound, {kPrefix + name, "missing"});
  }
}

TEST(WeightStore, ErrorsOfTensorsBeginWithTheModel) {
  TinyModel model = make_tiny_model({});
  model.tensors.erase(kPrefix + "norm.weight");
  const TempFolder folder;
  model.write(folder.path());
  const std::unique_ptr<Device> device = testing::make_test_device({.device = "reference"});
  const auto loaded = load_model(folder.path(), *device, WeightLoading::kRead);
  expect_error(loaded, ErrorCode::kNotFound, {folder.path() + ": ", kPrefix + "norm.weight"});
}

TEST(WeightStore, MissingTensorsAreAllNamed) {
  const auto loaded = load_after({}, [](TinyModel& m) {
    m.tensors.erase(kPrefix + "embed_tokens.weight");
    m.tensors.erase(kPrefix + "layers.1.mlp.gate.weight");
    m.tensors.erase(kPrefix + "norm.weight");
    m.tensors[kPrefix + "layers.0.input_layernorm.weight"] = zeros(DType::kF32, {3});
  });
  expect_error(loaded, ErrorCode::kCorruption,
               {"layers.0.input_layernorm.weight is F32 [3]", "; 3 tensors are missing",
                "embed_tokens.weight", "layers.1.mlp.gate.weight", "norm.weight"});
}

TEST(WeightStore, BeyondTwentyMissingTensorsAreCounted) {
  size_t erased = 0;
  const auto loaded = load_after({}, [&](TinyModel& m) {
    erased = std::erase_if(m.tensors, [](const auto& tensor) {
      return tensor.first.starts_with(kPrefix + "layers.") &&
             !tensor.first.ends_with("linear_attn.A_log");
    });
  });
  ASSERT_GT(erased, 22u);
  ASSERT_FALSE(loaded.ok());
  const std::string& message = loaded.error().message();
  EXPECT_NE(message.find(" tensors are missing"), std::string::npos) << message;
  EXPECT_NE(message.find(" more"), std::string::npos) << message;
  size_t named = 0;
  for (size_t at = message.find(kPrefix); at != std::string::npos;
       at = message.find(kPrefix, at + 1)) {
    ++named;
  }
  EXPECT_EQ(named, 20u) << message;
}

TEST(WeightStore, ProgressKnowsTheBytesOfAllTensorsBeforeTheFirst) {
  for (const int bits : {0, 4}) {
    const TempFolder folder;
    make_tiny_model({.bits = bits}).write(folder.path());
    const std::unique_ptr<Device> device = testing::make_test_device({.device = "reference"});
    std::vector<uint64_t> told;
    std::set<uint64_t> totals;
    const auto loaded = load_model(folder.path(), *device, WeightLoading::kRead,
                                   [&](uint64_t done, uint64_t total) {
                                     told.push_back(done);
                                     totals.insert(total);
                                     return true;
                                   });
    ASSERT_TRUE(loaded.ok()) << loaded.error().to_string();
    EXPECT_EQ(totals, std::set<uint64_t>{(*loaded)->dense.stored_bytes});
    EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
    EXPECT_EQ(told.back(), (*loaded)->dense.stored_bytes);
  }
}

TEST(WeightStore, ReadsNothingOfACheckpointThatDoesNotFit) {
  TinyModel model = make_tiny_model({});
  model.tensors.erase(kPrefix + "norm.weight");
  const TempFolder folder;
  model.write(folder.path());
  const std::unique_ptr<Device> device = testing::make_test_device({.device = "reference"});
  bool asked = false;
  const auto loaded = load_model(folder.path(), *device, WeightLoading::kRead,
                                 [&](uint64_t, uint64_t) { return asked = true; });
  expect_error(loaded, ErrorCode::kNotFound, {"norm.weight"});
  EXPECT_FALSE(asked);
}

TEST(WeightStore, ReadingStopsWhenProgressSaysSo) {
  const TempFolder folder;
  make_tiny_model({}).write(folder.path());
  const std::unique_ptr<Device> device = testing::make_test_device({.device = "reference"});
  int calls = 0;
  const auto loaded = load_model(folder.path(), *device, WeightLoading::kRead,
                                 [&](uint64_t, uint64_t) { return ++calls < 3; });
  expect_error(loaded, ErrorCode::kCancelled, {"reading weights"});
  EXPECT_EQ(calls, 3);
}

TEST(WeightStore, TensorNobodyTookIsNamed) {
  const auto loaded = load_after({}, [](TinyModel& m) {
    m.tensors[kPrefix + "layers.0.mlp.bonus.weight"] = zeros(DType::kF32, {2});
  });
  expect_error(loaded, ErrorCode::kUnsupported, {"layers.0.mlp.bonus.weight"});
}

TEST(WeightStore, BiasThatTheConfigDoesNotSpeakOfIsNamed) {
  const auto loaded = load_after({}, [](TinyModel& m) {
    m.tensors[kPrefix + "layers.1.self_attn.o_proj.bias"] = zeros(DType::kF32, {32});
  });
  expect_error(loaded, ErrorCode::kUnsupported, {"layers.1.self_attn.o_proj.bias"});
}

TEST(WeightStore, PartsThatAreNotRunAreIgnored) {
  const auto loaded = load_after({}, [](TinyModel& m) {
    for (const char* name :
         {"vision_tower.blocks.0.attn.qkv.weight", "model.visual.merger.norm.weight",
          "model.vision_tower.patch.weight", "model.multi_modal_projector.norm.weight",
          "model.audio_tower.conv.weight", "model.embed_vision.projection.weight", "mtp.fc.weight",
          "language_model.mtp.layers.0.mlp.gate.weight",
          "language_model.model.layers.0.self_attn.rotary_emb.inv_freq"}) {
      m.tensors[name] = zeros(DType::kBf16, {3, 1, 2, 2, 2});
    }
  });
  EXPECT_TRUE(loaded.ok()) << loaded.error().to_string();
}

TEST(WeightStore, ModulesBesideAWrappedTextModelAreIgnoredByAnyName) {
  for (const std::string prefix : {"language_model.model.", "model.language_model."}) {
    const auto loaded = load_after({.prefix = prefix}, [](TinyModel& m) {
      for (const char* name : {"model.connector.modality_projection.proj.weight",
                               "model.merger.mlp.0.linear_1.bias", "patch_merge_mlp.fc.weight",
                               "model.generation_embeddings.weight", "projector_of_any_name"}) {
        m.tensors[name] = zeros(DType::kBf16, {3, 1});
      }
    });
    EXPECT_TRUE(loaded.ok()) << prefix << ": " << loaded.error().to_string();
  }
}

TEST(WeightStore, SecondTextBesideAWrappedOneIsNamed) {
  for (const char* name :
       {"model.layers.0.mlp.gate.weight", "layers.7.x.weight", "model.norm.bias", "lm_head.bias",
        "language_model.bonus.weight", "model.language_model.layers.0.x.weight"}) {
    const auto loaded =
        load_after({}, [&](TinyModel& m) { m.tensors[name] = zeros(DType::kF32, {2}); });
    expect_error(loaded, ErrorCode::kUnsupported, {name});
  }
}

TEST(WeightStore, ModulesBesideATextModelAloneAreNamed) {
  const auto loaded = load_after({.prefix = "model."}, [](TinyModel& m) {
    m.tensors["model.merger.weight"] = zeros(DType::kF32, {2});
  });
  expect_error(loaded, ErrorCode::kUnsupported, {"model.merger.weight"});
}

TEST(WeightStore, WrongShapeIsNamedWithBothShapes) {
  expect_error(
      load_after(
          {},
          [](TinyModel& m) {
            m.tensors[kPrefix + "layers.1.self_attn.k_proj.weight"] = zeros(DType::kF32, {16, 31});
          }),
      ErrorCode::kCorruption, {"self_attn.k_proj.weight", "[16, 31]", "[16, 32]"});
  expect_error(
      load_after(
          {}, [](TinyModel& m) { m.tensors[kPrefix + "norm.weight"] = zeros(DType::kF32, {33}); }),
      ErrorCode::kCorruption, {"norm.weight", "[33]", "[32]"});
  expect_error(load_after({},
                          [](TinyModel& m) {
                            m.tensors[kPrefix + "layers.0.mlp.switch_mlp.down_proj.weight"] =
                                zeros(DType::kF32, {3, 32, 32});
                          }),
               ErrorCode::kCorruption, {"switch_mlp.down_proj", "[3, 32, 32]", "[4, 32, 32]"});
}

TEST(WeightStore, ConfigThatContradictsTheWeightsNamesATensor) {
  expect_error(load_after({}, [](TinyModel& m) { m.config["hidden_size"] = 64; }),
               ErrorCode::kCorruption, {"tensor", "[64, 32]", "[64, 64]"});
  expect_error(load_after({}, [](TinyModel& m) { m.config["num_experts"] = 5; }),
               ErrorCode::kCorruption, {"mlp.gate", "[4, 32]", "[5, 32]"});
}

TEST(WeightStore, WrongDtypeIsNamed) {
  expect_error(
      load_after(
          {},
          [](TinyModel& m) {
            m.tensors[kPrefix + "layers.1.self_attn.k_proj.weight"] = zeros(DType::kI8, {16, 32});
          }),
      ErrorCode::kUnsupported, {"self_attn.k_proj.weight", "I8"});
  expect_error(
      load_after(
          {}, [](TinyModel& m) { m.tensors[kPrefix + "norm.weight"] = zeros(DType::kI32, {32}); }),
      ErrorCode::kCorruption, {"norm.weight", "I32"});
}

TEST(WeightStore, ScalesWithoutBiasesAreRefused) {
  const auto loaded = load_after({.bits = 4}, [](TinyModel& m) {
    m.tensors.erase(kPrefix + "layers.1.self_attn.k_proj.biases");
  });
  expect_error(loaded, ErrorCode::kUnsupported, {"self_attn.k_proj", "no biases"});
}

TEST(WeightStore, PackedWidthThatIsNoAffineMatrixIsRefused) {
  const auto loaded = load_after({.bits = 4}, [](TinyModel& m) {
    m.tensors[kPrefix + "layers.1.self_attn.k_proj.weight"] = zeros(DType::kU32, {16, 7});
  });
  expect_error(loaded, ErrorCode::kCorruption, {"self_attn.k_proj", "[16, 7]"});
}

TEST(WeightStore, ConfigMustNotContradictStoredBits) {
  const auto bits = [](int64_t value) {
    return [value](TinyModel& m) { m.config["quantization"]["bits"] = value; };
  };
  EXPECT_TRUE(load_after({.bits = 4}, bits(4)).ok());
  expect_error(load_after({.bits = 4}, bits(8)), ErrorCode::kCorruption,
               {"embed_tokens", "4 bits", "8 bits"});
  expect_error(
      load_after({.bits = 4}, [](TinyModel& m) { m.config["quantization"]["group_size"] = 64; }),
      ErrorCode::kCorruption, {"groups of 32", "groups of 64"});
}

TEST(WeightStore, ModuleMayHaveBitsOfItsOwn) {
  const std::string gate = kPrefix + "layers.1.mlp.gate";
  const auto eight_bits = make_tiny_model({.bits = 8});
  const auto with_override = [&](bool stated) {
    return load_after({.bits = 4}, [&](TinyModel& m) {
      for (const char* part : {".weight", ".scales", ".biases"}) {
        m.tensors[gate + part] = eight_bits.tensors.at(gate + part);
      }
      if (stated) m.config["quantization"][gate] = {{"bits", 8}, {"group_size", 32}};
    });
  };
  const auto stated = with_override(true);
  EXPECT_TRUE(stated.ok()) << stated.error().to_string();
  expect_error(with_override(false), ErrorCode::kCorruption,
               {"layers.1.mlp.gate", "8 bits", "4 bits"});
}

TEST(WeightStore, ExpertsOfOneLayerMustShareAFormat) {
  const auto loaded = load_after({.experts = ExpertNames::kSeparate}, [](TinyModel& m) {
    m.tensors[kPrefix + "layers.0.mlp.experts.2.up_proj.weight"] = zeros(DType::kBf16, {32, 32});
  });
  expect_error(loaded, ErrorCode::kUnsupported, {"experts.2.up_proj", "bf16", "f32"});
}

TEST(WeightStore, ScalesOfHalvesBelongToFusedExpertsAlone) {
  const auto loaded = load_after({}, [](TinyModel& m) {
    const std::string down = kPrefix + "layers.0.mlp.switch_mlp.down_proj.weight";
    m.tensors[down] = zeros(DType::kF8E4M3, {4, 32, 32});
    m.tensors[down + "_scale"] = zeros(DType::kF32, {4, 2, 1});
  });
  expect_error(loaded, ErrorCode::kCorruption,
               {"down_proj.weight_scale", "[4, 2, 1]", "one for each of 4 matrices"});
}

TEST(WeightStore, MissingExpertIsNamed) {
  const auto loaded = load_after({.experts = ExpertNames::kSeparate}, [](TinyModel& m) {
    m.tensors.erase(kPrefix + "layers.1.mlp.experts.3.down_proj.weight");
  });
  expect_error(loaded, ErrorCode::kNotFound, {"layers.1.mlp.experts.3.down_proj.weight"});
}

// The bytes of every expert's slot, read as the store would.
std::vector<std::string> slots_of(const TinyModel& model) {
  const TempFolder folder;
  model.write(folder.path());
  const std::unique_ptr<Device> device = testing::make_test_device({.device = "reference"});
  const auto loaded = load_model(folder.path(), *device, WeightLoading::kCheckOnly);
  EXPECT_TRUE(loaded.ok()) << (loaded.ok() ? "" : loaded.error().to_string());
  std::vector<std::string> slots;
  if (!loaded.ok()) return slots;
  for (const ExpertLayer& layer : (*loaded)->experts.layers) {
    for (int32_t expert = 0; expert < layer.num_experts; ++expert) {
      std::string slot(layer.slot_bytes, '\0');
      for (const ExpertExtent& extent : layer.extents_of(ExpertId{expert})) {
        const auto into =
            std::as_writable_bytes(std::span(slot)).subspan(extent.slot_offset, extent.bytes);
        EXPECT_TRUE((*loaded)->index.file(extent.file).read_at(extent.offset, into).ok());
      }
      slots.push_back(std::move(slot));
    }
  }
  return slots;
}

TEST(WeightStore, EverySpellingOfExpertsGivesTheSameSlots) {
  for (const int bits : {0, 4, 3}) {
    const auto stacked = slots_of(make_tiny_model({.bits = bits}));
    EXPECT_EQ(stacked.size(), 8u);
    EXPECT_NE(stacked[0], stacked[1]);
    for (const ExpertNames names : {ExpertNames::kFused, ExpertNames::kSeparate}) {
      EXPECT_EQ(slots_of(make_tiny_model({.experts = names, .bits = bits})), stacked) << bits;
    }
  }
}

std::vector<float> logits_of(const TinyOptions& options) {
  const TempFolder folder;
  make_tiny_model(options).write(folder.path());
  const std::vector<TokenId> tokens = {1, 5, 63, 0, 17, 17, 42, 8};
  return testing::run_model(folder.path(), tokens, {.expert_cache_bytes = 0}).logits;
}

TEST(WeightStore, SpellingDoesNotChangeABitOfTheLogits) {
  for (const int bits : {0, 4}) {
    const std::vector<float> expected = logits_of({.bits = bits});
    ASSERT_EQ(expected.size(), 8u * TinyModel::kVocab);
    for (const ExpertNames names :
         {ExpertNames::kStacked, ExpertNames::kFused, ExpertNames::kSeparate}) {
      for (const bool hugging_face : {false, true}) {
        for (const std::string prefix :
             {"language_model.model.", "model.language_model.", "model."}) {
          EXPECT_EQ(
              logits_of(
                  {.experts = names, .hugging_face = hugging_face, .prefix = prefix, .bits = bits}),
              expected)
              << "spelling " << static_cast<int>(names) << ", hugging_face " << hugging_face
              << ", prefix " << prefix << ", bits " << bits;
        }
      }
    }
  }
}

TEST(WeightStore, TiedHeadUsesTheEmbedding) {
  TinyModel untied = make_tiny_model({});
  untied.tensors["language_model.lm_head.weight"] =
      untied.tensors.at(kPrefix + "embed_tokens.weight");
  TinyModel tied = untied;
  tied.tensors.erase("language_model.lm_head.weight");
  tied.config["tie_word_embeddings"] = true;
  const std::vector<TokenId> tokens = {3, 9, 4};
  const TempFolder first;
  const TempFolder second;
  untied.write(first.path());
  tied.write(second.path());
  const std::vector<float> expected = testing::run_model(first.path(), tokens, {}).logits;
  ASSERT_FALSE(expected.empty());
  EXPECT_EQ(testing::run_model(second.path(), tokens, {}).logits, expected);
  tied.config["tie_word_embeddings"] = false;
  expect_error(load(tied), ErrorCode::kNotFound, {"lm_head.weight"});
}

}  // namespace
}  // namespace moeflux
