// Random checkpoints of public models' exact shapes as GGUF, which other programs open too.
#pragma once

#include <cstdint>
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

/// A matrix to which type_of_matrix() gives a type.
struct GgufMatrix {
  bool is_expert = false;
  bool is_embedding = false;  // a token reads one row
  bool is_head = false;       // may be both
  int64_t cols = 0;
};
/// The type of a matrix in a file of mostly `wanted`, as llama.cpp's quantiser chooses where
/// nothing has to be protected. The head is Q6_K. The lowest types leave the embedding more bits.
/// Rows that are no whole blocks get a type of shorter blocks. With MXFP4 all but experts is Q8_0.
const GgmlType& type_of_matrix(const GgmlType& wanted, const GgufMatrix& matrix);

/// The first layers of a model (0: all) with matrices mostly of `type`. Routers, gates of one row
/// and small tensors are F32. Fails with kInvalidArgument for a type of which no random blocks can
/// be made, and as config_like() and gguf_keys() do.
Result<SyntheticGguf> make_synthetic_gguf(std::string_view name, int64_t num_layers,
                                          const GgmlType& type);

}  // namespace moeflux
