#include "engine/snapshot.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "checkpoint/checksum.h"
#include "tests/support/expect_error.h"

namespace moeflux {
namespace {

using testing::expect_error;
using Bytes = std::vector<std::byte>;

SnapshotHeader some_header() {
  return {.model = 0x0123456789abcdef,
          .num_tokens = 5,
          .extra_bytes = 3,
          .layers = {
              {{{.extent = StateExtent::kFixed, .shape = {3, 3}},
                {.extent = StateExtent::kFixed, .shape = {2, 2, 3}}}},
              {{{.shape = {2, 3}}, {.shape = {2, 2}}}},
              {{{.shape = {1, 2}, .window = 3}, {.shape = {1, 2}, .window = 3}}},
              {},
              {{{.shape = {1, 4}, .dtype = DType::kF16}}},
          }};
}

// Behind the header, seven records of tensors and the header's checksum.
constexpr size_t kTokensBegin = 72 + 7 * 48 + 8;
const std::vector<TokenId> kTokens = {7, 0, 65535, 3, 2};
const Bytes kExtra = {std::byte{1}, std::byte{2}, std::byte{3}};

Bytes some_snapshot() {
  const SnapshotHeader header = some_header();
  SnapshotBuilder builder(header, kTokens, kExtra);
  for (size_t i = 0; i < header.layers.size(); ++i) {
    std::ranges::fill(builder.layer(i), static_cast<std::byte>(i + 1));
  }
  return std::move(builder).finish();
}

TEST(Snapshot, GivesBackWhatWasPutIn) {
  const Bytes bytes = some_snapshot();
  const auto view = parse_snapshot(bytes);
  ASSERT_TRUE(view.ok()) << view.error().to_string();
  EXPECT_EQ(view->header.model, some_header().model);
  EXPECT_EQ(view->header.layers, some_header().layers);
  EXPECT_EQ(view->tokens, kTokens);
  EXPECT_TRUE(std::ranges::equal(view->extra, kExtra));
  ASSERT_EQ(view->layers.size(), 5u);
  const std::vector<size_t> sizes = {(9u + 12u) * 4, 5u * 10 * 4, 2u * 4 * 4, 0, 5u * 4 * 2};
  for (size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(view->layers[i].size(), sizes[i]) << i;
    EXPECT_TRUE(std::ranges::all_of(
        view->layers[i], [&](std::byte b) { return b == static_cast<std::byte>(i + 1); }));
  }
}

// docs/formats/snapshot.md says so.
TEST(Snapshot, LiesAsDocumented) {
  const Bytes bytes = some_snapshot();
  const auto u32 = [&](size_t at) {
    uint32_t value = 0;
    for (size_t i = 4; i-- > 0;) value = value << 8 | static_cast<uint32_t>(bytes[at + i]);
    return value;
  };
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), 8), "MFLXSNAP");
  EXPECT_EQ(u32(8), 2u);
  EXPECT_EQ(u32(12), 5u);
  EXPECT_EQ(u32(16), 0x89abcdefu);
  EXPECT_EQ(u32(24), 5u);
  EXPECT_EQ(u32(32), 3u);
  EXPECT_EQ(u32(40), bytes.size());
  EXPECT_EQ(u32(64), 7u);                                // tensors
  EXPECT_EQ(u32(72 + 4), 1u);                            // of a fixed size
  EXPECT_EQ(u32(72 + 2 * 48), 1u);                       // of the second layer
  EXPECT_EQ(u32(72 + 4 * 48 + 32), 3u);                  // a window
  EXPECT_EQ(u32(72 + 6 * 48 + 8), 1u);                   // f16
  EXPECT_EQ(u32(kTokensBegin), 7u);                      // the first token
  EXPECT_EQ(bytes[kTokensBegin + 5 * 4], std::byte{1});  // the first layer's first byte
  EXPECT_EQ(bytes.back(), std::byte{3});
}

TEST(Snapshot, EveryFlippedBitIsNoticed) {
  const Bytes good = some_snapshot();
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    Bytes bytes = good;
    bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    const auto view = parse_snapshot(bytes);
    ASSERT_FALSE(view.ok()) << "bit " << bit;
    const bool version = bit / 8 >= 8 && bit / 8 < 12;
    EXPECT_EQ(view.error().code(), version ? ErrorCode::kUnsupported : ErrorCode::kCorruption);
  }
}

