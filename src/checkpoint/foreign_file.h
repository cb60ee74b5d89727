// Names a file that was taken for weights and has none: something that stands in for a download, or
// another format.
#pragma once

#include <string>

#include "io/file.h"

namespace moeflux {

/// "a Git LFS pointer, not the file that it stands for: run git lfs pull" and the like, by the
/// first bytes and the end of the name. Empty where nothing is known.
std::string foreign_kind(const File& file);

/// True of a text that stands for a file which Git LFS has not fetched.
bool is_lfs_pointer(std::string_view text);

/// True of names that belong to the system or stand beside a model and are no part of it: "._a",
/// adapters, projectors of pictures, importance matrices, what downloads have not finished.
bool is_beside_model(std::string_view name);
/// True of a projector of pictures by its name ("mmproj").
bool is_projector(std::string_view name);

/// How such a text is called in messages, with what to do.
inline constexpr std::string_view kLfsPointerText =
    "a Git LFS pointer, not the file that it stands for: run \"git lfs pull\" in its folder, or "
    "download the file itself";

}  // namespace moeflux
