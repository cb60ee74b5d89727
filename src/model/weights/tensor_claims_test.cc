#include "model/weights/tensor_claims.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "io/file.h"
#include "tests/support/io/memory_file.h"

namespace moeflux {
namespace {

TEST(TensorClaims, RenamesWholeComponentsInOrder) {
  const TensorIndex empty;
  const TensorClaims claims(empty, {.prefixes = {"model.", ""},
                                    .renamed = {{"mlp.gate", "feed_forward.router"},
                                                {"mlp", "feed_forward"},
                                                {"norm", "last_norm"}},
                                    .ignored_prefixes = {}});
  EXPECT_EQ(claims.full_name("layers.0.mlp.gate.weight"),
            "model.layers.0.feed_forward.router.weight");
  EXPECT_EQ(claims.full_name("layers.0.mlp.gate_proj.weight"),
            "model.layers.0.feed_forward.gate_proj.weight");
  EXPECT_EQ(claims.full_name("norm.weight"), "model.last_norm.weight");
  EXPECT_EQ(claims.full_name("layers.0.input_layernorm.weight"),
            "model.layers.0.input_layernorm.weight");
}

TEST(TensorClaims, SaysTheSameFailureOnce) {
  const TensorIndex empty;
  TensorClaims claims(empty, {.prefixes = {""}, .ignored_prefixes = {}});
  for (const char* const words : {"no memory", "a has 3 rows", "no memory"}) {
    claims.fail(Error(ErrorCode::kResourceExhausted, words));
  }
  claims.fail_missing("b");
  EXPECT_EQ(claims.finish().error().message(),
            "no memory; a has 3 rows; tensor b is missing from the checkpoint");
}

// transformers stores matrices without rows where a config asks for no shared expert.
TEST(TensorClaims, TensorsWithoutNumbersNeedNoUse) {
  TensorIndex::Entries entries;
  entries["a"] = {.dtype = DType::kBf16, .shape = {0, 4}};
  const TensorIndex empty = TensorIndex::from_parts({}, entries);
  EXPECT_TRUE(TensorClaims(empty, {.prefixes = {""}, .ignored_prefixes = {}}).finish().ok());
  entries["b"] = {.size_bytes = 8, .dtype = DType::kBf16, .shape = {1, 4}};
  const TensorIndex full = TensorIndex::from_parts({}, std::move(entries));
  const Status status = TensorClaims(full, {.prefixes = {""}, .ignored_prefixes = {}}).finish();
  EXPECT_EQ(status.error().message(),
            "tensor b is in the checkpoint and no part of the model uses it");
}

Status unclaimed(const std::string& name, const std::vector<float>& values,
                 const std::string& claimed) {
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  TensorIndex::Entries entries;
  entries[name] = {.size_bytes = bytes.size(),
                   .dtype = DType::kF32,
                   .shape = {static_cast<int64_t>(values.size())}};
  entries[claimed] = {.dtype = DType::kI32, .shape = {0}};
  std::vector<std::unique_ptr<File>> files;
  files.push_back(std::make_unique<MemoryFile>("model", bytes));
  const TensorIndex index = TensorIndex::from_parts(std::move(files), std::move(entries));
  TensorClaims claims(index, {.prefixes = {""}, .ignored_prefixes = {}});
  claims.claim(claimed);
  return claims.finish();
}

TEST(TensorClaims, ScalesOfCachesNeedNoUse) {
  for (const char* name : {"k_proj.k_scale", "v_proj.v_scale", "k_scale", "k_proj.output_scale"}) {
    EXPECT_TRUE(unclaimed(formatted("layers.0.self_attn.{}", name), {0.5f}, "a").ok()) << name;
  }
  for (const char* name : {"o_proj.output_scale", "k_proj.scale", "k_scale.weight"}) {
    EXPECT_FALSE(unclaimed(formatted("layers.0.self_attn.{}", name), {0.5f}, "a").ok()) << name;
  }
}

TEST(TensorClaims, BiasesOfZerosBesideGptqNeedNoUse) {
  EXPECT_TRUE(unclaimed("a.bias", {0.0f, 0.0f}, "a.qweight").ok());
  for (const Status& status :
       {unclaimed("a.bias", {0.0f, 0.5f}, "a.qweight"), unclaimed("a.bias", {0.0f}, "a.weight"),
        unclaimed("a.other", {0.0f}, "a.qweight")}) {
    EXPECT_EQ(status.error().code(), ErrorCode::kUnsupported);
  }
}

}  // namespace
}  // namespace moeflux
