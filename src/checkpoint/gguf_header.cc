// Limits here hold for every real file. They bound the work before it is done: no count of the file
// reserves memory, and a list ends at the latest where the file does.
#include "checkpoint/gguf_header.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <span>

#include "base/format.h"
#include "base/json.h"
#include "base/units.h"
#include "checkpoint/foreign_file.h"

namespace moeflux::gguf {
namespace {

constexpr uint64_t kHeaderBytes = 24;
constexpr uint64_t kKeysMax = 65536;
constexpr uint64_t kTensorsMax = 1000000;
constexpr uint64_t kElementsMax = uint64_t{1}
                                  << 24;    // of an array: the largest vocabularies have 2^18
constexpr uint64_t kKeyBytesLeast = 12;     // an empty name, a type
constexpr uint64_t kTensorBytesLeast = 24;  // an empty name, no extents, type and offset
constexpr uint64_t kNameBytesMax = 63;
constexpr uint64_t kKeyBytesMax = 65535;
constexpr uint64_t kInlineTextMax = 4096;  // longer ones stay in the file
constexpr uint32_t kRankMax = 4;
constexpr uint64_t kAlignmentUsual = 32;
constexpr uint64_t kAlignmentMax = kMiB;
constexpr size_t kWindowBytes = 64 * kKiB;

template <typename... Args>
Error corrupt(fmt::format_string<Args...> text, Args&&... args) {
  return Error(ErrorCode::kCorruption, formatted(text, std::forward<Args>(args)...));
}

/// Visible ASCII, as the format prescribes it for keys and every writer keeps it for names.
bool is_plain(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < '\x7f'; });
}

Status check_version(uint32_t version) {
  if (version == 2 || version == 3) return {};
  if (version == 0x03000000 || version == 0x02000000) {
    return make_error(ErrorCode::kUnsupported,
                      "is a big-endian GGUF file, supported are little-endian ones");
  }
  return make_error(ErrorCode::kUnsupported, "is GGUF version {}, supported are 2 and 3", version);
}

struct Counts {
  uint64_t tensors = 0;
  uint64_t keys = 0;
};

Result<Counts> read_counts(HeaderReader& reader) {
  std::array<char, 4> magic{};
  MF_RETURN_IF_ERROR(reader.read(std::as_writable_bytes(std::span(magic)), "the first four bytes"));
  const std::string_view found(magic.data(), magic.size());
  if (found != "GGUF") return corrupt("begins with {}, expected \"GGUF\"", in_quotes(found));
  MF_ASSIGN_OR_RETURN(const uint32_t version, reader.u32("the version"));
  MF_RETURN_IF_ERROR(check_version(version));
  Counts counts;
  MF_ASSIGN_OR_RETURN(counts.tensors, reader.u64("the number of tensors"));
  MF_ASSIGN_OR_RETURN(counts.keys, reader.u64("the number of keys"));
  const uint64_t keys_max = std::min(kKeysMax, reader.remaining() / kKeyBytesLeast);
  if (counts.keys > keys_max) {
    return corrupt("has {} keys by its header, expected at most {} in {} bytes", counts.keys,
                   keys_max, reader.remaining());
  }
  const uint64_t tensors_max = std::min(kTensorsMax, reader.remaining() / kTensorBytesLeast);
  if (counts.tensors > tensors_max) {
    return corrupt("has {} tensors by its header, expected at most {} in {} bytes", counts.tensors,
                   tensors_max, reader.remaining());
  }
  return counts;
}

Result<ValueType> read_type(HeaderReader& reader) {
  MF_ASSIGN_OR_RETURN(const uint32_t type, reader.u32("a type"));
  if (type > static_cast<uint32_t>(ValueType::kF64)) {
    return corrupt("has type {}, expected 0 to {}", type, static_cast<uint32_t>(ValueType::kF64));
  }
  return static_cast<ValueType>(type);
}

