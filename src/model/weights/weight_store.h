// WeightStore: gives a family its weights by canonical name, checked for shape and format, placed
// on the device and counted. tensor_claims.h knows which tensors are missing, weight_origin.h the
// format of a module, weight_reads.h the reads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/device.h"
#include "backend/ops/gated_ffn.h"
#include "base/result.h"
#include "checkpoint/tensor_index.h"
#include "experts/expert_table.h"
#include "model/config/quant_config.h"
#include "model/model_spec.h"
#include "model/weights/layer_ring.h"
#include "model/weights/ngram_table.h"
#include "model/weights/tensor_claims.h"
#include "model/weights/weight_origin.h"
#include "model/weights/weight_reads.h"
#include "quant/weight.h"

namespace moeflux {

enum class WeightLoading : uint8_t {
  kRead,       // weights are read from the checkpoint
  kCheckOnly,  // everything is checked and counted, nothing read: for inspection and dry runs
  kAssume,     // there is no checkpoint: every claim succeeds and counts what it would take
};

/// How much the weights beside the routed experts take.
struct DenseSizes {
  uint64_t bytes = 0;                      // in memory, small tensors as f32
  uint64_t host_bytes = 0;                 // of these, in the host's memory by DensePlaces
  uint64_t streamed_bytes = 0;             // of layers in a ring, which are in none of these
  uint64_t placed_bytes = 0;               // with what WeightReads::kPlaceAlignment adds
  std::vector<uint64_t> layer_bytes = {};  // of these, by layer up to the last that has any
  uint64_t stored_bytes = 0;               // in the checkpoint
  uint64_t parameters = 0;
  // The part in an embedding that is not the head as well: a token reads one row of it.
  uint64_t lookup_bytes = 0;
  uint64_t lookup_parameters = 0;
  // Tables of which tokens read a few rows where they are stored: in none of the others.
  uint64_t table_bytes = 0;
  uint64_t table_parameters = 0;
};

/// The layer of which a tensor of this canonical name is a part, if any.
std::optional<LayerId> layer_of(std::string_view canonical);

/// A linear module or embedding as the checkpoint holds it, or is assumed to.
struct ClaimedModule {
  std::string name;  // complete, without ".weight"
  Shape shape;       // [leading..., rows, cols]
  QuantFormat format;
  bool is_router = false;
  bool is_table = false;    // a part of one, which stays where it is stored
  bool is_network = false;  // one of a gated network's, see WeightStore::add_network()
  std::string canonical;    // the name that the family uses
  StoredModule stored;
  /// The layer whose device has it: its own, the first of a table, the last of a head. None: each
  /// of several devices has a copy.
  std::optional<LayerId> beside = {};
  uint64_t placed_bytes = 0;   // in memory, with what WeightReads::kPlaceAlignment adds
  uint64_t landing_bytes = 0;  // as stored, where that is not as it is in memory

  /// The layer that it is a part of, if any.
  std::optional<LayerId> layer() const { return layer_of(canonical); }
};

/// A small tensor as the checkpoint holds it, or is assumed to.
struct ClaimedFloats {
  std::string canonical;
  Shape shape;  // as the family sees it
  StoredFloats stored;
  std::function<float(float)> map;  // the family's function of each number
  int64_t ids_below = 0;            // not 0: whole numbers below it, i32 in memory
};

/// A layer's network whose matrices all lie in memory of the host by DensePlaces.
struct FarNetwork {
  LayerId layer{};
  GluWeights weights;
};

/// The dense weights that lie in memory of the host and that the device reads there.
struct DensePlaces {
  std::vector<bool> on_host;  // by module in the order of claims; those behind its end do not
  // The sum of all places in either memory, with alignment; 0: memory of its own for each.
  uint64_t device_bytes = 0;
  uint64_t host_bytes = 0;
  // On a device made of several those of layers, by part: device_bytes has what each has a copy of.
  std::vector<uint64_t> part_bytes = {};
  LayerRing ring = {};  // in neither
};

class WeightStore {
 public:
  struct Options {
    NameScheme scheme;
    int64_t num_layers = 0;
    WeightLoading loading = WeightLoading::kRead;
    AssumedFormat assumed = {};  // for kAssume
    DensePlaces places = {};
  };

  /// All references must outlive the store; `device` also the weights.
  WeightStore(const TensorIndex& index, const QuantConfig& quant, Device& device, Options options);
  WeightStore(const WeightStore&) = delete;
  WeightStore& operator=(const WeightStore&) = delete;

  // Claims. A failed claim is remembered, returns a null view and surfaces in finish(): a family
  // claims in a row without checking each call, and the user sees what is missing at once. Views
  // are zeros until read().

