#include "engine/snapshot.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/format.h"
#include "checkpoint/checksum.h"

namespace moeflux {
namespace {

constexpr std::string_view kMagic = "MFLXSNAP";
// Places in the header.
constexpr uint64_t kVersionAt = 8;
constexpr uint64_t kLayersAt = 12;
constexpr uint64_t kModelAt = 16;
constexpr uint64_t kTokensAt = 24;
constexpr uint64_t kExtraAt = 32;
constexpr uint64_t kTotalAt = 40;
constexpr uint64_t kTokensChecksumAt = 48;
constexpr uint64_t kExtraChecksumAt = 56;
constexpr uint64_t kFixedBytes = 64;   // then the layers' records
constexpr uint64_t kRecordBytes = 56;  // of a layer
// No extent is larger: far beyond any model, and products of three still fit 64 bits.
constexpr uint32_t kExtentMax = 1 << 20;
constexpr uint32_t kValuesInKeys = 1;

// The extents of a record, in its order.
constexpr std::array<int64_t LayerStateSpec::*, 8> kExtents = {
    &LayerStateSpec::num_kv_heads, &LayerStateSpec::head_dim,      &LayerStateSpec::v_head_dim,
    &LayerStateSpec::conv_taps,    &LayerStateSpec::conv_channels, &LayerStateSpec::value_heads,
    &LayerStateSpec::key_dim,      &LayerStateSpec::value_dim};
constexpr size_t kKeyValueExtents = 3;  // the first ones; the others are of recurrent states

template <typename T>
T read_le(std::span<const std::byte> bytes, uint64_t offset) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value |= static_cast<T>(static_cast<T>(bytes[offset + i]) << (8 * i));
  }
  return value;
}

template <typename T>
void write_le(std::span<std::byte> bytes, uint64_t offset, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    bytes[offset + i] = static_cast<std::byte>(value >> (8 * i));
  }
}

template <typename... Args>
Error corrupt(fmt::format_string<Args...> text, Args&&... args) {
  return Error(ErrorCode::kCorruption, "snapshot: " + formatted(text, std::forward<Args>(args)...));
}

/// Where in a record: kind, flags, extents, window, checksum of the layer's bytes.
constexpr uint64_t kFlagsAt = 4;
constexpr uint64_t kExtentsAt = 8;
constexpr uint64_t kWindowAt = 40;
constexpr uint64_t kChecksumAt = 48;

void write_record(std::span<std::byte> record, const LayerStateSpec& spec, uint64_t checksum) {
  write_le(record, 0, static_cast<uint32_t>(spec.kind));
  write_le(record, kFlagsAt, spec.values_in_keys ? kValuesInKeys : 0u);
  for (size_t i = 0; i < kExtents.size(); ++i) {
    write_le(record, kExtentsAt + 4 * i, static_cast<uint32_t>(spec.*kExtents[i]));
  }
  write_le(record, kWindowAt, static_cast<uint64_t>(spec.window));
  write_le(record, kChecksumAt, checksum);
}

Result<LayerStateSpec> read_record(std::span<const std::byte> record, uint64_t layer) {
  LayerStateSpec spec;
  const auto kind = read_le<uint32_t>(record, 0);
  const auto flags = read_le<uint32_t>(record, kFlagsAt);
  const auto window = read_le<uint64_t>(record, kWindowAt);
  const bool recurrent = kind == static_cast<uint32_t>(StateKind::kGatedDelta);
  if (kind > static_cast<uint32_t>(StateKind::kGatedDelta) || flags > kValuesInKeys ||
      window > INT32_MAX || (recurrent && (flags != 0 || window != 0))) {
    return corrupt(
        "layer {} has kind {}, flags {} and window {}, expected a known kind with what "
        "belongs to it",
        layer, kind, flags, window);
  }
  spec.kind = static_cast<StateKind>(kind);
  spec.values_in_keys = flags == kValuesInKeys;
  spec.window = static_cast<int64_t>(window);
  for (size_t i = 0; i < kExtents.size(); ++i) {
    const auto extent = read_le<uint32_t>(record, kExtentsAt + 4 * i);
    const bool belongs = recurrent == (i >= kKeyValueExtents);
    if (belongs ? extent == 0 || extent > kExtentMax : extent != 0) {
      return corrupt("layer {} has an extent of {}, expected {}", layer, extent,
                     belongs ? formatted("1 to {}", kExtentMax) : "0");
    }
    spec.*kExtents[i] = extent;
  }
  if (spec.values_in_keys && spec.v_head_dim > spec.head_dim) {
    return corrupt("layer {} has values of {} in keys of {}", layer, spec.v_head_dim,
                   spec.head_dim);
  }
  return spec;
}