TEST(Snapshot, EveryCutAndEveryByteTooManyIsNoticed) {
  Bytes bytes = some_snapshot();
  for (size_t size = 0; size < bytes.size(); ++size) {
    expect_error(parse_snapshot(std::span(bytes).first(size)), ErrorCode::kCorruption,
                 {"snapshot"});
  }
  bytes.push_back(std::byte{0});
  expect_error(parse_snapshot(bytes), ErrorCode::kCorruption, {"header"});
}

TEST(Snapshot, SizesThatOverflowAreRefused) {
  // The checksum is right, the contents are not.
  const auto refused = [](const auto& change) {
    SnapshotHeader header = some_header();
    change(header);
    SnapshotBuilder builder(
        {.model = 1, .num_tokens = 0, .extra_bytes = 0, .layers = header.layers}, {}, {});
    expect_error(parse_snapshot(std::move(builder).finish()), ErrorCode::kCorruption, {"tensor "});
  };
  refused([](SnapshotHeader& h) { h.layers[1].tensors[0].shape.set(0, (1 << 20) + 1); });
  refused([](SnapshotHeader& h) { h.layers[1].tensors[1].shape.set(1, 0); });
  refused([](SnapshotHeader& h) { h.layers[1].tensors[0].shape = {}; });
  refused([](SnapshotHeader& h) { h.layers[2].tensors[0].window = int64_t{1} << 40; });
  refused([](SnapshotHeader& h) { h.layers[0].tensors[0].window = 4; });
  refused([](SnapshotHeader& h) { h.layers[0].tensors[1].dtype = DType::kF16; });
}

// A header whose checksum is right and whose fields are wrong.
TEST(Snapshot, AHeaderThatMakesNoSenseIsRefusedWhateverItsChecksum) {
  const auto refused = [](size_t at, uint32_t value, const char* word) {
    Bytes bytes = some_snapshot();
    const auto put = [&](size_t begin, uint64_t number, size_t count) {
      for (size_t i = 0; i < count; ++i) {
        bytes[begin + i] = static_cast<std::byte>(number >> (8 * i));
      }
    };
    put(at, value, 4);
    const size_t checksum_at = kTokensBegin - 8;
    put(checksum_at, checksum64(std::span(bytes).first(checksum_at)), 8);
    expect_error(parse_snapshot(bytes), ErrorCode::kCorruption, {word});
  };
  constexpr auto record = [](size_t i) { return 72 + i * 48; };
  refused(12, 0, "0 layers");
  refused(12, kSnapshotLayersMax + 1, "layers");
  refused(24, UINT32_MAX, "tokens");
  refused(24, 4, "contradicts its header");  // one token fewer
  refused(32, 2, "contradicts its header");
  refused(32, UINT32_MAX, "extra bytes");
  refused(40, 1, "header of 1");
  refused(record(6), 0, "is of layer 0");  // behind layers 1 and 2
  refused(record(6), 5, "is of layer 5");
  refused(record(2) + 4, 2, "extent 2");
  refused(record(2) + 8, 3, "type 3");
  refused(record(2) + 12, 4, "rank 4");
  refused(record(2) + 12, 1, "extent of 3, expected 0");
  refused(record(2) + 28, 1, "expected a known extent");
  refused(record(4) + 32, 2, "contradicts its header");
}

TEST(Snapshot, FrontIsReadWithoutTheRest) {
  const Bytes bytes = some_snapshot();
  const size_t front_bytes = kTokensBegin + 5 * 4;
  const auto front = parse_snapshot_front(std::span(bytes).first(front_bytes), bytes.size());
  ASSERT_TRUE(front.ok()) << front.error().to_string();
  EXPECT_EQ(front->tokens, kTokens);
  expect_error(parse_snapshot_front(std::span(bytes).first(front_bytes - 1), bytes.size()),
               ErrorCode::kCorruption, {"5 tokens"});
  expect_error(parse_snapshot_front(std::span(bytes).first(front_bytes), bytes.size() - 1),
               ErrorCode::kCorruption, {"header"});
  const size_t header_bytes = front_bytes - 5 * 4;
  const auto header = parse_snapshot_header(std::span(bytes).first(header_bytes), bytes.size());
  ASSERT_TRUE(header.ok()) << header.error().to_string();
  EXPECT_EQ(header->header_bytes(), header_bytes);
  EXPECT_EQ(header->front_bytes(), front_bytes);
  EXPECT_GE(snapshot_header_bytes_max(), header_bytes);
}

}  // namespace
}  // namespace moeflux
