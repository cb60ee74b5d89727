// Writes a safetensors file whose tensors are known before their bytes: the header first, then the
// bytes in any pieces. Needs no memory for them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "io/file.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace moeflux::safetensors {

/// A tensor to come; size_bytes must equal shape x dtype.
struct PlannedTensor {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  uint64_t size_bytes = 0;
};

/// The file appears under its name when commit() succeeds; without it nothing is left behind.
class StreamWriter {
 public:
  /// Plans tensors one after another in the given order, the data section 8-byte aligned, and
  /// writes the header. Fails with kInvalidArgument where read_header() would refuse the result.
  static Result<std::unique_ptr<StreamWriter>> create(
      const std::string& path, std::span<const PlannedTensor> tensors,
      const std::map<std::string, std::string>& metadata);

  /// The next bytes of the data section; pieces need not end where tensors do. Fails with
  /// kInvalidArgument beyond the planned end, writing nothing.
  Status write(std::span<const std::byte> bytes);
  /// Planned bytes that have not been written.
  uint64_t bytes_left() const { return bytes_left_; }
  /// Fails with kFailedPrecondition while bytes are left.
  Status commit();

 private:
  StreamWriter(std::string path, std::unique_ptr<AtomicFileWriter> file, uint64_t bytes)
      : path_(std::move(path)), file_(std::move(file)), bytes_left_(bytes) {}

  std::string path_;
  std::unique_ptr<AtomicFileWriter> file_;
  uint64_t bytes_left_;
};

}  // namespace moeflux::safetensors
