// The wire format of protocol buffers, read field by field: a few lines suffice for one message
// type of few fields, and nothing is allocated.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace moeflux {

/// One field of a message: `number`, or the memory that `bytes` points to, is the value as stored.
struct ProtobufField {
  uint32_t id = 0;
  uint64_t number = 0;     // a varint, or the bits of a fixed 32 or 64 bit value
  std::string_view bytes;  // a string, bytes or message
};

class ProtobufReader {
 public:
  /// Borrows the bytes of a message.
  explicit ProtobufReader(std::string_view message) : rest_(message) {}

  bool at_end() const { return rest_.empty(); }
  /// The next field, in the order of the file. Fails with kCorruption where the bytes are no
  /// message.
  Result<ProtobufField> next();

 private:
  Result<uint64_t> varint();
  Result<uint64_t> fixed(size_t bytes_count);

  std::string_view rest_;
};

}  // namespace moeflux