Result<Value> read_array(HeaderReader& reader) {
  Stored stored;
  MF_ASSIGN_OR_RETURN(stored.element, read_type(reader));
  if (stored.element == ValueType::kArray) {
    return make_error(ErrorCode::kUnsupported, "is an array of arrays, which no reader supports");
  }
  MF_ASSIGN_OR_RETURN(stored.count, reader.u64("the length of an array"));
  if (stored.count > kElementsMax) {
    return corrupt("has {} elements, expected at most {}", stored.count, kElementsMax);
  }
  stored.offset_bytes = reader.offset();
  if (stored.element == ValueType::kString) {
    for (uint64_t i = 0; i < stored.count; ++i) {
      MF_ASSIGN_OR_RETURN(const uint64_t length, reader.length("a string", kTextBytesMax));
      MF_RETURN_IF_ERROR(reader.skip(length, "a string"));
    }
  } else {
    MF_RETURN_IF_ERROR(
        reader.skip(stored.count * element_bytes(stored.element), "the elements of an array"));
  }
  stored.size_bytes = reader.offset() - stored.offset_bytes;
  return Value{ValueType::kArray, stored};
}

Result<Value> read_string(HeaderReader& reader) {
  MF_ASSIGN_OR_RETURN(const uint64_t length, reader.length("a string", kTextBytesMax));
  if (length > kInlineTextMax) {
    const Stored stored = {ValueType::kString, 1, reader.offset(), length};
    MF_RETURN_IF_ERROR(reader.skip(length, "a string"));
    return Value{ValueType::kString, stored};
  }
  std::string text(length, '\0');
  MF_RETURN_IF_ERROR(reader.read(std::as_writable_bytes(std::span(text)), "a string"));
  return Value{ValueType::kString, std::move(text)};
}

Result<Value> read_value(HeaderReader& reader) {
  MF_ASSIGN_OR_RETURN(const ValueType type, read_type(reader));
  if (type == ValueType::kArray) return read_array(reader);
  if (type == ValueType::kString) return read_string(reader);
  std::array<std::byte, 8> bytes{};
  const std::span<std::byte> used = std::span(bytes).first(element_bytes(type));
  MF_RETURN_IF_ERROR(reader.read(used, "a value"));
  if (type == ValueType::kBool && static_cast<uint8_t>(bytes[0]) > 1) {
    return corrupt("is a bool of {}, expected 0 or 1", static_cast<int>(bytes[0]));
  }
  return decode_value(type, used);
}

Result<Keys::Values> read_keys(HeaderReader& reader, uint64_t count) {
  Keys::Values keys;
  for (uint64_t i = 0; i < count; ++i) {
    MF_ASSIGN_OR_RETURN(const std::string name, reader.text("the name of a key", kKeyBytesMax));
    if (!is_plain(name)) {
      return corrupt("key {} has the name {}, expected visible ASCII", i, in_quotes(name));
    }
    Result<Value> value = read_value(reader);
    if (!value.ok() && value.error().code() == ErrorCode::kIo) return value.error();
    if (!value.ok()) {
      return Error(value.error().code(),
                   formatted("key {} {}", in_quotes(name), value.error().message()));
    }
    if (!keys.emplace(name, std::move(value).value()).second) {
      return corrupt("key {} appears twice", in_quotes(name));
    }
  }
  return keys;
}

Result<uint64_t> alignment_of(const Keys::Values& keys) {
  const auto found = keys.find("general.alignment");
  if (found == keys.end()) return kAlignmentUsual;
  const auto* number = std::get_if<int64_t>(&found->second.data);
  const uint64_t alignment = number == nullptr || *number < 0 ? 0 : static_cast<uint64_t>(*number);
  if (std::has_single_bit(alignment) && alignment >= 8 && alignment <= kAlignmentMax) {
    return alignment;
  }
  return corrupt("general.alignment is {}, expected a power of two from 8 to {}",
                 number == nullptr ? value_type_name(found->second.type) : std::to_string(*number),
                 kAlignmentMax);
}

/// Reads the extents, innermost first in the file.
Status read_shape(HeaderReader& reader, TensorInfo& tensor) {
  MF_ASSIGN_OR_RETURN(const uint32_t rank, reader.u32("a number of dimensions"));
  if (rank > kRankMax) return corrupt("has {} dimensions, expected at most {}", rank, kRankMax);
  std::array<int64_t, kRankMax> extents{};
  uint64_t elements = 1;
  for (uint32_t i = 0; i < rank; ++i) {
    MF_ASSIGN_OR_RETURN(const uint64_t extent, reader.u64("an extent"));
    if (extent == 0 || extent > static_cast<uint64_t>(INT64_MAX)) {
      return corrupt("has the extent {}, expected 1 or more", extent);
    }
    if (__builtin_mul_overflow(elements, extent, &elements) ||
        elements > static_cast<uint64_t>(INT64_MAX)) {
      return corrupt("has more than 2^63 elements");
    }
    extents[rank - 1 - i] = static_cast<int64_t>(extent);
  }
  tensor.shape = Shape(std::span(extents.data(), rank));
  return {};
}

