// A GGUF file as families know models: the text of a config.json, and tensors by canonical names.
#pragma once

#include <string>

#include "base/result.h"
#include "checkpoint/gguf.h"
#include "checkpoint/tensor_index.h"

namespace moeflux {

/// The text of a config.json that says what the keys say. Keys of the architecture that nobody
/// knows are in it under their own names. Fails with kUnsupported for an unknown architecture,
/// listing the known ones; failures name the file.
Result<std::string> gguf_config(const gguf::Container& model);

/// The tensors by canonical names, as MLX spells modules: fused q, k and v as three views of their
/// rows, blocks of multi-token prediction left out. A tensor that the architecture does not know
/// keeps its own name, so that loading refuses it.
Result<TensorIndex> gguf_tensors(gguf::Container model);

}  // namespace moeflux
