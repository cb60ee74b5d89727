// The bytes of a snapshot: refused, or tokens and layers of the sizes that their shapes mean, all
// inside the input; and what is written of it is the input again. Each input is tried as it is and
// with the header's checksum put right, so that what lies behind it is reached.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "checkpoint/checksum.h"
#include "engine/snapshot.h"

namespace {

using Bytes = std::span<const std::byte>;

void require(bool condition) {
  if (!condition) std::abort();
}

bool is_inside(Bytes part, Bytes whole) {
  return part.empty() ||
         (part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size());
}

void check(Bytes bytes) {
  const auto front = moeflux::parse_snapshot_front(bytes, bytes.size());
  const auto view = moeflux::parse_snapshot(bytes);
  if (!view.ok()) {
    for (const char c : view.error().message()) require(static_cast<unsigned char>(c) >= ' ');
    return;
  }
  require(front.ok() && front->tokens == view->tokens);
  require(view->tokens.size() == view->header.num_tokens);
  require(view->layers.size() == view->header.layers.size() && !view->layers.empty());
  require(is_inside(view->extra, bytes) && view->header.total_bytes() == bytes.size());
  moeflux::SnapshotBuilder builder(view->header, view->tokens, view->extra);
  for (size_t i = 0; i < view->layers.size(); ++i) {
    require(is_inside(view->layers[i], bytes));
    require(view->layers[i].size() == view->header.layer_bytes(i));
    std::ranges::copy(view->layers[i], builder.layer(i).begin());
  }
  require(std::ranges::equal(std::move(builder).finish(), bytes));
}

void put(std::vector<std::byte>& bytes, size_t at, uint64_t value) {
  for (size_t i = 0; i < 8; ++i) bytes[at + i] = static_cast<std::byte>(value >> (8 * i));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Bytes input = std::as_bytes(std::span(data, size));
  check(input);
  if (size < 80) return 0;
  std::vector<std::byte> bytes(input.begin(), input.end());
  const size_t tensors = static_cast<size_t>(bytes[64]) | static_cast<size_t>(bytes[65]) << 8;
  const size_t checksum_at = 72 + tensors * 48;
  if (checksum_at + 8 > size) return 0;
  put(bytes, 40, size);
  put(bytes, checksum_at, moeflux::checksum64(std::span(bytes).first(checksum_at)));
  check(bytes);
  return 0;
}
