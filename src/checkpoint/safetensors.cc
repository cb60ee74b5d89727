// Reading safetensors headers. The file comes from anywhere: every number is checked before it is
// used, and every refusal names the tensor, what was found and what was expected.
#include "checkpoint/safetensors.h"

#include <algorithm>
#include <array>

#include "base/format.h"
#include "base/json.h"
#include "checkpoint/foreign_file.h"

namespace moeflux::safetensors {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr std::string_view kMetadataKey = "__metadata__";

/// Quoted and escaped to plain ASCII: names come from the file and messages go to a terminal.
std::string in_quotes(std::string_view name) {
  constexpr size_t kShownMax = 200;
  std::string text = SortedJson(name).dump(-1, ' ', true, SortedJson::error_handler_t::replace);
  if (text.size() > kShownMax) text = text.substr(0, kShownMax - 3) + "...";
  return text;
}

std::string excerpt(const SortedJson& value) { return json_excerpt(Json(value)); }

/// Parses one value of the header object.
class EntryParser {
 public:
  EntryParser(const std::string& name, const SortedJson& value) : name_(name), value_(value) {}

  Result<HeaderEntry> parse(uint64_t data_bytes) const {
    if (!value_.is_object()) {
      return corrupt("is {}, expected an object with dtype, shape and data_offsets",
                     excerpt(value_));
    }
    HeaderEntry entry;
    entry.name = name_;
    MF_ASSIGN_OR_RETURN(entry.dtype, parse_dtype_field());
    MF_ASSIGN_OR_RETURN(entry.shape, parse_shape());
    MF_ASSIGN_OR_RETURN(const uint64_t expected_bytes, size_bytes(entry));
    MF_RETURN_IF_ERROR(parse_offsets(entry, data_bytes));
    if (entry.end - entry.begin != expected_bytes) {
      return corrupt("has {} bytes in data_offsets, expected {} for {} {}", entry.end - entry.begin,
                     expected_bytes, dtype_name(entry.dtype), entry.shape.to_string());
    }
    return entry;
  }

 private:
  template <typename... Args>
  Error corrupt(fmt::format_string<Args...> text, Args&&... args) const {
    return refuse(ErrorCode::kCorruption, formatted(text, std::forward<Args>(args)...));
  }
  Error refuse(ErrorCode code, std::string_view problem) const {
    return make_error(code, "tensor {} {}", in_quotes(name_), problem);
  }

  /// A field of the entry; null when absent. Fields beyond the three known ones are ignored, as the
  /// format's own reader does.
  const SortedJson* field(const char* key) const {
    const auto found = value_.find(key);
    return found == value_.end() ? nullptr : &*found;
  }

  Result<DType> parse_dtype_field() const {
    const SortedJson* value = field("dtype");
    if (value == nullptr) return corrupt("has no dtype");
    if (!value->is_string()) return corrupt("has dtype {}, expected a string", excerpt(*value));
    const auto dtype = parse_dtype(value->get_ref<const std::string&>());
    if (dtype) return *dtype;
    return refuse(ErrorCode::kUnsupported,
                  formatted("has dtype {}, expected one of the format's element types, such as "
                            "\"BF16\", \"F32\" or \"U32\"",
                            excerpt(*value)));
  }

  Result<Shape> parse_shape() const {
    const SortedJson* value = field("shape");
    if (value == nullptr) return corrupt("has no shape");
    if (!value->is_array()) {
      return corrupt("has shape {}, expected a list of integers", excerpt(*value));
    }
    if (value->size() > static_cast<size_t>(Shape::kRankMax)) {
      return refuse(ErrorCode::kUnsupported, formatted("has {} dimensions, expected at most {}",
                                                       value->size(), Shape::kRankMax));
    }
    std::array<int64_t, Shape::kRankMax> extents{};
    size_t rank = 0;
    for (const SortedJson& extent : *value) {
      // 4.0 is refused as well: the format says integer, and other readers would disagree with us.
      if (!extent.is_number_unsigned() ||
          extent.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
        return corrupt("has the extent {} in its shape, expected an integer from 0 to {}",
                       excerpt(extent), INT64_MAX);
      }
      extents[rank++] = extent.get<int64_t>();
    }
    return Shape(std::span(extents.data(), rank));
  }

  /// Shape x dtype. The extents other than 0 must not overflow even when another one is 0: strides
  /// are products of some of them.
  Result<uint64_t> size_bytes(const HeaderEntry& entry) const {
    int64_t bits = dtype_bits(entry.dtype);
    bool empty = false;
    for (int i = 0; i < entry.shape.rank(); ++i) {
      if (entry.shape[i] == 0) {
        empty = true;
      } else if (__builtin_mul_overflow(bits, entry.shape[i], &bits)) {
        return corrupt("has shape {} of {}, which overflows 64 bits", entry.shape.to_string(),
                       dtype_name(entry.dtype));
      }
    }
    if (empty) return 0;
    if (bits % 8 != 0) {
      return corrupt("has shape {} of {}, {} bits in all, expected whole bytes",
                     entry.shape.to_string(), dtype_name(entry.dtype), bits);
    }
    return static_cast<uint64_t>(bits / 8);
  }

