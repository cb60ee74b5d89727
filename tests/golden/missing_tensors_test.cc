// Checkpoints that lack a tensor, or have one of another shape, are refused by its name: each kind
// of tensor of every family, of which views that are cut or reshaped are null then.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/tensor_index.h"
#include "io/file.h"
#include "load/model_loader.h"
#include "model/family/family.h"
#include "model/weights/tensor_claims.h"
#include "model/weights/weight_store.h"
#include "tests/support/golden_families.h"
#include "tests/support/run_model.h"

namespace moeflux::testing {
namespace {

/// The name with its numbers left out, which tensors of all layers and experts have in common.
std::string kind_of(const std::string& name) {
  std::string kind;
  std::copy_if(name.begin(), name.end(), std::back_inserter(kind),
               [](char c) { return c < '0' || c > '9'; });
  return kind;
}

class MissingTensors : public ::testing::TestWithParam<std::string> {
 protected:
  /// Claims all weights of a checkpoint of these tensors.
  Status claim(TensorIndex::Entries entries) {
    std::vector<std::unique_ptr<File>> files;
    auto file = open_file(golden_folder(GetParam()) + "/model.safetensors");
    EXPECT_TRUE(file.ok());
    files.push_back(std::move(file).value());
    const TensorIndex index = TensorIndex::from_parts(std::move(files), std::move(entries));
    const Family& family = **find_family(spec_->model_type);
    WeightStore::Options options{.scheme = family.name_scheme(*spec_),
                                 .num_layers = spec_->num_layers(),
                                 .loading = WeightLoading::kCheckOnly};
    const QuantConfig quant;  // which the store refers to
    WeightStore weights(index, quant, *device_, std::move(options));
    const std::unique_ptr<Model> model = family.create(*spec_, weights);
    return weights.finish();
  }

  void SetUp() override {
    spec_ = read_model_spec(golden_folder(GetParam()));
    ASSERT_TRUE(spec_.ok()) << spec_.error().to_string();
    auto index = TensorIndex::open(golden_folder(GetParam()));
    ASSERT_TRUE(index.ok());
    entries_ = index->entries();
    device_ = make_test_device({.device = "reference"});
    const Family& family = **find_family(spec_->model_type);
    for (const auto& [name, entry] : entries_) {
      if (!left_out_part(name, family.name_scheme(*spec_)).empty()) continue;
      // Numbers of n-grams follow from the config.
      if (entry.dtype == DType::kI64 && name.find("ple_embedding") != std::string::npos) continue;
      kinds_.emplace(kind_of(name), name);
    }
  }

  Result<ModelSpec> spec_ = ModelSpec{};
  TensorIndex::Entries entries_;
  std::map<std::string, std::string> kinds_;  // the first tensor of each
  std::unique_ptr<Device> device_;
};

TEST_P(MissingTensors, EachKindIsMissed) {
  ASSERT_TRUE(claim(entries_).ok());
  for (const auto& [kind, name] : kinds_) {
    TensorIndex::Entries without = entries_;
    without.erase(name);
    EXPECT_FALSE(claim(std::move(without)).ok()) << name;
  }
}

TEST_P(MissingTensors, EachKindHasItsShape) {
  for (const auto& [kind, name] : kinds_) {
    TensorIndex::Entries other = entries_;
    TensorEntry& entry = other.find(name)->second;
    entry.shape = Shape{entry.shape.num_elements() + 1};
    const Status status = claim(std::move(other));
    ASSERT_FALSE(status.ok()) << name;
    EXPECT_NE(status.error().message().find(name), std::string::npos) << status.error().message();
  }
}

INSTANTIATE_TEST_SUITE_P(Families, MissingTensors, ::testing::ValuesIn(asked(golden_families())),
                         [](const auto& family) { return family.param; });

}  // namespace
}  // namespace moeflux::testing
