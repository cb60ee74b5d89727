// The source of a packing: a model folder, or anything that looks like one.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/tensor_index.h"

namespace moeflux {

/// A small file that goes into the packed folder as it is: tokenizer, templates, licences, and the
/// configs of modules that modules.json names ("1_Pooling/config.json").
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

/// Writes them into a folder that exists, and into folders in it where their names have some.
Status write_side_files(const std::string& directory, std::span<const SideFile> files);

}  // namespace moeflux
