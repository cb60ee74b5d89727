// Writing safetensors files. The header goes through the reader before a byte is written, so that
// what we write is what we would accept.
#include <array>

#include "base/format.h"
#include "base/units.h"
#include "checkpoint/safetensors.h"

namespace moeflux::safetensors {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr size_t kDataAlignment = 8;

/// A JSON string. Bytes above ASCII pass as they are: the reader's check refuses invalid UTF-8,
/// where a JSON library would throw or silently rename the tensor.
std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += format("\\u{:04x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string entry_json(const WriteEntry& entry, uint64_t begin) {
  std::string extents;
  for (int i = 0; i < entry.shape.rank(); ++i) {
    extents += format("{}{}", i == 0 ? "" : ",", entry.shape[i]);
  }
  return format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                json_string(entry.name), dtype_name(entry.dtype), extents, begin,
                begin + entry.data.size());
}

std::string header_json(std::span<const WriteEntry> entries,
                        const std::map<std::string, std::string>& metadata) {
  std::string json = "{";
  if (!metadata.empty()) {
    json += "\"__metadata__\":{";
    for (const auto& [key, text] : metadata) {
      if (json.back() != '{') json += ',';
      json += json_string(key) + ':' + json_string(text);
    }
    json += '}';
  }
  uint64_t begin = 0;
  for (const WriteEntry& entry : entries) {
    if (json.back() != '{') json += ',';
    json += entry_json(entry, begin);
    begin += entry.data.size();
  }
  json += '}';
  json.resize(round_up(kLengthBytes + json.size(), kDataAlignment) - kLengthBytes, ' ');
  return json;
}

Status check_header(const std::string& json, std::span<const WriteEntry> entries) {
  uint64_t data_bytes = 0;
  for (const WriteEntry& entry : entries) {
    data_bytes += entry.data.size();
    if (entry.name == "__metadata__") {
      return Error(ErrorCode::kInvalidArgument, "a tensor cannot have the name __metadata__");
    }
  }
  if (json.size() > kHeaderBytesMax) {
    return make_error(ErrorCode::kInvalidArgument, "the header has {} bytes, expected at most {}",
                      json.size(), kHeaderBytesMax);
  }
  const Result<Header> parsed = parse_header(json, data_bytes);
  if (!parsed.ok()) return Error(ErrorCode::kInvalidArgument, parsed.error().message());
  return {};
}

}  // namespace

Status write_file(const std::string& path, std::span<const WriteEntry> entries,
                  const std::map<std::string, std::string>& metadata) {
  const std::string json = header_json(entries, metadata);
  const Status checked = check_header(json, entries);
  if (!checked.ok()) return checked.error().with_context(path);
  std::array<std::byte, kLengthBytes> prefix{};
  for (size_t i = 0; i < kLengthBytes; ++i) {
    prefix[i] = static_cast<std::byte>(json.size() >> (8 * i));
  }
  MF_ASSIGN_OR_RETURN(const auto writer, AtomicFileWriter::create(path));
  MF_RETURN_IF_ERROR(writer->write(prefix));
  MF_RETURN_IF_ERROR(writer->write(std::as_bytes(std::span(json.data(), json.size()))));
  for (const WriteEntry& entry : entries) MF_RETURN_IF_ERROR(writer->write(entry.data));
  return writer->commit();
}

}  // namespace moeflux::safetensors
