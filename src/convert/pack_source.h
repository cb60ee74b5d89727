// The source of a packing: a model folder, or anything that looks like one.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/tensor_index.h"

namespace moeflux {

/// A small file that goes into the packed folder as it is: tokenizer, templates, licences.
struct SideFile {
  std::string name;
  std::string contents;
};

struct PackSource {
  std::string name;       // for messages
  std::string directory;  // empty when it lies nowhere
  std::string identity;   // unlike that of sources of the same tensors; may be empty
  std::string config_json;
  TensorIndex index;
  std::vector<SideFile> side_files;
};

/// A model folder, which may be a pack itself, or a GGUF file. Vocabulary, chat template and
/// sampling defaults of the latter become a side file kGgufKeysName.
Result<PackSource> open_pack_source(const std::string& directory);

}  // namespace moeflux
