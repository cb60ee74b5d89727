// WeightStore: gives a family its weights by canonical name, checked for shape and format, placed
// on the device, and keeps account: a tensor that somebody missed and a tensor that nobody took are
// both reported by name.
#pragma once

#include <cstdint>
#include <functional>
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
  kAssume,     // there is no checkpoint: every claim succeeds and counts what it would take
};

/// What weights are taken to be stored as where there is no checkpoint and config.json does not
/// say: linear layers and embeddings in affine groups, routers in wider ones, the rest as bf16.
struct AssumedFormat {
  int bits = 4;
  int router_bits = 8;
  int group_size = 64;
};

/// How much the weights beside the routed experts take.
struct DenseSizes {
  uint64_t bytes = 0;         // on the device, small tensors as f32
  uint64_t stored_bytes = 0;  // in the checkpoint
  uint64_t parameters = 0;
  // Of these, of an embedding that is not the head as well: a token reads one row of it.
  uint64_t lookup_bytes = 0;
  uint64_t lookup_parameters = 0;
};

/// A linear module or embedding as the checkpoint holds it.
struct ClaimedModule {
  std::string name;  // complete, without ".weight"
  Shape shape;       // [leading..., rows, cols]
  QuantFormat format;
  bool is_router = false;
};

class WeightStore {
 public:
  struct Options {
    NameScheme scheme;
    int64_t num_layers = 0;
    WeightLoading loading = WeightLoading::kRead;
    AssumedFormat assumed = {};  // for kAssume
    /// Told, before each tensor, how many stored bytes there are up to its end; false stops
    /// reading, and finish() fails with kCancelled.
    std::function<bool(uint64_t stored_bytes)> progress = {};
  };

  /// All references must outlive the store; `device` also the weights.
  WeightStore(const TensorIndex& index, const QuantConfig& quant, Device& device, Options options);

  // Claims. A failed claim is remembered, returns a null view and surfaces in finish(): a family
  // claims in a row without checking each call, and the user sees what is missing at once.

  /// The linear module `name`: [rows, cols], from name.weight with name.scales and name.biases when
  /// quantised.
  Weight matrix(std::string_view name, int64_t rows, int64_t cols);
  /// A matrix of which head_linear() takes some rows per head: row-major on every device.
  Weight per_head_matrix(std::string_view name, int64_t rows, int64_t cols);
  /// A stack of matrices [heads, rows, cols] as one per_head_matrix() of heads * rows rows.
  Weight stacked_matrix(std::string_view name, int64_t heads, int64_t rows, int64_t cols);
  /// A matrix whose activations stay exact, and which checkpoints tend to store in more bits.
  Weight router(std::string_view name, int64_t num_experts, int64_t cols);
  /// The input embedding "embed_tokens", of which a token reads one row: row-major unless it will
  /// be the head as well.
  Weight embedding(int64_t vocab_size, int64_t hidden_size, bool tied);
  /// "lm_head", or `embedding` where the config ties them and the checkpoint has no head.
  Weight head(const Weight& embedding, int64_t vocab_size, int64_t hidden_size, bool tied);
  /// A small tensor as f32 [shape], from any float dtype; `name` is complete ("norm.weight").
  /// Extents of 1 in the file are ignored when shapes are compared. `add` is added to every
  /// element.
  Tensor vector(std::string_view name, const Shape& shape, float add = 0.0f);
  /// The routed experts of a layer: of the expert pack where the folder has one, otherwise below
  /// `prefix` ("layers.0.mlp"), in any of the spellings of expert_claims.cc. Nothing is read.
  void experts(LayerId layer, std::string_view prefix, const MoeSpec& moe, int64_t hidden_size);
  /// A tensor of one element, read to the host; 1 when only checking.
  float scalar(std::string_view name);
  /// f32 data computed by the family (rope frequencies).
  Tensor constant(std::span<const float> values);

  /// True also of the first gate matrix of experts that have moved into a pack: its name tells the
  /// checkpoint's naming scheme.
  bool has(std::string_view name) const;
  /// The entry of a canonical tensor name, or null.
  const TensorEntry* find(std::string_view name) const;
  /// The linear modules claimed so far, without routed experts.
  const std::vector<ClaimedModule>& modules() const { return modules_; }
  /// Of the weights claimed so far, without routed experts.
  const DenseSizes& sizes() const { return sizes_; }

  /// Fails with everything that was missing or wrong, else with every tensor that nobody took. Of
  /// each kind the first twenty are named and the others counted.
  Status finish();

  ExpertTable take_expert_table() { return std::move(experts_); }
  std::vector<std::unique_ptr<Buffer>> take_buffers() { return std::move(buffers_); }

 private:
  std::string full_name(std::string_view name) const;
  const TensorEntry* claim(const std::string& full_name);
  void fail(Error error);
  void fail_missing(const std::string& tensor);
  Status first_failures() const;
  /// Counts a tensor; true when its bytes are to be read.
  bool reads_after(uint64_t stored_bytes);
  Tensor place(size_t bytes, const Shape& shape, DType dtype);
  Tensor load(const std::string& full_name, const TensorEntry& entry);
  Status fill(const Tensor& tensor, const TensorEntry& entry);
  /// The format of a module and its tensors' names, checked against [leading..., rows, cols].
  std::optional<QuantFormat> module_format(const std::string& module, std::string_view weight_name,
                                           const Shape& shape);
  std::vector<const TensorEntry*> claim_module(const std::string& module,
                                               std::string_view weight_name,
                                               const QuantFormat& format);
  std::vector<float> read_floats(const std::string& full_name, const TensorEntry& entry);
  /// Whose order a matrix takes in memory.
  enum class Placement : uint8_t {
    kPreferred,  // the device's
    kAsStored,   // the checkpoint's: row-major
  };
  Weight take_module(std::string_view name, const Shape& shape, Placement placement);
  QuantFormat placed(const QuantFormat& stored, int64_t rows, int64_t cols) const;
  void place_experts(ExpertLayer& layer) const;
  Tensor load_tiled(const std::string& module, std::span<const TensorEntry* const> parts,
                    const Weight& weight);
  bool shares_head(bool tied) const { return tied && !has("lm_head.weight"); }
  bool assumes() const { return loading_ == WeightLoading::kAssume; }
  QuantFormat assumed_format(std::string_view module, int64_t cols, int bits) const;
  Weight assume_module(std::string_view name, const Shape& shape, int bits, Placement placement);
  void assume_experts(ExpertLayer& layer, const std::string& prefix, bool with_bias) const;
  bool packed_experts(ExpertLayer& layer, LayerId id, bool with_bias);
  Status check_pack_is_used() const;
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
  AssumedFormat assumed_;
  std::function<bool(uint64_t)> progress_;
  bool is_stopped_ = false;
  std::set<std::string, std::less<>> claimed_;
  std::set<int32_t> packed_claimed_;
  std::vector<ClaimedModule> modules_;
  std::vector<Error> errors_;         // but for missing tensors
  std::vector<std::string> missing_;  // tensors
  std::vector<std::unique_ptr<Buffer>> buffers_;
  Buffer* open_block_ = nullptr;  // one of buffers_, filled up to open_block_used_
  size_t open_block_used_ = 0;
  std::vector<std::byte> upload_piece_;  // on its way to memory that the host cannot address
  DenseSizes sizes_;
  ExpertTable experts_;
};

}  // namespace moeflux