/// A sum of sizes that may say anything.
class Total {
 public:
  void add(uint64_t bytes) { fits_ = !__builtin_add_overflow(bytes_, bytes, &bytes_) && fits_; }
  void add(uint64_t count, uint64_t each) {
    uint64_t bytes = 0;
    fits_ = !__builtin_mul_overflow(count, each, &bytes) && fits_;
    add(bytes);
  }
  bool is(uint64_t bytes) const { return fits_ && bytes_ == bytes; }

 private:
  uint64_t bytes_ = 0;
  bool fits_ = true;
};

Result<uint64_t> check_beginning(std::span<const std::byte> bytes) {
  if (bytes.size() < kFixedBytes) {
    return corrupt("has {} bytes, expected at least {}", bytes.size(), kFixedBytes);
  }
  if (!begins_as_snapshot(bytes)) {
    return corrupt("does not begin with {}", kMagic);
  }
  const auto version = read_le<uint32_t>(bytes, kVersionAt);
  if (version != kSnapshotVersion) {
    return make_error(ErrorCode::kUnsupported, "snapshot: has version {}, expected {}", version,
                      kSnapshotVersion);
  }
  const uint64_t layers = read_le<uint32_t>(bytes, kLayersAt);
  const uint64_t header_bytes = kFixedBytes + layers * kRecordBytes + sizeof(uint64_t);
  if (layers == 0 || layers > kSnapshotLayersMax || header_bytes > bytes.size()) {
    return corrupt("says {} layers in {} bytes, expected 1 to {} with {} bytes each", layers,
                   bytes.size(), kSnapshotLayersMax, kRecordBytes);
  }
  const uint64_t checksum_at = header_bytes - sizeof(uint64_t);
  if (checksum64(bytes.first(checksum_at)) != read_le<uint64_t>(bytes, checksum_at)) {
    return corrupt("the header does not have its checksum");
  }
  return layers;
}

}  // namespace

bool begins_as_snapshot(std::span<const std::byte> bytes) {
  return bytes.size() >= kMagic.size() &&
         std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0;
}

uint64_t snapshot_header_bytes_max() {
  return kFixedBytes + kSnapshotLayersMax * kRecordBytes + sizeof(uint64_t);
}

Result<SnapshotHeader> parse_snapshot_header(std::span<const std::byte> bytes,
                                             uint64_t total_bytes) {
  MF_ASSIGN_OR_RETURN(const uint64_t num_layers, check_beginning(bytes));
  SnapshotHeader header{.model = read_le<uint64_t>(bytes, kModelAt),
                        .num_tokens = read_le<uint64_t>(bytes, kTokensAt),
                        .extra_bytes = read_le<uint64_t>(bytes, kExtraAt),
                        .layers = {}};
  if (header.num_tokens > total_bytes || header.num_tokens > INT32_MAX ||
      header.extra_bytes > total_bytes) {
    return corrupt("says {} tokens and {} extra bytes in {} bytes", header.num_tokens,
                   header.extra_bytes, total_bytes);
  }
  Total total;
  for (uint64_t i = 0; i < num_layers; ++i) {
    MF_ASSIGN_OR_RETURN(
        LayerStateSpec spec,
        read_record(bytes.subspan(kFixedBytes + i * kRecordBytes, kRecordBytes), i));
    const auto length = static_cast<int64_t>(header.num_tokens);
    total.add(spec.bytes_fixed());
    total.add(static_cast<uint64_t>(length - spec.first_read(length)), spec.bytes_per_token());
    header.layers.push_back(std::move(spec));
  }
  total.add(header.front_bytes() + header.extra_bytes);
  if (read_le<uint64_t>(bytes, kTotalAt) != total_bytes || !total.is(total_bytes)) {
    return corrupt("has {} bytes, not what its header means; it says {}", total_bytes,
                   read_le<uint64_t>(bytes, kTotalAt));
  }
  return header;
}

uint64_t SnapshotHeader::header_bytes() const {
  return kFixedBytes + layers.size() * kRecordBytes + sizeof(uint64_t);
}

uint64_t SnapshotHeader::front_bytes() const {
  return header_bytes() + num_tokens * sizeof(TokenId);
}

uint64_t SnapshotHeader::layer_bytes(size_t layer) const {
  return SequenceState::layer_bytes(layers[layer], static_cast<int64_t>(num_tokens));
}

uint64_t SnapshotHeader::total_bytes() const {
  uint64_t bytes = front_bytes() + extra_bytes;
  for (size_t i = 0; i < layers.size(); ++i) bytes += layer_bytes(i);
  return bytes;
}

