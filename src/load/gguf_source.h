// A GGUF file, or a folder with one, as a source of a model.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "load/model_source.h"

namespace moeflux {

/// The GGUF file that `path` means: itself, whatever its name, when it begins with GGUF; in a
/// folder that is none of config.json and safetensors the only one, or the first part of the only
/// split set. Projectors of images, importance matrices and adapters do not count. Nullopt when
/// there is none; several fail with kInvalidArgument, listing them.
Result<std::optional<std::string>> find_gguf(const std::string& path);

/// `path` is what the model was named with, `place` what find_model_place() made of it, `file` what
/// find_gguf() found there.
Result<std::unique_ptr<ModelSource>> open_gguf_source(const std::string& path,
                                                      const std::string& file,
                                                      const std::string& place);

}  // namespace moeflux
