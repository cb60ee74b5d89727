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

constexpr std::string_view kSnapshotMagic = "MFLXSNAP";
// Places in the header.
constexpr uint64_t kVersionAt = 8;
constexpr uint64_t kLayersAt = 12;
constexpr uint64_t kModelAt = 16;
constexpr uint64_t kTokensAt = 24;
constexpr uint64_t kExtraAt = 32;
constexpr uint64_t kTotalAt = 40;
constexpr uint64_t kTokensChecksumAt = 48;
constexpr uint64_t kExtraChecksumAt = 56;
constexpr uint64_t kTensorsAt = 64;
constexpr uint64_t kFixedBytes = 72;   // then the records of tensors
constexpr uint64_t kRecordBytes = 48;  // of a tensor
// No extent is larger: far beyond any model, and products of three still fit 64 bits.
constexpr uint32_t kExtentMax = 1 << 20;
constexpr uint32_t kRankMax = 3;
// Element types as records spell them.
constexpr std::array<DType, 3> kValueTypes = {DType::kF32, DType::kF16, DType::kI8};

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

// Places in a record.
constexpr uint64_t kExtentAt = 4;
constexpr uint64_t kTypeAt = 8;
constexpr uint64_t kRankAt = 12;
constexpr uint64_t kShapeAt = 16;
constexpr uint64_t kWindowAt = 32;
constexpr uint64_t kChecksumAt = 40;

void write_record(std::span<std::byte> record, size_t layer, const StateTensor& spec,
                  uint64_t checksum) {
  write_le(record, 0, static_cast<uint32_t>(layer));
  write_le(record, kExtentAt, static_cast<uint32_t>(spec.extent));
  const auto* type = std::ranges::find(kValueTypes, spec.dtype);
  write_le(record, kTypeAt, static_cast<uint32_t>(type - kValueTypes.begin()));
  write_le(record, kRankAt, static_cast<uint32_t>(spec.shape.rank()));
  for (int i = 0; i < spec.shape.rank(); ++i) {
    write_le(record, kShapeAt + 4 * static_cast<uint64_t>(i), static_cast<uint32_t>(spec.shape[i]));
  }
  write_le(record, kWindowAt, static_cast<uint64_t>(spec.window));
  write_le(record, kChecksumAt, checksum);
}

Result<Shape> read_shape(std::span<const std::byte> record, uint64_t tensor) {
  const auto rank = read_le<uint32_t>(record, kRankAt);
  if (rank == 0 || rank > kRankMax) {
    return corrupt("tensor {} has rank {}, expected 1 to {}", tensor, rank, kRankMax);
  }
  std::array<int64_t, kRankMax> extents{};
  for (uint32_t i = 0; i < kRankMax; ++i) {
    const auto extent = read_le<uint32_t>(record, kShapeAt + 4 * uint64_t{i});
    const bool belongs = i < rank;
    if (belongs ? extent == 0 || extent > kExtentMax : extent != 0) {
      return corrupt("tensor {} has an extent of {}, expected {}", tensor, extent,
                     belongs ? formatted("1 to {}", kExtentMax) : "0");
    }
    extents[i] = extent;
  }
  return Shape(std::span(extents).first(rank));
}

Result<StateTensor> read_record(std::span<const std::byte> record, uint64_t tensor) {
  const auto extent = read_le<uint32_t>(record, kExtentAt);
  const auto type = read_le<uint32_t>(record, kTypeAt);
  const auto window = read_le<uint64_t>(record, kWindowAt);
  const bool is_fixed = extent == static_cast<uint32_t>(StateExtent::kFixed);
  if (extent > static_cast<uint32_t>(StateExtent::kFixed) || type >= kValueTypes.size() ||
      window > INT32_MAX || read_le<uint32_t>(record, kShapeAt + 4 * uint64_t{kRankMax}) != 0 ||
      (is_fixed && (type != 0 || window != 0))) {
    return corrupt(
        "tensor {} has extent {}, type {} and window {}, expected a known extent with what "
        "belongs to it",
        tensor, extent, type, window);
  }
  MF_ASSIGN_OR_RETURN(const Shape shape, read_shape(record, tensor));
  return StateTensor{.extent = static_cast<StateExtent>(extent),
                     .shape = shape,
                     .dtype = kValueTypes[type],
                     .window = static_cast<int64_t>(window)};
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

bool has_magic(std::span<const std::byte> bytes) {
  return std::memcmp(bytes.data(), kSnapshotMagic.data(), kSnapshotMagic.size()) == 0;
}

// The number of tensors.
Result<uint64_t> check_beginning(std::span<const std::byte> bytes) {
  if (bytes.size() < kFixedBytes) {
    return corrupt("has {} bytes, expected at least {}", bytes.size(), kFixedBytes);
  }
  if (!has_magic(bytes)) {
    return corrupt("does not begin with {}", kSnapshotMagic);
  }
  const auto version = read_le<uint32_t>(bytes, kVersionAt);
  if (version != kSnapshotVersion) {
    return make_error(ErrorCode::kUnsupported, "snapshot: has version {}, expected {}", version,
                      kSnapshotVersion);
  }
  const uint64_t layers = read_le<uint32_t>(bytes, kLayersAt);
  const uint64_t tensors = read_le<uint64_t>(bytes, kTensorsAt);
  const uint64_t header_bytes = kFixedBytes + tensors * kRecordBytes + sizeof(uint64_t);
  if (layers == 0 || layers > kSnapshotLayersMax || tensors > kSnapshotTensorsMax ||
      header_bytes > bytes.size()) {
    return corrupt(
        "says {} layers and {} tensors in {} bytes, expected up to {} and {} with {} bytes each",
        layers, tensors, bytes.size(), kSnapshotLayersMax, kSnapshotTensorsMax, kRecordBytes);
  }
  const uint64_t checksum_at = header_bytes - sizeof(uint64_t);
  if (checksum64(bytes.first(checksum_at)) != read_le<uint64_t>(bytes, checksum_at)) {
    return corrupt("the header does not have its checksum");
  }
  return tensors;
}

}  // namespace

