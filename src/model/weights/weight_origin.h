// WeightOrigin: in what format each module of a model is stored, and in which tensors. Two of them:
// a checkpoint, and an assumption where there is none.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/device.h"
#include "checkpoint/tensor_index.h"
#include "experts/expert_table.h"
#include "model/config/quant_config.h"
#include "model/weights/tensor_claims.h"
#include "quant/format.h"
#include "quant/ggml_types.h"

namespace moeflux {

/// Formats that are assumed where there is no checkpoint and config.json does not say: linear
/// layers and embeddings in affine groups, routers in wider ones, the rest as bf16. Or those of a
/// GGUF file of mostly `type`, whatever config.json says, with routers and the rest as f32.
struct AssumedFormat {
  int bits = 4;
  int router_bits = 8;
  int group_size = 64;
  const GgmlType* type = nullptr;
  bool ties_embedding = false;  // which is the head, too; loading says so

  /// The format that linear layers are taken to have: "affine-4/64", or "IQ3_S".
  std::string to_string() const;
};

/// A tensor that holds a part of a module.
struct StoredPart {
  std::string name;                    // complete
  const TensorEntry* entry = nullptr;  // null when assumed
};

/// A linear module or embedding as it is stored.
struct StoredModule {
  std::string name;                 // complete, without ".weight"
  QuantFormat format;               // row-major
  Parts<StoredPart> parts;          // parts that the format has
  std::vector<std::string> others;  // tensors of the module that hold no part of it
  bool is_assumed() const { return parts.codes.entry == nullptr; }
};

/// A small tensor of floats, or of ids, as it is stored.
struct StoredFloats {
  std::string name;                    // complete
  const TensorEntry* entry = nullptr;  // null when assumed
  uint64_t stored_bytes = 0;
};

/// Failures go to the claims that the origin was made with; the answer is nullopt then.
class WeightOrigin {
 public:
  virtual ~WeightOrigin() = default;
  /// The module of canonical name `name`, [leading..., rows, cols].
  virtual std::optional<StoredModule> module(std::string_view name, const Shape& shape,
                                             bool is_router) = 0;
  /// Extents of 1 are ignored when shapes are compared.
  virtual std::optional<StoredFloats> floats(std::string_view name, const Shape& shape) = 0;
  /// The same of whole numbers of 32 or 64 bits.
  virtual std::optional<StoredFloats> ids(std::string_view name, const Shape& shape) = 0;
  /// Completes a layer of which the numbers and shapes are known: formats, orders, extents.
  virtual std::optional<ExpertLayer> experts(LayerId id, std::string_view prefix, ExpertLayer layer,
                                             bool with_bias) = 0;
};

/// References must outlive the origin.
std::unique_ptr<WeightOrigin> make_checkpoint_origin(TensorClaims& claims, const QuantConfig& quant,
                                                     const Device& device);
std::unique_ptr<WeightOrigin> make_assumed_origin(const NameScheme& scheme,
                                                  const QuantConfig& quant, const Device& device,
                                                  const AssumedFormat& assumed);

}  // namespace moeflux