Status read_type_and_size(HeaderReader& reader, TensorInfo& tensor) {
  MF_ASSIGN_OR_RETURN(const uint32_t id, reader.u32("a type"));
  tensor.type = find_ggml_type(id);
  if (tensor.type == nullptr) {
    return make_error(ErrorCode::kUnsupported, "has type {}, which no known type has", id);
  }
  if (!tensor.type->is_readable()) {
    return make_error(ErrorCode::kUnsupported, "has type {}, which is not supported",
                      tensor.type->name);
  }
  const auto block = static_cast<uint64_t>(tensor.type->block_elements);
  const uint64_t cols = tensor.shape.rank() == 0 ? 1 : static_cast<uint64_t>(tensor.shape.back());
  if (cols % block != 0) {
    return corrupt("has rows of {} elements, expected a multiple of {} for type {}", cols, block,
                   tensor.type->name);
  }
  const auto elements = static_cast<uint64_t>(tensor.shape.num_elements());
  if (__builtin_mul_overflow(elements / block, static_cast<uint64_t>(tensor.type->block_bytes),
                             &tensor.size_bytes) ||
      tensor.size_bytes > static_cast<uint64_t>(INT64_MAX)) {
    return corrupt("has {} elements, more than a file holds", elements);
  }
  return {};
}

Status read_tensor(HeaderReader& reader, TensorInfo& tensor) {
  MF_RETURN_IF_ERROR(read_shape(reader, tensor));
  MF_RETURN_IF_ERROR(read_type_and_size(reader, tensor));
  MF_ASSIGN_OR_RETURN(tensor.offset_bytes, reader.u64("an offset"));
  return {};
}