  /// The linear module `name`: [rows, cols], from name.weight with name.scales and name.biases when
  /// quantised, or from a tensor of that name.
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
  /// The first vocab_size rows of "lm_head", which has as many or padded_size of them.
  Weight padded_head(int64_t vocab_size, int64_t padded_size, int64_t hidden_size);
  /// Says that the modules claimed since there were `modules_before` are those of a network for
  /// every token, which GatedFfn computes.
  void add_network(const GluWeights& network, size_t modules_before);
  /// A small tensor as f32 [shape], from any float dtype; `name` is complete ("norm.weight").
  /// Extents of 1 in the file are ignored when shapes are compared. `add` is added to every
  /// element.
  Tensor vector(std::string_view name, const Shape& shape, float add = 0.0f);
  /// The same with each element mapped as it is read.
  Tensor mapped_vector(std::string_view name, const Shape& shape,
                       const std::function<float(float)>& map);
  /// A table of ids as i32 [shape], each of which is in [0, below).
  Tensor ids(std::string_view name, const Shape& shape, int64_t below);
  /// The routed experts of a layer: of the expert pack where the folder has one, otherwise below
  /// `prefix` ("layers.0.mlp"), in any of the spellings of expert_claims.cc. Nothing is read.
  void experts(LayerId layer, std::string_view prefix, const MoeSpec& moe, int64_t hidden_size);
  /// The table of a layer's n-gram embedding, of which nothing is read, in spec.parts matrices
  /// `name`.shard_0 and so on, or in one of spec.table_rows called `name`. Its numbers are those
  /// stored below `hashes`, or those of make_hashes() where there are none.
  void ngram_table(LayerId layer, std::string_view name, std::string_view hashes,
                   const NgramSpec& spec, int64_t vocab_size);
  /// A convolution's weights [channels, taps], as f32 [channels, (taps - 1) * step + 1] with zeros
  /// between: taps that are `step` tokens apart.
  Tensor spread_taps(std::string_view name, int64_t channels, int64_t taps, int64_t step);
  /// A small tensor as a matrix of f32, whose activations stay exact. `stored` is its shape in the
  /// file, where that is another.
  Weight float_matrix(std::string_view name, int64_t rows, int64_t cols, const Shape& stored = {});
  /// A small tensor of `count` elements, read to the host at once; `absent` each unless loading is
  /// kRead. Layers may claim the same one.
  std::vector<float> host_vector(std::string_view name, int64_t count, float absent);
  /// f32 data computed by the family (rope frequencies).
  Tensor constant(std::span<const float> values);

  /// A tensor of that name; of "M.weight" also what a quantised module M has in its place.
  bool has(std::string_view name) const;
  /// The entry of a canonical tensor name, or null.
  const TensorEntry* find(std::string_view name) const {
    return claims_.index().find(claims_.full_name(name));
  }
  /// The linear modules claimed so far, without routed experts.
  const std::vector<ClaimedModule>& modules() const { return modules_; }
  /// The small tensors claimed so far.
  const std::vector<ClaimedFloats>& floats() const { return floats_; }
  /// By layer, what experts() was called with; empty where it was not.
  const std::vector<std::string>& expert_prefixes() const { return expert_prefixes_; }
  /// Sizes of the weights claimed so far, without routed experts.
  const DenseSizes& sizes() const { return sizes_; }

  Status finish() const { return claims_.finish(); }
  /// Fills what has been claimed; for kRead, after finish().
  Status read(const ReadProgress& progress = {}) { return reads_.run(progress); }

  ExpertTable take_expert_table() { return std::move(experts_); }
  std::vector<NgramTable> take_ngram_tables() { return std::move(ngram_tables_); }
  std::vector<StreamedModule> take_streamed() { return std::move(streamed_); }
  std::vector<FarNetwork> take_far_networks() { return std::move(far_networks_); }
  std::vector<std::unique_ptr<Buffer>> take_buffers();

 private:
  /// The order of a matrix in memory.
  enum class Placement : uint8_t {
    kPreferred,  // the device's
    kAsStored,   // the checkpoint's: row-major
  };
  Weight take_module(std::string_view name, const Shape& shape, Placement placement,
                     bool is_router = false);
  Tensor place(std::string_view name, size_t bytes, const Shape& shape, DType dtype,
               MemoryKind kind = MemoryKind::kDevice);
  Tensor place_in_ring(const Tensor& part, LayerId layer, const StoredPart& from);
  void open_blocks();
  void open_ring();
  bool take_integers(const std::string& name, std::vector<int64_t>& values);
  std::optional<LayerId> layer_beside(std::string_view name) const;  // see ClaimedModule
  bool shares_head(bool tied) const { return tied && !has("lm_head.weight"); }

  Device& device_;
  WeightLoading loading_;
  TensorClaims claims_;
  std::unique_ptr<WeightOrigin> origin_;
  WeightReads reads_;
  DensePlaces places_;
  std::vector<std::unique_ptr<Buffer>> slots_;  // of places_.ring
  std::vector<uint64_t> slot_used_;             // bytes of its slot, by layer
  std::vector<StreamedModule> streamed_;
  std::vector<FarNetwork> far_networks_;
  std::vector<ClaimedModule> modules_;
  std::vector<ClaimedFloats> floats_;
  std::vector<std::string> expert_prefixes_;
  bool table_is_apart_ = false;  // from the head
  DenseSizes sizes_;
  ExpertTable experts_;
  std::vector<NgramTable> ngram_tables_;
};

}  // namespace moeflux
