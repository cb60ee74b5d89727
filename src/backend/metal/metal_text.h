// The text of all kernels as Metal compiles it on the machine: one file without the includes that
// its parts have.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace moeflux::gpu {

struct SourceFile {
  std::string_view path;  // as #include "..." names it
  std::string_view text;
};

/// The file at `path` with every #include "..." replaced by what it names, each once, and without
/// #pragma once. An include that is not among `files` is a bug. #include <...> stays.
std::string flatten(std::span<const SourceFile> files, std::string_view path);

/// dialect/metal_kernels.h, flattened.
std::string metal_text();

/// The headers of the dialect and of kernels, embedded by the build.
std::span<const SourceFile> kernel_headers();

}  // namespace moeflux::gpu