Result<SnapshotFront> parse_snapshot_front(std::span<const std::byte> front, uint64_t total_bytes) {
  SnapshotFront result;
  MF_ASSIGN_OR_RETURN(result.header, parse_snapshot_header(front, total_bytes));
  const uint64_t begin = result.header.header_bytes();
  const uint64_t size = result.header.num_tokens * sizeof(TokenId);
  if (size > front.size() - begin) {
    return corrupt("says {} tokens in {} bytes", result.header.num_tokens, front.size());
  }
  const std::span<const std::byte> tokens = front.subspan(begin, size);
  if (checksum64(tokens) != read_le<uint64_t>(front, kTokensChecksumAt)) {
    return corrupt("the tokens do not have their checksum");
  }
  result.tokens.reserve(result.header.num_tokens);
  for (uint64_t at = 0; at < size; at += sizeof(TokenId)) {
    result.tokens.push_back(static_cast<TokenId>(read_le<uint32_t>(tokens, at)));
  }
  return result;
}

Result<SnapshotView> parse_snapshot(std::span<const std::byte> bytes) {
  MF_ASSIGN_OR_RETURN(SnapshotFront front, parse_snapshot_front(bytes, bytes.size()));
  SnapshotView view{std::move(front.header), std::move(front.tokens), {}, {}};
  const SnapshotHeader& header = view.header;
  uint64_t offset = header.front_bytes();
  const auto take = [&](uint64_t size) {
    offset += size;
    return bytes.subspan(offset - size, size);
  };
  for (size_t i = 0; i < header.layers.size(); ++i) {
    view.layers.push_back(take(header.layer_bytes(i)));
    const uint64_t record = kFixedBytes + i * kRecordBytes;
    if (checksum64(view.layers.back()) != read_le<uint64_t>(bytes, record + kChecksumAt)) {
      return corrupt("layer {} does not have its checksum", i);
    }
  }
  view.extra = take(header.extra_bytes);
  if (checksum64(view.extra) != read_le<uint64_t>(bytes, kExtraChecksumAt)) {
    return corrupt("the caller's bytes do not have their checksum");
  }
  return view;
}

SnapshotBuilder::SnapshotBuilder(SnapshotHeader header, std::span<const TokenId> tokens,
                                 std::span<const std::byte> extra)
    : header_(std::move(header)), bytes_(header_.total_bytes()) {
  MF_CHECK(tokens.size() == header_.num_tokens && extra.size() == header_.extra_bytes);
  uint64_t offset = header_.header_bytes();
  for (const TokenId token : tokens) {
    write_le(std::span(bytes_), offset, static_cast<uint32_t>(token));
    offset += sizeof(TokenId);
  }
  std::copy(extra.begin(), extra.end(), bytes_.end() - static_cast<ptrdiff_t>(extra.size()));
}

std::span<std::byte> SnapshotBuilder::layer(size_t i) {
  uint64_t offset = header_.front_bytes();
  for (size_t before = 0; before < i; ++before) offset += header_.layer_bytes(before);
  return std::span(bytes_).subspan(offset, header_.layer_bytes(i));
}

std::vector<std::byte> SnapshotBuilder::finish() && {
  const std::span<std::byte> bytes(bytes_);
  const uint64_t header_bytes = header_.header_bytes();
  std::memcpy(bytes.data(), kMagic.data(), kMagic.size());
  write_le(bytes, kVersionAt, kSnapshotVersion);
  write_le(bytes, kLayersAt, static_cast<uint32_t>(header_.layers.size()));
  write_le(bytes, kModelAt, header_.model);
  write_le(bytes, kTokensAt, header_.num_tokens);
  write_le(bytes, kExtraAt, header_.extra_bytes);
  write_le(bytes, kTotalAt, static_cast<uint64_t>(bytes.size()));
  write_le(bytes, kTokensChecksumAt,
           checksum64(bytes.subspan(header_bytes, header_.num_tokens * sizeof(TokenId))));
  write_le(bytes, kExtraChecksumAt, checksum64(bytes.last(header_.extra_bytes)));
  for (size_t i = 0; i < header_.layers.size(); ++i) {
    write_record(bytes.subspan(kFixedBytes + i * kRecordBytes, kRecordBytes), header_.layers[i],
                 checksum64(layer(i)));
  }
  const uint64_t checksum_at = header_bytes - sizeof(uint64_t);
  write_le(bytes, checksum_at, checksum64(bytes.first(checksum_at)));
  return std::move(bytes_);
}

}  // namespace moeflux
