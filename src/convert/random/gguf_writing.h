// The keys of a GGUF file of a model: what gguf_config() undoes.
#pragma once

#include <string_view>

#include "base/result.h"
#include "checkpoint/gguf_writer.h"
#include "model/model_spec.h"

namespace moeflux {

/// `config_json` is the model's, from which `spec` was read. No vocabulary: the file says so, and
/// runs on token ids. Fails with kUnsupported for models that are not written as GGUF here, and
/// with kInvalidArgument when no layer has attention or none has experts.
Result<gguf::KeyWriter> gguf_keys(const ModelSpec& spec, std::string_view config_json,
                                  std::string_view name);

}  // namespace moeflux
