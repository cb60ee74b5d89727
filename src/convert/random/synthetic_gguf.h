// Random checkpoints of public models' exact shapes as GGUF, which other programs open too.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "checkpoint/gguf_writer.h"
#include "convert/random/synthetic.h"
#include "quant/ggml_types.h"

namespace moeflux {

struct SyntheticGguf {
  gguf::KeyWriter keys;
  SyntheticCheckpoint checkpoint;  // without config_json
};

/// A type for matrices of some names: "ffn_down_exps" means blk.0.ffn_down_exps.weight and those of
/// all other layers, "blk.2.ffn" the feed-forward matrices of one.
struct GgufNamedType {
  std::string begin;  // of a name, or of what follows a dot in it
  const GgmlType* type = nullptr;
};

/// The first layers of a model (0: all) with matrices mostly of `type`; the first of `named` that
/// a matrix's name fits decides instead. Routers, gates of one row and small tensors are F32. Fails
/// with kInvalidArgument for a type of which no random blocks can be made, for one of `named` that
/// fits no matrix or one whose rows are no whole blocks, and as config_like() and gguf_keys() do.
Result<SyntheticGguf> make_synthetic_gguf(std::string_view name, int64_t num_layers,
                                          const GgmlType& type,
                                          std::span<const GgufNamedType> named = {});

}  // namespace moeflux
