// WeightStore: gives a family its weights by canonical name, checked for shape and format, placed
// on the device, and keeps account: a tensor that somebody missed and a tensor that nobody took are
// both reported by name.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "backend/device.h"
#include "base/result.h"
#include "checkpoint/tensor_index.h"
#include "experts/expert_table.h"
#include "model/model_spec.h"
#include "model/quant_config.h"
#include "quant/weight.h"

namespace moeflux {

/// How a family's canonical names ("layers.0.mlp.gate") become names in a checkpoint.
struct NameScheme {
  /// Prepended to canonical names, first match wins: "language_model.model.", "model.", "".
  std::vector<std::string> prefixes;
  /// Tensors whose name starts with one of these belong to parts we do not run (vision towers, MTP
  /// heads).
  std::vector<std::string> ignored_prefixes;
};

enum class WeightLoading : uint8_t {
  kRead,       // weights are read from the checkpoint
  kCheckOnly,  // everything is checked and counted, nothing read: for inspection and dry runs
};

class WeightStore {
 public:
  struct Options {
    NameScheme scheme;
    int64_t num_layers = 0;
    WeightLoading loading = WeightLoading::kRead;
  };

  /// All references must outlive the store; `device` also the weights.
  WeightStore(const TensorIndex& index, const QuantConfig& quant, Device& device, Options options);

  // Claims. A failed claim is remembered, returns a null view and surfaces in finish(): a family
  // claims in a row without checking each call, and the user sees every missing tensor at once.

  /// The linear module `name`: [rows, cols], from name.weight with name.scales and name.biases when
  /// quantised.
  Weight matrix(std::string_view name, int64_t rows, int64_t cols);
  /// A stack of matrices [heads, rows, cols] as one matrix of heads * rows rows.
  Weight stacked_matrix(std::string_view name, int64_t heads, int64_t rows, int64_t cols);
  /// A small tensor as f32 [shape], from any float dtype; `name` is complete ("norm.weight").
  /// Extents of 1 in the file are ignored when shapes are compared. `add` is added to every
  /// element.
  Tensor vector(std::string_view name, const Shape& shape, float add = 0.0f);
  /// The routed experts of a layer below `prefix` ("layers.0.mlp"), in any of the spellings of
  /// expert_claims.cc. Nothing is read.
  void experts(LayerId layer, std::string_view prefix, const MoeSpec& moe, int64_t hidden_size);
  /// A tensor of one element, read to the host; 1 when only checking.
  float scalar(std::string_view name);
  /// f32 data computed by the family (rope frequencies).
  Tensor constant(std::span<const float> values);

  bool has(std::string_view name) const { return find(name) != nullptr; }
  /// The entry of a canonical tensor name, or null.
  const TensorEntry* find(std::string_view name) const;
  /// Bytes of the resident weights claimed so far.
  uint64_t resident_bytes() const { return resident_bytes_; }
  /// Elements of the resident weights claimed so far.
  uint64_t resident_parameters() const { return resident_parameters_; }

  /// Fails with everything that was missing or wrong, and with every tensor that nobody took.
  Status finish();

  ExpertTable take_expert_table() { return std::move(experts_); }
  std::vector<std::unique_ptr<Buffer>> take_buffers() { return std::move(buffers_); }

 private:
  std::string full_name(std::string_view name) const;
  const TensorEntry* claim(const std::string& full_name);
  void fail(Error error);
  Tensor place(size_t bytes, const Shape& shape, DType dtype);
  Tensor load(const std::string& full_name, const TensorEntry& entry);
  /// The format of a module and its tensors' names, checked against [leading..., rows, cols].
  std::optional<QuantFormat> module_format(const std::string& module, std::string_view weight_name,
                                           const Shape& shape);
  std::vector<const TensorEntry*> claim_module(const std::string& module,
                                               std::string_view weight_name,
                                               const QuantFormat& format);
  std::vector<float> read_floats(const std::string& full_name, const TensorEntry& entry);
  Weight take_module(std::string_view name, const Shape& shape);
  const TensorEntry* claim_bias(const std::string& name, const Shape& shape, DType dtype);
  bool stacked_experts(ExpertLayer& layer, const std::string& prefix, bool with_bias);
  bool fused_experts(ExpertLayer& layer, const std::string& prefix);
  bool fused_input_major_experts(ExpertLayer& layer, const std::string& prefix);
  bool separate_experts(ExpertLayer& layer, const std::string& prefix,
                        std::span<const std::string_view> projections);

  const TensorIndex& index_;
  const QuantConfig& quant_;
  Device& device_;
  NameScheme scheme_;
  WeightLoading loading_;
  std::set<std::string, std::less<>> claimed_;
  std::vector<Error> errors_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  Buffer* open_block_ = nullptr;  // one of buffers_, filled up to open_block_used_
  size_t open_block_used_ = 0;
  uint64_t resident_bytes_ = 0;
  uint64_t resident_parameters_ = 0;
  ExpertTable experts_;
};

}  // namespace moeflux
