#include "backend/metal/metal_text.h"

#include <algorithm>
#include <set>

#include "base/check.h"

namespace moeflux::gpu {
namespace {

constexpr std::string_view kInclude = "#include \"";

class Flattening {
 public:
  explicit Flattening(std::span<const SourceFile> files) : files_(files) {}

  void add(std::string_view path) {
    if (!added_.insert(path).second) return;
    const auto file = std::find_if(files_.begin(), files_.end(),
                                   [&](const SourceFile& f) { return f.path == path; });
    MF_CHECK(file != files_.end());
    std::string_view rest = file->text;
    while (!rest.empty()) {
      const size_t end = std::min(rest.find('\n'), rest.size() - 1) + 1;
      add_line(rest.substr(0, end));
      rest.remove_prefix(end);
    }
  }
  std::string take() { return std::move(text_); }

 private:
  void add_line(std::string_view line) {
    if (line.starts_with("#pragma once")) return;
    if (!line.starts_with(kInclude)) {
      text_ += line;
      return;
    }
    const std::string_view named = line.substr(kInclude.size());
    const size_t end = named.find('"');
    MF_CHECK(end != std::string_view::npos);
    add(named.substr(0, end));
  }

  std::span<const SourceFile> files_;
  std::set<std::string_view> added_;
  std::string text_;
};

}  // namespace

std::string flatten(std::span<const SourceFile> files, std::string_view path) {
  Flattening flattening(files);
  flattening.add(path);
  return flattening.take();
}

std::string metal_text() {
  return flatten(kernel_headers(), "backend/gpu/dialect/metal_kernels.h");
}

}  // namespace moeflux::gpu
