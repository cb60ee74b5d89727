// Writing safetensors files. The header goes through the reader before a byte is written, so that
// what we write is what we would accept.
#include <array>

#include "base/format.h"
#include "base/units.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_stream.h"

namespace moeflux::safetensors {
namespace {

constexpr size_t kHeaderLengthBytes = 8;
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
      out += formatted("\\u{:04x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string entry_json(const PlannedTensor& entry, uint64_t begin) {
  std::string extents;
  for (int i = 0; i < entry.shape.rank(); ++i) {
    extents += formatted("{}{}", i == 0 ? "" : ",", entry.shape[i]);
  }
  return formatted("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                   json_string(entry.name), dtype_name(entry.dtype), extents, begin,
                   begin + entry.size_bytes);
}

std::string header_json(std::span<const PlannedTensor> entries,
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
  for (const PlannedTensor& entry : entries) {
    if (json.back() != '{') json += ',';
    json += entry_json(entry, begin);
    begin += entry.size_bytes;
  }
  json += '}';
  json.resize(round_up(kHeaderLengthBytes + json.size(), kDataAlignment) - kHeaderLengthBytes, ' ');
  return json;
}

uint64_t total_bytes(std::span<const PlannedTensor> tensors) {
  uint64_t bytes = 0;
  for (const PlannedTensor& tensor : tensors) bytes += tensor.size_bytes;
  return bytes;
}

Status check_header(const std::string& json, std::span<const PlannedTensor> tensors) {
  for (const PlannedTensor& tensor : tensors) {
    if (tensor.name == "__metadata__") {
      return Error(ErrorCode::kInvalidArgument, "a tensor cannot have the name __metadata__");
    }
  }
  if (json.size() > kHeaderBytesMax) {
    return make_error(ErrorCode::kInvalidArgument, "the header has {} bytes, expected at most {}",
                      json.size(), kHeaderBytesMax);
  }
  const Result<Header> parsed = parse_header(json, total_bytes(tensors));
  if (!parsed.ok()) return Error(ErrorCode::kInvalidArgument, parsed.error().message());
  return {};
}

}  // namespace

Result<std::unique_ptr<StreamWriter>> StreamWriter::create(
    const std::string& path, std::span<const PlannedTensor> tensors,
    const std::map<std::string, std::string>& metadata) {
  const std::string json = header_json(tensors, metadata);
  const Status checked = check_header(json, tensors);
  if (!checked.ok()) return checked.error().with_context(path);
  std::array<std::byte, kHeaderLengthBytes> prefix{};
  for (size_t i = 0; i < kHeaderLengthBytes; ++i) {
    prefix[i] = static_cast<std::byte>(json.size() >> (8 * i));
  }
  MF_ASSIGN_OR_RETURN(auto file, AtomicFileWriter::create(path));
  MF_RETURN_IF_ERROR(file->write(prefix));
  MF_RETURN_IF_ERROR(file->write(std::as_bytes(std::span(json.data(), json.size()))));
  return std::unique_ptr<StreamWriter>(
      new StreamWriter(path, std::move(file), total_bytes(tensors)));
}

Status StreamWriter::write(std::span<const std::byte> bytes) {
  if (bytes.size() > bytes_left_) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: {} bytes to write where the header leaves {}", path_, bytes.size(),
                      bytes_left_);
  }
  MF_RETURN_IF_ERROR(file_->write(bytes));
  bytes_left_ -= bytes.size();
  return {};
}

Status StreamWriter::commit() {
  if (bytes_left_ != 0) {
    return make_error(ErrorCode::kFailedPrecondition,
                      "{}: {} bytes that the header promises have not been written", path_,
                      bytes_left_);
  }
  return file_->commit();
}

Status write_file(const std::string& path, std::span<const WriteEntry> entries,
                  const std::map<std::string, std::string>& metadata) {
  std::vector<PlannedTensor> tensors;
  for (const WriteEntry& entry : entries) {
    tensors.push_back({entry.name, entry.dtype, entry.shape, entry.data.size()});
  }
  MF_ASSIGN_OR_RETURN(const auto writer, StreamWriter::create(path, tensors, metadata));
  for (const WriteEntry& entry : entries) MF_RETURN_IF_ERROR(writer->write(entry.data));
  return writer->commit();
}

}  // namespace moeflux::safetensors
