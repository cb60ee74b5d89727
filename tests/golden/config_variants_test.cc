// Options of config.json that the random models of the tree do not have: other values of keys, on
// their tensors, against what transformers computes (tools/oracles/option_golden.py) or by what
// must follow from them.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/tensor_index.h"
#include "tests/support/golden_file.h"
#include "tests/support/run_model.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {
namespace {

/// A model of the tree with another config, and without tensors that are not wanted or with those
/// of a further file.
class Variant {
 public:
  Variant(const std::string& model, const std::function<void(Json&)>& change,
          const std::function<bool(const std::string&)>& is_wanted = {}) {
    const std::string folder = tests_directory() + "/golden/models/" + model;
    auto config = parse_json(read_bytes(folder + "/config.json"), model);
    EXPECT_TRUE(config.ok());
    change(*config);
    write_bytes(folder_ / "config.json", config->dump());
    if (is_wanted) {
      write_tensors(folder, is_wanted);
    } else {
      write_bytes(folder_ / "model.safetensors", read_bytes(folder + "/model.safetensors"));
    }
  }
  void add_tensors(const std::string& path) {
    std::filesystem::rename(folder_ / "model.safetensors",
                            folder_ / "model-00001-of-00002.safetensors");
    write_bytes(folder_ / "model-00002-of-00002.safetensors", read_bytes(path));
  }
  RunOutput run(std::span<const TokenId> tokens, const std::string& device = "reference",
                std::vector<int64_t> chunks = {}) const {
    return run_model(folder_.path(), tokens, {.device = device, .chunks = std::move(chunks)});
  }

 private:
  void write_tensors(const std::string& folder,
                     const std::function<bool(const std::string&)>& is_wanted) {
    const auto index = TensorIndex::open(folder);
    ASSERT_TRUE(index.ok());
    std::vector<std::vector<std::byte>> bytes;
    std::vector<safetensors::WriteEntry> entries;
    bytes.reserve(index->entries().size());
    for (const auto& [name, entry] : index->entries()) {
      if (!is_wanted(name)) continue;
      bytes.emplace_back(entry.size_bytes);
      ASSERT_TRUE(read_tensor(*index, entry, bytes.back()).ok());
      entries.push_back({name, entry.dtype, entry.shape, bytes.back()});
    }
    ASSERT_TRUE(safetensors::write_file(folder_ / "model.safetensors", entries, {}).ok());
  }

  TempFolder folder_;
};

/// Compares the logits of some positions on each kind of device.
void expect_logits(const Variant& model, const std::string& golden_path) {
  auto golden = read_golden(golden_path);
  const std::vector<int32_t>& positions = golden["positions"].ints;
  ASSERT_GE(positions.size(), 8u);
  for (const char* device : {"reference", "cpu", "emulator with matrix units"}) {
    const RunOutput run = model.run(golden["tokens"].ints, device);
    ASSERT_FALSE(run.logits.empty());
    for (size_t i = 0; i < positions.size(); ++i) {
      EXPECT_GE(cosine(run.row(positions[i]), golden["logits"].row(static_cast<int64_t>(i))),
                0.9999)
          << device << ", position " << positions[i];
    }
  }
}

const std::string kOptions = tests_directory() + "/golden/options/";

std::vector<std::string> option_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kOptions)) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class OptionGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(OptionGolden, TheReferenceIsMet) {
  const auto option = parse_json(read_bytes(kOptions + GetParam() + ".json"), GetParam());
  ASSERT_TRUE(option.ok());
  const Json& changes = (*option)["changes"];
  const auto change = [&](Json& config) {
    for (const auto& [key, value] : changes.items()) {
      if (value.is_null()) {
        config.erase(key);
      } else {
        config[key] = value;
      }
    }
  };
  std::function<bool(const std::string&)> is_wanted;
  if (option->contains("without")) {
    is_wanted = [without = (*option)["without"]](const std::string& name) {
      return std::ranges::none_of(without, [&](const Json& part) {
        return name.find(part.get<std::string>()) != std::string::npos;
      });
    };
  }
  Variant model((*option)["model"], change, is_wanted);
  const std::string added = kOptions + GetParam() + ".tensors";
  if (std::filesystem::exists(added)) model.add_tensors(added);
  expect_logits(model, kOptions + GetParam() + ".safetensors");
}

INSTANTIATE_TEST_SUITE_P(Options, OptionGolden, ::testing::ValuesIn(option_names()),
                         [](const auto& option) { return option.param; });

TEST(ConfigVariants, LagunaCapsTheLogitsOfItsRouter) {
  expect_logits(Variant("laguna", [](Json& c) { c["moe_router_logit_softcapping"] = 0.5; }),
                tests_directory() + "/golden/formats/laguna_soft_cap.safetensors");
}

// As the published files of A.X-K1 are.
TEST(ConfigVariants, RoutersOfAxk1MayHaveNoBias) {
  auto golden = read_golden(tests_directory() + "/golden/models/axk1/golden.safetensors");
  const Variant plain(
      "axk1", [](Json&) {},
      [](const std::string& name) { return !name.ends_with("e_score_correction_bias"); });
  const RunOutput run = plain.run(golden["tokens"].ints);
  ASSERT_EQ(run.logits.size(), golden["logits"].floats.size());
  EXPECT_NE(run.logits, golden["logits"].floats);
  EXPECT_GE(cosine(run.row(0), golden["logits"].row(0)), 0.5);
}

void share_choice(Json& config, int64_t chosen) {
  config["indexer_types"] = {"full", "full", "full", "shared"};
  config["index_topk"] = chosen;
}
bool is_not_of_last_index(const std::string& name) {
  return name.find("layers.3.self_attn.indexer.") == std::string::npos;
}

TEST(ConfigVariants, LayersOfGlmFlashMayShareAnIndex) {
  const std::vector<TokenId> tokens =
      read_golden(tests_directory() + "/golden/models/glm5_next_text/golden.safetensors")["tokens"]
          .ints;
  const auto shared = [](int64_t chosen) {
    return Variant(
        "glm5_next_text", [&](Json& c) { share_choice(c, chosen); }, is_not_of_last_index);
  };
  const auto full = [](int64_t chosen) {
    return Variant("glm5_next_text", [&](Json& c) { c["index_topk"] = chosen; });
  };
  // Where every token may be seen, whose choice it is does not matter.
  const std::vector<float> all = full(64).run(tokens).logits;
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(shared(64).run(tokens).logits, all);
  // Where a few are chosen, it does; and chunks change nothing.
  const Variant few = shared(8);
  const std::vector<float> chosen = few.run(tokens).logits;
  ASSERT_FALSE(chosen.empty());
  EXPECT_NE(chosen, full(8).run(tokens).logits);
  EXPECT_EQ(few.run(tokens, "reference", {7, 1, 20, 3}).logits, chosen);
}

}  // namespace
}  // namespace moeflux::testing
