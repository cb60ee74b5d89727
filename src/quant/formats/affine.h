// The MLX affine formats: groups of `group_size` weights along a row share a scale and a bias,
// w = scale * code + bias, with unsigned codes of 2, 3, 4, 5, 6 or 8 bits.
// A row of codes is a little-endian bit stream: code e occupies bits [e * bits, (e + 1) * bits),
// bit b of the stream being bit b % 8 of byte b / 8. Scales may be negative and biases of any sign.
// Source: mlx.core.quantize, and its packing as found in public checkpoints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace moeflux::affine {

constexpr bool is_valid_bits(int bits) { return bits >= 2 && bits <= 8 && bits != 7; }
constexpr bool is_valid_group(int group_size) {
  return group_size == 32 || group_size == 64 || group_size == 128;
}

inline uint32_t code_at(const std::byte* row, int64_t e, int bits) {
  const int64_t bit = e * bits;
  const auto* bytes = reinterpret_cast<const uint8_t*>(row) + bit / 8;
  const int shift = static_cast<int>(bit % 8);
  uint32_t window = bytes[0];
  if (shift + bits > 8) window |= static_cast<uint32_t>(bytes[1]) << 8;
  return (window >> shift) & ((1u << bits) - 1u);
}

/// Stores `code` (below 2^bits) as element `e`; the target bits must be zero.
inline void set_code(std::byte* row, int64_t e, int bits, uint32_t code) {
  const int64_t bit = e * bits;
  auto* bytes = reinterpret_cast<uint8_t*>(row) + bit / 8;
  const int shift = static_cast<int>(bit % 8);
  const uint32_t window = code << shift;
  bytes[0] = static_cast<uint8_t>(bytes[0] | (window & 0xffu));
  if (shift + bits > 8) bytes[1] = static_cast<uint8_t>(bytes[1] | (window >> 8));
}

struct GroupParams {
  float scale;
  float bias;
};

/// Chooses scale and bias of one group the way mlx.core.quantize does: the extreme of larger
/// magnitude is kept exactly on the grid, zero stays representable. The caller rounds both to the
/// storage dtype before it encodes.
GroupParams choose_group_params(std::span<const float> weights, int bits);

/// The code nearest to `weight` under (already rounded) `params`.
uint32_t encode(float weight, GroupParams params, int bits);

}  // namespace moeflux::affine
