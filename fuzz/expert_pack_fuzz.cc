// The text of an expert_pack.json: refused, or layers whose parts lie in their blobs, apart from
// each other, in files of a length that does not overflow; and what is written of it is read again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "checkpoint/expert_pack.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

/// Parts in the order of the blob.
class Parts {
 public:
  explicit Parts(uint64_t stride) : stride_(stride) {}
  void take(uint64_t offset, uint64_t bytes) {
    if (bytes == 0) return;
    require(offset % moeflux::kBlobPartAlignment == 0);
    require(offset >= end_ && offset <= stride_ && bytes <= stride_ - offset);
    end_ = offset + bytes;
  }

 private:
  uint64_t stride_;
  uint64_t end_ = 0;
};

void check(const moeflux::PackedLayer& layer) {
  require(layer.num_experts > 0 && layer.stride > 0);
  require(layer.stride % moeflux::kBlobAlignment == 0);
  require(layer.file_bytes() / static_cast<uint64_t>(layer.num_experts) == layer.stride + 8);
  Parts parts(layer.stride);
  for (const moeflux::Weight& matrix : layer.matrices) {
    const bool is_gate = &matrix == layer.matrices.data();
    if (is_gate && matrix.rows == 0) continue;  // experts may have none
    require(matrix.size_bytes() > 0);
    for (const moeflux::PartRole role : moeflux::kPartRoles) {
      if (!matrix.has(role)) continue;
      parts.take(matrix.parts[role].offset_bytes, matrix.parts[role].size_bytes());
    }
  }
  for (const moeflux::PackedBias& bias : layer.biases) parts.take(bias.offset, bias.bytes());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto manifest = moeflux::parse_expert_pack(text, "fuzz");
  if (!manifest.ok()) {
    for (const char c : manifest.error().message()) require(static_cast<unsigned char>(c) >= ' ');
    return 0;
  }
  require(!manifest->layers.empty());
  for (const moeflux::PackedLayer& layer : manifest->layers) check(layer);
  const auto again = moeflux::parse_expert_pack(moeflux::expert_pack_text(*manifest), "again");
  require(again.ok() && again->layers == manifest->layers && again->model == manifest->model);
  return 0;
}