Result<std::vector<TensorInfo>> read_tensors(HeaderReader& reader, uint64_t count) {
  std::vector<TensorInfo> tensors;
  for (uint64_t i = 0; i < count; ++i) {
    TensorInfo tensor;
    MF_ASSIGN_OR_RETURN(tensor.name, reader.text("the name of a tensor", kNameBytesMax));
    if (!is_plain(tensor.name)) {
      return corrupt("tensor {} has the name {}, expected visible ASCII", i,
                     in_quotes(tensor.name));
    }
    const Status read = read_tensor(reader, tensor);
    if (!read.ok() && read.error().code() == ErrorCode::kIo) return read.error();
    if (!read.ok()) {
      return Error(read.error().code(),
                   formatted("tensor {} {}", in_quotes(tensor.name), read.error().message()));
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

/// Where types share a number, the one whose size a tensor has. `room`: the bytes up to the next
/// tensor, or to the end of the file behind the last one, which need not be padded.
Status choose_type(TensorInfo& tensor, uint64_t room, bool is_last, uint64_t alignment) {
  const auto types = std::ranges::equal_range(ggml_types(), tensor.type->id, {}, &GgmlType::id);
  if (types.size() < 2) return {};
  const auto elements = static_cast<uint64_t>(tensor.shape.num_elements());
  const int64_t cols = tensor.shape.back();
  const GgmlType* found = nullptr;
  size_t fitting = 0;
  std::string sizes;
  uint64_t least = tensor.size_bytes;
  uint64_t most = 0;
  for (const GgmlType& type : types) {
    if (cols % type.block_elements != 0) continue;
    const uint64_t bytes = elements / static_cast<uint64_t>(type.block_elements) *
                           static_cast<uint64_t>(type.block_bytes);
    sizes +=
        formatted("{}{} in blocks of {}", sizes.empty() ? "" : ", ", bytes, type.block_elements);
    least = std::min(least, bytes);
    most = std::max(most, bytes);
    if (round_up(bytes, alignment) != room && !(is_last && bytes == room)) continue;
    found = &type;
    tensor.size_bytes = bytes;
    ++fitting;
  }
  if (room < least) return {};  // cut, or overlapping, whatever the type
  if (fitting == 1) {
    tensor.type = found;
    return {};
  }
  return make_error(ErrorCode::kUnsupported,
                    "tensor {} of type {} has {} bytes of the file, which fit {} of the sizes that "
                    "it may have: {}{}",
                    in_quotes(tensor.name), tensor.type->name, room,
                    fitting == 0 ? "none" : "more than one", sizes,
                    is_last && room < most ? "; or the file is cut short" : "");
}

/// In the order of their places, which also tell the types that share a number.
Result<std::vector<TensorInfo*>> sorted_tensors(std::vector<TensorInfo>& tensors,
                                                uint64_t data_bytes, uint64_t alignment) {
  std::vector<TensorInfo*> in_order;
  for (TensorInfo& tensor : tensors) {
    if (tensor.offset_bytes % alignment != 0) {
      return corrupt("tensor {} begins at {} of the data, expected a multiple of {}",
                     in_quotes(tensor.name), tensor.offset_bytes, alignment);
    }
    in_order.push_back(&tensor);
  }
  std::ranges::sort(in_order, {}, &TensorInfo::offset_bytes);
  for (size_t i = 0; i < in_order.size(); ++i) {
    const bool is_last = i + 1 == in_order.size();
    const uint64_t end = is_last ? data_bytes : in_order[i + 1]->offset_bytes;
    if (in_order[i]->offset_bytes > end) continue;
    MF_RETURN_IF_ERROR(
        choose_type(*in_order[i], end - in_order[i]->offset_bytes, is_last, alignment));
  }
  return in_order;
}

/// Offsets become absolute once they are known to lie in the file.
Status place_tensors(std::vector<TensorInfo>& tensors, uint64_t data_begin, uint64_t alignment,
                     uint64_t file_bytes) {
  const uint64_t data_bytes = data_begin <= file_bytes ? file_bytes - data_begin : 0;
  MF_ASSIGN_OR_RETURN(const std::vector<TensorInfo*> in_order,
                      sorted_tensors(tensors, data_bytes, alignment));
  for (TensorInfo& tensor : tensors) {
    if (tensor.offset_bytes > data_bytes || tensor.size_bytes > data_bytes - tensor.offset_bytes) {
      return corrupt(
          "tensor {} is {} bytes from {} of the data on, which has {} bytes: a download "
          "that was cut?",
          in_quotes(tensor.name), tensor.size_bytes, tensor.offset_bytes, data_bytes);
    }
    tensor.offset_bytes += data_begin;
  }
  for (size_t i = 1; i < in_order.size(); ++i) {
    const TensorInfo& before = *in_order[i - 1];
    if (before.offset_bytes + before.size_bytes <= in_order[i]->offset_bytes) continue;
    return corrupt("tensors {} and {} overlap at byte {} of the file", in_quotes(before.name),
                   in_quotes(in_order[i]->name), in_order[i]->offset_bytes);
  }
  return {};
}

Result<Header> read_unnamed(const File& file) {
  if (file.size_bytes() < kHeaderBytes) {
    return corrupt("has {} bytes, expected at least {}", file.size_bytes(), kHeaderBytes);
  }
  HeaderReader reader(file, 0, file.size_bytes());
  MF_ASSIGN_OR_RETURN(const Counts counts, read_counts(reader));
  Header header;
  MF_ASSIGN_OR_RETURN(header.keys, read_keys(reader, counts.keys));
  header.keys_end = reader.offset();
  MF_ASSIGN_OR_RETURN(header.tensors, read_tensors(reader, counts.tensors));
  MF_ASSIGN_OR_RETURN(const uint64_t alignment, alignment_of(header.keys));
  MF_RETURN_IF_ERROR(place_tensors(header.tensors, round_up(reader.offset(), alignment), alignment,
                                   file.size_bytes()));
  return header;
}

}  // namespace

HeaderReader::HeaderReader(const File& file, uint64_t begin, uint64_t end)
    : file_(file), at_(begin), end_(end) {}

Status HeaderReader::need(uint64_t bytes, std::string_view what) const {
  if (bytes <= remaining()) return {};
  return corrupt("ends in {}, which takes {} bytes at {} of {}: a download that was cut?", what,
                 bytes, at_, end_);
}

Status HeaderReader::read(std::span<std::byte> into, std::string_view what) {
  MF_RETURN_IF_ERROR(need(into.size(), what));
  while (!into.empty()) {
    if (at_ < window_begin_ || at_ >= window_begin_ + window_.size()) {
      window_.resize(std::min<uint64_t>(kWindowBytes, remaining()));
      MF_RETURN_IF_ERROR(file_.read_at(at_, window_));
      window_begin_ = at_;
    }
    const uint64_t skipped = at_ - window_begin_;
    const size_t bytes = std::min<uint64_t>(into.size(), window_.size() - skipped);
    std::memcpy(into.data(), window_.data() + skipped, bytes);
    into = into.subspan(bytes);
    at_ += bytes;
  }
  return {};
}

Status HeaderReader::skip(uint64_t bytes, std::string_view what) {
  MF_RETURN_IF_ERROR(need(bytes, what));
  at_ += bytes;
  return {};
}

Result<uint32_t> HeaderReader::u32(std::string_view what) {
  std::array<std::byte, 4> bytes{};
  MF_RETURN_IF_ERROR(read(bytes, what));
  return static_cast<uint32_t>(std::get<int64_t>(decode_value(ValueType::kU32, bytes).data));
}

Result<uint64_t> HeaderReader::u64(std::string_view what) {
  std::array<std::byte, 8> bytes{};
  MF_RETURN_IF_ERROR(read(bytes, what));
  const Value value = decode_value(ValueType::kU64, bytes);
  if (const auto* fits = std::get_if<int64_t>(&value.data)) return static_cast<uint64_t>(*fits);
  return std::get<uint64_t>(value.data);
}

Result<uint64_t> HeaderReader::length(std::string_view what, uint64_t max) {
  MF_ASSIGN_OR_RETURN(const uint64_t bytes, u64("the length of " + std::string(what)));
  if (bytes <= max && bytes <= remaining()) return bytes;
  return corrupt("has {} of {} bytes, expected at most {}", what, bytes,
                 std::min(max, remaining()));
}

Result<std::string> HeaderReader::text(std::string_view what, uint64_t max) {
  MF_ASSIGN_OR_RETURN(const uint64_t bytes, length(what, max));
  std::string text(bytes, '\0');
  MF_RETURN_IF_ERROR(read(std::as_writable_bytes(std::span(text)), what));
  return text;
}

uint64_t element_bytes(ValueType type) {
  switch (type) {
    case ValueType::kU8:
    case ValueType::kI8:
    case ValueType::kBool:
      return 1;
    case ValueType::kU16:
    case ValueType::kI16:
      return 2;
    case ValueType::kU32:
    case ValueType::kI32:
    case ValueType::kF32:
      return 4;
    case ValueType::kU64:
    case ValueType::kI64:
    case ValueType::kF64:
      return 8;
    case ValueType::kString:
    case ValueType::kArray:
      return 0;
  }
  __builtin_unreachable();
}

Value decode_value(ValueType type, std::span<const std::byte> bytes) {
  uint64_t bits = 0;
  for (size_t i = 0; i < bytes.size(); ++i) bits |= static_cast<uint64_t>(bytes[i]) << (8 * i);
  switch (type) {
    case ValueType::kU8:
    case ValueType::kU16:
    case ValueType::kU32:
      return {type, static_cast<int64_t>(bits)};
    case ValueType::kI8:
      return {type, static_cast<int64_t>(static_cast<int8_t>(bits))};
    case ValueType::kI16:
      return {type, static_cast<int64_t>(static_cast<int16_t>(bits))};
    case ValueType::kI32:
      return {type, static_cast<int64_t>(static_cast<int32_t>(bits))};
    case ValueType::kI64:
      return {type, static_cast<int64_t>(bits)};
    case ValueType::kU64:
      if (bits > static_cast<uint64_t>(INT64_MAX)) return {type, bits};
      return {type, static_cast<int64_t>(bits)};
    case ValueType::kF32:
      return {type, static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits)))};
    case ValueType::kF64:
      return {type, std::bit_cast<double>(bits)};
    case ValueType::kBool:
      return {type, bits != 0};
    case ValueType::kString:
    case ValueType::kArray:
      break;
  }
  __builtin_unreachable();
}

std::string in_quotes(std::string_view name) { return json_excerpt(Json(name)); }

Result<Header> read_header(const File& file) {
  Result<Header> header = read_unnamed(file);
  // Read errors name the file themselves.
  if (header.ok() || header.error().code() == ErrorCode::kIo) return header;
  const std::string kind = foreign_kind(file);
  if (!kind.empty()) return make_error(ErrorCode::kCorruption, "{} is {}", file.path(), kind);
  return header.error().with_context(file.path());
}

}  // namespace moeflux::gguf
