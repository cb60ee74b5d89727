// The safetensors container: u64 little-endian header length, JSON header, tensor bytes.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/file.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace moeflux::safetensors {

struct HeaderEntry {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  uint64_t begin = 0;  // relative to the data section
  uint64_t end = 0;
};

struct Header {
  uint64_t data_offset = 0;          // of the data section in the file
  std::vector<HeaderEntry> entries;  // in order of their data; gaps are possible, overlaps not
  std::map<std::string, std::string> metadata;
};

/// Header JSON larger than this is refused (the format's own limit).
constexpr uint64_t kHeaderBytesMax = 100'000'000;

/// Parses and checks the JSON of a header. `data_bytes` is what follows it in the file.
Result<Header> parse_header(std::string_view json, uint64_t data_bytes);
/// Reads and checks the header of an open file.
Result<Header> read_header(const File& file);

/// One tensor to write; data.size() must equal shape x dtype.
struct WriteEntry {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  std::span<const std::byte> data;
};
/// Writes a file atomically, tensors one after another in the given order, header padded so that
/// the data section starts 8-byte aligned. Fails with kInvalidArgument where read_header() would
/// refuse the result.
Status write_file(const std::string& path, std::span<const WriteEntry> entries,
                  const std::map<std::string, std::string>& metadata);

}  // namespace moeflux::safetensors
