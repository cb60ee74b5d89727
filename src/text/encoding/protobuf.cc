// Groups, which nobody has written for a decade, are refused with all other unknown wire types.
#include "text/encoding/protobuf.h"

#include "base/format.h"

namespace moeflux {
namespace {

Error cut_off() {
  return make_error(ErrorCode::kCorruption, "a protocol buffer that ends inside a field");
}

}  // namespace

Result<uint64_t> ProtobufReader::varint() {
  uint64_t value = 0;
  for (uint32_t shift = 0; shift < 70; shift += 7) {
    if (rest_.empty()) return cut_off();
    const auto byte = static_cast<uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    if (shift < 64) value |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return value;
  }
  return make_error(ErrorCode::kCorruption, "a protocol buffer with a number of over ten bytes");
}

Result<uint64_t> ProtobufReader::fixed(size_t bytes_count) {
  if (rest_.size() < bytes_count) return cut_off();
  uint64_t value = 0;
  for (size_t i = 0; i < bytes_count; ++i) {
    value |= uint64_t{static_cast<uint8_t>(rest_[i])} << (8 * i);
  }
  rest_.remove_prefix(bytes_count);
  return value;
}

Result<ProtobufField> ProtobufReader::next() {
  MF_ASSIGN_OR_RETURN(const uint64_t tag, varint());
  ProtobufField field{.id = static_cast<uint32_t>(tag >> 3)};
  switch (tag & 7) {
    case 0: {
      MF_ASSIGN_OR_RETURN(field.number, varint());
      return field;
    }
    case 1: {
      MF_ASSIGN_OR_RETURN(field.number, fixed(8));
      return field;
    }
    case 2: {
      MF_ASSIGN_OR_RETURN(const uint64_t count, varint());
      if (count > rest_.size()) return cut_off();
      field.bytes = rest_.substr(0, count);
      rest_.remove_prefix(count);
      return field;
    }
    case 5: {
      MF_ASSIGN_OR_RETURN(field.number, fixed(4));
      return field;
    }
    default:
      return make_error(ErrorCode::kCorruption, "a protocol buffer with a field of wire type {}",
                        tag & 7);
  }
}

}  // namespace moeflux
