// Snapshots of sequences as bytes: the definition of docs/formats/snapshot.md. Knows shapes and
// checksums; knows nothing of engines or devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "state/sequence_state.h"

namespace moeflux {

constexpr uint32_t kSnapshotVersion = 2;
// More than any model has; they bound what a header can ask for.
constexpr uint64_t kSnapshotLayersMax = 4096;
constexpr uint64_t kSnapshotTensorsMax = 16384;  // of all layers

/// The beginning of a snapshot: its model, and the sizes that follow.
struct SnapshotHeader {
  uint64_t model = 0;  // fingerprint
  uint64_t num_tokens = 0;
  uint64_t extra_bytes = 0;
  std::vector<LayerStateSpec> layers;

  uint64_t header_bytes() const;
  uint64_t front_bytes() const;  // of header and tokens
  uint64_t layer_bytes(size_t layer) const;
  uint64_t num_tensors() const;
  uint64_t total_bytes() const;
};

/// A snapshot all of whose bytes agree with their checksums. Borrows from them.
struct SnapshotView {
  SnapshotHeader header;
  std::vector<TokenId> tokens;
  std::span<const std::byte> extra;                // the caller's
  std::vector<std::span<const std::byte>> layers;  // as SequenceState::layer_bytes() says
};

/// Fails with kCorruption, saying which part is wrong, or kUnsupported for another version. Takes
/// no memory beyond a small multiple of `bytes`.
Result<SnapshotView> parse_snapshot(std::span<const std::byte> bytes);

/// True when the first kSnapshotBeginningBytes are those of a snapshot of this version.
bool begins_as_snapshot(std::span<const std::byte> bytes);
constexpr uint64_t kSnapshotBeginningBytes = 12;
/// Reads the first bytes of a snapshot: snapshot_header_bytes_max() of them or more, or all.
/// `total_bytes` is the size of the whole. Its sizes add up to that.
Result<SnapshotHeader> parse_snapshot_header(std::span<const std::byte> front,
                                             uint64_t total_bytes);
/// Enough for the header of any snapshot.
uint64_t snapshot_header_bytes_max();
/// The same with tokens, of SnapshotHeader::front_bytes() or more. Layers and extra are not looked
/// at.
struct SnapshotFront {
  SnapshotHeader header;
  std::vector<TokenId> tokens;
};
Result<SnapshotFront> parse_snapshot_front(std::span<const std::byte> front, uint64_t total_bytes);

/// A snapshot in the making: fill every layer, then finish.
class SnapshotBuilder {
 public:
  /// Takes the memory for the whole of it.
  SnapshotBuilder(SnapshotHeader header, std::span<const TokenId> tokens,
                  std::span<const std::byte> extra);
  /// Where a layer's bytes belong.
  std::span<std::byte> layer(size_t i);
  /// Writes the header with its checksums.
  std::vector<std::byte> finish() &&;

 private:
  SnapshotHeader header_;
  std::vector<std::byte> bytes_;
};

}  // namespace moeflux
