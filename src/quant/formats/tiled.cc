#include "quant/formats/tiled.h"

#include <cstring>

#include "base/check.h"

namespace moeflux::tiled {
namespace {

// One row's share of a line is a 32-bit word: the codes of 8 columns (4 bits) or of 4 (8 bits).
constexpr int64_t kWordBytes = 4;

size_t param_bytes(const QuantFormat& format) { return format.dtype == DType::kF32 ? 4 : 2; }

// Exchanges the bits of `low` with those `shift` above them.
uint32_t swap_bits(uint32_t word, uint32_t low, int shift) {
  const uint32_t differ = (word ^ word >> shift) & low;
  return word ^ differ ^ differ << shift;
}

// Row-major words hold eight codes as 0 1 | 2 3 | 4 5 | 6 7, low half of a byte first. Tiles hold
// them as 0 4 | 1 5 | 2 6 | 3 7. So the middle bytes change places, then the middle halves of each
// pair of bytes.
uint32_t to_tile_word(uint32_t codes) {
  return swap_bits(swap_bits(codes, 0x0000ff00u, 8), 0x00f000f0u, 4);
}
uint32_t from_tile_word(uint32_t word) {
  return swap_bits(swap_bits(word, 0x00f000f0u, 4), 0x0000ff00u, 8);
}

uint32_t load_word(const std::byte* from) {
  uint32_t word;
  std::memcpy(&word, from, kWordBytes);
  return word;
}
void store_word(std::byte* to, uint32_t word) { std::memcpy(to, &word, kWordBytes); }

struct Extents {
  int64_t row_bytes;        // of row-major codes
  int64_t group_row_bytes;  // of a group of them
  int64_t groups;           // of a row
};

Extents extents_of(const QuantFormat& format, int64_t cols) {
  return {cols * format.bits / 8, int64_t{format.group_size} * format.bits / 8,
          cols / format.group_size};
}

// One group of a panel. `codes` are those of its first row. Line by line, because whole lines are
// written at the speed of memory and the sixteen rows that they gather from stay in the cache.
template <bool kFourBits>
void tile_codes(std::byte* to, const std::byte* codes, const Extents& e) {
  for (int64_t word = 0; word < e.group_row_bytes / kWordBytes; ++word) {
    uint32_t line[kPanelRows];
    for (int64_t r = 0; r < kPanelRows; ++r) {
      line[r] = load_word(codes + r * e.row_bytes + word * kWordBytes);
    }
    if constexpr (kFourBits) {
      for (uint32_t& lane : line) lane = to_tile_word(lane);
    }
    std::memcpy(to + word * kLineBytes, line, sizeof(line));
  }
}

// Scales or biases of a group of a panel: sixteen numbers, one of each row of `groups` numbers.
template <typename Bits>
void tile_params(std::byte* to, const std::byte* params, int64_t groups) {
  for (int64_t r = 0; r < kPanelRows; ++r) {
    std::memcpy(to + r * int64_t{sizeof(Bits)}, params + r * groups * int64_t{sizeof(Bits)},
                sizeof(Bits));
  }
}

// fn(tile of a group, first row of its panel, group) in the order of the tiles.
template <typename Bytes, typename Fn>
void for_groups(Bytes* tiles, const QuantFormat& format, int64_t rows, int64_t cols, Fn&& fn) {
  MF_CHECK(is_tileable(format, rows) && cols % format.group_size == 0);
  for (int64_t panel = 0; panel < rows / kPanelRows; ++panel) {
    for (int64_t group = 0; group < cols / format.group_size; ++group) {
      fn(tiles, panel * kPanelRows, group);
      tiles += group_bytes(format);
    }
  }
}

}  // namespace

void tile(std::span<std::byte> out, const RowMajorParts& parts, const QuantFormat& format,
          int64_t rows, int64_t cols) {
  const Extents e = extents_of(format, cols);
  const size_t param = param_bytes(format);
  MF_CHECK(out.size() == static_cast<size_t>(rows / kPanelRows * panel_bytes(format, cols)));
  MF_CHECK(parts.codes.size() == static_cast<size_t>(rows * e.row_bytes));
  MF_CHECK(parts.scales.size() == static_cast<size_t>(rows * e.groups) * param &&
           parts.biases.size() == parts.scales.size());
  const auto codes = format.bits == 4 ? tile_codes<true> : tile_codes<false>;
  const auto params = param == 4 ? tile_params<uint32_t> : tile_params<uint16_t>;
  for_groups(out.data(), format, rows, cols, [&](std::byte* to, int64_t row, int64_t group) {
    codes(to, parts.codes.data() + row * e.row_bytes + group * e.group_row_bytes, e);
    to += group_code_bytes(format);
    const size_t from = static_cast<size_t>(row * e.groups + group) * param;
    params(to, parts.scales.data() + from, e.groups);
    params(to + static_cast<size_t>(kPanelRows) * param, parts.biases.data() + from, e.groups);
  });
}

void untile(std::span<std::byte> codes, std::span<std::byte> scales, std::span<std::byte> biases,
            std::span<const std::byte> tiles, const QuantFormat& format, int64_t rows,
            int64_t cols) {
  const Extents e = extents_of(format, cols);
  const size_t param = param_bytes(format);
  MF_CHECK(tiles.size() == static_cast<size_t>(rows / kPanelRows * panel_bytes(format, cols)));
  MF_CHECK(codes.size() == static_cast<size_t>(rows * e.row_bytes));
  MF_CHECK(scales.size() == static_cast<size_t>(rows * e.groups) * param &&
           biases.size() == scales.size());
  for_groups(
      tiles.data(), format, rows, cols, [&](const std::byte* from, int64_t row, int64_t group) {
        const std::byte* params = from + group_code_bytes(format);
        for (int64_t r = 0; r < kPanelRows; ++r) {
          std::byte* to = codes.data() + (row + r) * e.row_bytes + group * e.group_row_bytes;
          for (int64_t word = 0; word < e.group_row_bytes / kWordBytes; ++word) {
            const uint32_t stored = load_word(from + word * kLineBytes + r * kWordBytes);
            store_word(to + word * kWordBytes, format.bits == 4 ? from_tile_word(stored) : stored);
          }
          const size_t at = static_cast<size_t>((row + r) * e.groups + group) * param;
          std::memcpy(scales.data() + at, params + static_cast<size_t>(r) * param, param);
          std::memcpy(biases.data() + at, params + static_cast<size_t>(kPanelRows + r) * param,
                      param);
        }
      });
}

uint32_t code_at(const std::byte* tiles, const QuantFormat& format, int64_t cols, int64_t row,
                 int64_t col) {
  const std::byte* group = tiles + row / kPanelRows * panel_bytes(format, cols) +
                           col / format.group_size * group_bytes(format);
  const int64_t in_group = col % format.group_size;
  const int64_t lane = row % kPanelRows * kWordBytes;
  if (format.bits == 8) {
    return static_cast<uint32_t>(group[in_group / 4 * kLineBytes + lane + in_group % 4]);
  }
  const auto byte = static_cast<uint32_t>(group[in_group / 8 * kLineBytes + lane + in_group % 4]);
  return in_group % 8 < 4 ? byte & 0xfu : byte >> 4;
}

GroupParams params_at(const std::byte* tiles, const QuantFormat& format, int64_t cols, int64_t row,
                      int64_t group) {
  const std::byte* params = tiles + row / kPanelRows * panel_bytes(format, cols) +
                            group * group_bytes(format) + group_code_bytes(format);
  const int64_t lane = row % kPanelRows;
  return {load_float(params, lane, format.dtype),
          load_float(params, kPanelRows + lane, format.dtype)};
}

}  // namespace moeflux::tiled
