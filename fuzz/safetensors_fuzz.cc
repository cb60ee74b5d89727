// The bytes of a .safetensors file: read_header() refuses, or gives entries that lie in the file.
// The header is parsed a second time by itself, so that a damaged length does not hide the rest.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>

#include "checkpoint/safetensors.h"
#include "tests/support/io/memory_file.h"

namespace {

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kDataBytes = 64;  // more than the seeds need

void require(bool condition) {
  if (!condition) std::abort();
}

void check_entries(const moeflux::safetensors::Header& header, uint64_t data_bytes) {
  uint64_t covered = 0;  // entries come in order of their data and do not overlap
  for (const auto& entry : header.entries) {
    require(entry.begin <= entry.end && entry.end <= data_bytes);
    for (int i = 0; i < entry.shape.rank(); ++i) require(entry.shape[i] >= 0);
    const auto bits = static_cast<uint64_t>(entry.shape.num_elements()) *
                      static_cast<uint64_t>(moeflux::dtype_bits(entry.dtype));
    require(bits == (entry.end - entry.begin) * 8);
    if (entry.begin == entry.end) continue;
    require(entry.begin >= covered);
    covered = entry.end;
  }
}

/// Messages go to a terminal: one line, nothing that controls it.
void check_message(const moeflux::Error& error) {
  for (const char c : error.message()) require(static_cast<unsigned char>(c) >= ' ');
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const moeflux::MemoryFile file("fuzz", std::as_bytes(std::span(data, size)));
  const auto header = moeflux::safetensors::read_header(file);
  if (header.ok()) {
    require(header->data_offset <= size);
    check_entries(*header, size - header->data_offset);
  } else {
    check_message(header.error());
  }
  if (size < kLengthBytes) return 0;
  const std::string_view json(reinterpret_cast<const char*>(data) + kLengthBytes,
                              size - kLengthBytes);
  const auto parsed = moeflux::safetensors::parse_header(json, kDataBytes);
  if (parsed.ok()) {
    check_entries(*parsed, kDataBytes);
  } else {
    check_message(parsed.error());
  }
  return 0;
}
