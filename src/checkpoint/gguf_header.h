// One GGUF file's header: what it says, checked against the file's bounds and nothing else.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "checkpoint/gguf.h"

namespace moeflux::gguf {

struct Header {
  Keys::Values keys;
  uint64_t keys_end = 0;            // where the keys end in the file
  std::vector<TensorInfo> tensors;  // `file` is 0
};

/// Fails with the file's name, what was found and what was expected.
Result<Header> read_header(const File& file);

/// Reads a file front to back in pieces. Never past its end: that is kCorruption.
class HeaderReader {
 public:
  HeaderReader(const File& file, uint64_t begin, uint64_t end);

  uint64_t offset() const { return at_; }
  uint64_t remaining() const { return end_ - at_; }
  /// `what` is what the bytes are, for the message.
  Status read(std::span<std::byte> into, std::string_view what);
  Status skip(uint64_t bytes, std::string_view what);
  Result<uint32_t> u32(std::string_view what);
  Result<uint64_t> u64(std::string_view what);
  /// A length, checked against the rest of the file and `max`.
  Result<uint64_t> length(std::string_view what, uint64_t max);
  Result<std::string> text(std::string_view what, uint64_t max);

 private:
  Status need(uint64_t bytes, std::string_view what) const;

  const File& file_;
  uint64_t at_;
  uint64_t end_;
  std::vector<std::byte> window_;
  uint64_t window_begin_ = 0;
};

/// Bytes of one element; 0 for strings and arrays.
uint64_t element_bytes(ValueType type);
/// An element of those bytes.
Value decode_value(ValueType type, std::span<const std::byte> bytes);
/// Quoted, plain ASCII, cut where it is long: it comes from the file and goes to a terminal.
std::string in_quotes(std::string_view name);

inline constexpr uint64_t kTextBytesMax = uint64_t{64} << 20;

}  // namespace moeflux::gguf
