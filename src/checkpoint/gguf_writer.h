// The header of a GGUF file to be written, version 3, and where the tensors' bytes belong behind
// it. Needs no memory for those bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "quant/ggml_types.h"
#include "tensor/shape.h"

namespace moeflux::gguf {

/// Keys in the order of calls, as the file holds them.
class KeyWriter {
 public:
  void text(std::string_view key, std::string_view value);
  void u32(std::string_view key, int64_t value);  // that fits
  void f32(std::string_view key, double value);
  void flag(std::string_view key, bool value);
  /// An array of I32.
  void ints(std::string_view key, std::span<const int64_t> values);  // that fit

  uint64_t count() const { return count_; }
  const std::string& bytes() const { return bytes_; }

 private:
  void begin(std::string_view key, uint32_t type);

  uint64_t count_ = 0;
  std::string bytes_;
};

/// A tensor to come, of a readable type whose blocks its rows are whole numbers of.
struct PlannedTensor {
  std::string name;
  const GgmlType* type = nullptr;
  Shape shape;  // outermost first, as everywhere here

  uint64_t size_bytes() const;
};

/// The bytes of a file but for those of its tensors.
struct Layout {
  std::string header;            // up to the data section, with its padding
  std::vector<uint64_t> begins;  // of each tensor in the data section: multiples of 32
  uint64_t data_bytes = 0;       // of the data section, the last tensor's padding included
};
/// Fails with kInvalidArgument where Container::read() would refuse the result.
Result<Layout> lay_out_file(const KeyWriter& keys, std::span<const PlannedTensor> tensors);

}  // namespace moeflux::gguf