bool begins_as_snapshot(std::span<const std::byte> bytes) {
  return bytes.size() >= kSnapshotBeginningBytes && has_magic(bytes) &&
         read_le<uint32_t>(bytes, kVersionAt) == kSnapshotVersion;
}

uint64_t snapshot_header_bytes_max() {
  return kFixedBytes + kSnapshotTensorsMax * kRecordBytes + sizeof(uint64_t);
}

Result<SnapshotHeader> parse_snapshot_header(std::span<const std::byte> bytes,
                                             uint64_t total_bytes) {
  MF_ASSIGN_OR_RETURN(const uint64_t num_tensors, check_beginning(bytes));
  SnapshotHeader header{.model = read_le<uint64_t>(bytes, kModelAt),
                        .num_tokens = read_le<uint64_t>(bytes, kTokensAt),
                        .extra_bytes = read_le<uint64_t>(bytes, kExtraAt),
                        .layers = std::vector<LayerStateSpec>(read_le<uint32_t>(bytes, kLayersAt))};
  if (header.num_tokens > total_bytes || header.num_tokens > INT32_MAX ||
      header.extra_bytes > total_bytes) {
    return corrupt("says {} tokens and {} extra bytes in {} bytes", header.num_tokens,
                   header.extra_bytes, total_bytes);
  }
  Total total;
  uint64_t layer_before = 0;
  for (uint64_t i = 0; i < num_tensors; ++i) {
    const auto record = bytes.subspan(kFixedBytes + i * kRecordBytes, kRecordBytes);
    const uint64_t layer = read_le<uint32_t>(record, 0);
    if (layer < layer_before || layer >= header.layers.size()) {
      return corrupt("tensor {} is of layer {}, expected {} to {}", i, layer, layer_before,
                     header.layers.size() - 1);
    }
    layer_before = layer;
    MF_ASSIGN_OR_RETURN(StateTensor spec, read_record(record, i));
    const auto length = static_cast<int64_t>(header.num_tokens);
    const int64_t count = spec.is_per_token() ? length - spec.first_read(length) : 1;
    total.add(static_cast<uint64_t>(count), spec.bytes());
    header.layers[layer].tensors.push_back(std::move(spec));
  }
  total.add(header.front_bytes() + header.extra_bytes);
  if (read_le<uint64_t>(bytes, kTotalAt) != total_bytes || !total.is(total_bytes)) {
    return corrupt("has {} bytes, which contradicts its header of {}", total_bytes,
                   read_le<uint64_t>(bytes, kTotalAt));
  }
  return header;
}

uint64_t SnapshotHeader::header_bytes() const {
  return kFixedBytes + num_tensors() * kRecordBytes + sizeof(uint64_t);
}

uint64_t SnapshotHeader::num_tensors() const {
  uint64_t count = 0;
  for (const LayerStateSpec& layer : layers) count += layer.tensors.size();
  return count;
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
  const auto length = static_cast<int64_t>(header.num_tokens);
  uint64_t checksum_at = kFixedBytes + kChecksumAt;
  for (size_t i = 0; i < header.layers.size(); ++i) {
    view.layers.push_back(take(header.layer_bytes(i)));
    std::span<const std::byte> rest = view.layers.back();
    for (const StateTensor& tensor : header.layers[i].tensors) {
      const uint64_t size = tensor.bytes_after(length);
      if (checksum64(rest.first(size)) != read_le<uint64_t>(bytes, checksum_at)) {
        return corrupt("layer {} does not have its checksum", i);
      }
      rest = rest.subspan(size);
      checksum_at += kRecordBytes;
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
  std::memcpy(bytes.data(), kSnapshotMagic.data(), kSnapshotMagic.size());
  write_le(bytes, kVersionAt, kSnapshotVersion);
  write_le(bytes, kLayersAt, static_cast<uint32_t>(header_.layers.size()));
  write_le(bytes, kModelAt, header_.model);
  write_le(bytes, kTokensAt, header_.num_tokens);
  write_le(bytes, kExtraAt, header_.extra_bytes);
  write_le(bytes, kTotalAt, static_cast<uint64_t>(bytes.size()));
  write_le(bytes, kTokensChecksumAt,
           checksum64(bytes.subspan(header_bytes, header_.num_tokens * sizeof(TokenId))));
  write_le(bytes, kExtraChecksumAt, checksum64(bytes.last(header_.extra_bytes)));
  write_le(bytes, kTensorsAt, header_.num_tensors());
  uint64_t record_at = kFixedBytes;
  uint64_t contents_at = header_.front_bytes();
  for (size_t i = 0; i < header_.layers.size(); ++i) {
    for (const StateTensor& tensor : header_.layers[i].tensors) {
      const uint64_t size = tensor.bytes_after(static_cast<int64_t>(header_.num_tokens));
      write_record(bytes.subspan(record_at, kRecordBytes), i, tensor,
                   checksum64(bytes.subspan(contents_at, size)));
      record_at += kRecordBytes;
      contents_at += size;
    }
  }
  const uint64_t checksum_at = header_bytes - sizeof(uint64_t);
  write_le(bytes, checksum_at, checksum64(bytes.first(checksum_at)));
  return std::move(bytes_);
}

}  // namespace moeflux