  Status parse_offsets(HeaderEntry& entry, uint64_t data_bytes) const {
    const SortedJson* value = field("data_offsets");
    if (value == nullptr) return corrupt("has no data_offsets");
    if (!value->is_array() || value->size() != 2 || !(*value)[0].is_number_unsigned() ||
        !(*value)[1].is_number_unsigned()) {
      return corrupt("has data_offsets {}, expected two integers from 0", excerpt(*value));
    }
    entry.begin = (*value)[0].get<uint64_t>();
    entry.end = (*value)[1].get<uint64_t>();
    if (entry.begin > entry.end) {
      return corrupt("has data_offsets {}, expected the begin not to lie after the end",
                     excerpt(*value));
    }
    if (entry.end > data_bytes) {
      return corrupt("ends at byte {} of the data, which has {}: a download that was cut?",
                     entry.end, data_bytes);
    }
    return {};
  }

  const std::string& name_;
  const SortedJson& value_;
};

Status parse_metadata(const SortedJson& value, std::map<std::string, std::string>& metadata) {
  if (value.is_null()) return {};  // which mlx writes for none, and safetensors' own reader takes
  if (!value.is_object()) {
    return make_error(ErrorCode::kCorruption, "{} is {}, expected an object of strings",
                      kMetadataKey, excerpt(value));
  }
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) {
      return make_error(ErrorCode::kCorruption, "{} has {} under {}, expected a string",
                        kMetadataKey, excerpt(text), in_quotes(key));
    }
    metadata.emplace(key, text.get_ref<const std::string&>());
  }
  return {};
}

/// Gaps between tensors are allowed, though the reference reader refuses them: writers pad for
/// alignment, and bytes that no tensor claims cannot make any tensor wrong. Bytes claimed twice
/// can.
Status check_overlaps(const std::vector<HeaderEntry>& sorted) {
  const HeaderEntry* before = nullptr;
  for (const HeaderEntry& entry : sorted) {
    if (entry.begin == entry.end) continue;  // no bytes, nothing to share
    if (before != nullptr && entry.begin < before->end) {
      return make_error(ErrorCode::kCorruption,
                        "tensors {} at [{}, {}) and {} at [{}, {}) overlap, expected disjoint data",
                        in_quotes(before->name), before->begin, before->end, in_quotes(entry.name),
                        entry.begin, entry.end);
    }
    before = &entry;
  }
  return {};
}

Result<Header> read_header_unnamed(const File& file) {
  const uint64_t file_bytes = file.size_bytes();
  if (file_bytes < kLengthBytes) {
    return make_error(ErrorCode::kCorruption,
                      "the file has {} bytes, expected at least {} for the header length",
                      file_bytes, kLengthBytes);
  }
  std::array<std::byte, kLengthBytes> prefix{};
  MF_RETURN_IF_ERROR(file.read_at(0, prefix));
  uint64_t header_bytes = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    header_bytes |= static_cast<uint64_t>(prefix[i]) << (8 * i);
  }
  if (header_bytes > kHeaderBytesMax) {
    return make_error(ErrorCode::kCorruption, "the header length is {}, expected at most {}",
                      header_bytes, kHeaderBytesMax);
  }
  if (header_bytes > file_bytes - kLengthBytes) {
    return make_error(
        ErrorCode::kCorruption,
        "the header length is {}, but only {} bytes follow it in the file: a download "
        "that was cut?",
        header_bytes, file_bytes - kLengthBytes);
  }
  std::string json(header_bytes, '\0');
  MF_RETURN_IF_ERROR(
      file.read_at(kLengthBytes, std::as_writable_bytes(std::span(json.data(), json.size()))));
  MF_ASSIGN_OR_RETURN(Header header, parse_header(json, file_bytes - kLengthBytes - header_bytes));
  header.data_offset = kLengthBytes + header_bytes;
  return header;
}

}  // namespace

Result<Header> parse_header(std::string_view json, uint64_t data_bytes) {
  if (json.empty() || json.front() != '{') {
    return make_error(ErrorCode::kCorruption, "the header begins with {}, expected '{{'",
                      json.empty() ? "nothing" : in_quotes(json.substr(0, 1)));
  }
  MF_ASSIGN_OR_RETURN(const SortedJson object, parse_sorted_json(json, "the header"));
  Header header;
  header.data_offset = kLengthBytes + json.size();
  for (const auto& [name, value] : object.items()) {
    if (name == kMetadataKey) {
      MF_RETURN_IF_ERROR(parse_metadata(value, header.metadata));
      continue;
    }
    MF_ASSIGN_OR_RETURN(HeaderEntry entry, EntryParser(name, value).parse(data_bytes));
    header.entries.push_back(std::move(entry));
  }
  // Stable over names in order: headers that differ in key order only give the same result.
  std::stable_sort(header.entries.begin(), header.entries.end(),
                   [](const HeaderEntry& a, const HeaderEntry& b) { return a.begin < b.begin; });
  MF_RETURN_IF_ERROR(check_overlaps(header.entries));
  return header;
}

Result<Header> read_header(const File& file) {
  Result<Header> header = read_header_unnamed(file);
  // Read errors name the file themselves.
  if (header.ok() || header.error().code() == ErrorCode::kIo) return header;
  const std::string kind = foreign_kind(file);
  if (!kind.empty()) return make_error(ErrorCode::kCorruption, "{} is {}", file.path(), kind);
  return header.error().with_context(file.path());
}

}  // namespace moeflux::safetensors
