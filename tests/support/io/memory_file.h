// MemoryFile: a File over bytes, for tests and fuzz targets. Thread-safe like every File.
#pragma once

#include <string>
#include <vector>

#include "io/file.h"

namespace moeflux {

class MemoryFile final : public File {
 public:
  /// `path` only appears in messages.
  MemoryFile(std::string path, std::span<const std::byte> bytes)
      : path_(std::move(path)), bytes_(bytes.begin(), bytes.end()) {}
  MemoryFile(std::string path, std::string_view text)
      : MemoryFile(std::move(path), std::as_bytes(std::span(text.data(), text.size()))) {}

  const std::string& path() const override { return path_; }
  uint64_t size_bytes() const override { return bytes_.size(); }
  Status read_at(uint64_t offset, std::span<std::byte> into) const override;

 private:
  std::string path_;
  std::vector<std::byte> bytes_;
};

}  // namespace moeflux
