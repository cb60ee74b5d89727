// Where the model lies that a path means: people name the roots of download caches, the folders of
// other programs, one of several files, or a file that stands in for a model.
#pragma once

#include <string>

#include "base/result.h"

namespace moeflux {

/// A folder with a model, or a GGUF file. A file that is a folder's config.json or weights leads to
/// the folder, and a model's root in Hugging Face's cache to the snapshot that refs/main names.
/// A blob of that cache, or a manifest of Ollama's, leads to what it stands for. A folder of
/// folders leads, down to the third below, to the only model in it. Folders in which nothing is
/// known stay as they are.
///
/// Fails with kInvalidArgument where there are several models, listing them, and with kNotFound or
/// kUnsupported where there is none: in one line that says what `path` is and what to do.
Result<std::string> find_model_place(const std::string& path);

/// A description of a folder without config.json, for a message; empty where nothing is known.
std::string describe_folder(const std::string& path);

}  // namespace moeflux
