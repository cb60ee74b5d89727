// A GGUF file as families know models: the text of a config.json, and tensors by canonical names.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "checkpoint/gguf.h"
#include "checkpoint/tensor_index.h"
#include "model/gguf/gguf_architecture.h"

namespace moeflux {

/// The text of a config.json that says what the keys say. Keys of the architecture that nobody
/// knows are in it under their own names. Fails with kUnsupported for an unknown architecture,
/// listing the known ones; failures name the file.
Result<std::string> gguf_config(const gguf::Container& model);

/// One line about tensors that the text model leaves alone; empty where there are none.
Result<std::string> gguf_left_alone(const gguf::Container& model, int64_t draft_blocks = 0);

/// The tensors by canonical names, as MLX spells modules: fused q, k and v as three views of their
/// rows, encoders of pictures and sound left out, and all but the first `draft_blocks` blocks of
/// multi-token prediction. A tensor that the architecture does not know keeps its own name, so that
/// loading refuses it.
Result<TensorIndex> gguf_tensors(gguf::Container model, int64_t draft_blocks = 0);

/// The architecture that a GGUF file of such models names. Fails with kUnsupported where such files
/// are not written here.
Result<const GgufArchitecture*> gguf_architecture_of(std::string_view model_type);
/// A canonical name ("layers.7.self_attn.q_proj.weight") as files of the architecture have it
/// ("blk.7.attn_q.weight"): what gguf_tensors() undoes. A name that it does not know stays.
std::string gguf_name(const GgufArchitecture& architecture, std::string_view canonical);

}  // namespace moeflux
