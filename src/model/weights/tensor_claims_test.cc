#include "model/weights/tensor_claims.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace moeflux
