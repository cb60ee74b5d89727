// Philox4x32-10, a counter-based generator: the n-th number of a seed is a function of both, so a
// seed means the same numbers on every platform and a stream can be resumed anywhere.
#pragma once

#include <array>
#include <cstdint>

namespace moeflux {

/// The block of four words for a counter and a key (Salmon et al., "Parallel random numbers: as
/// easy as 1, 2, 3", 2011).
constexpr std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter,
                                             std::array<uint32_t, 2> key) {
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

/// The `draw`-th uniform number of a seed, in [0, 1), a multiple of 2^-53.
constexpr double uniform_draw(uint64_t seed, uint64_t draw) {
  const auto low = [](uint64_t x) { return static_cast<uint32_t>(x); };
  const auto high = [](uint64_t x) { return static_cast<uint32_t>(x >> 32); };
  const auto block = philox4x32({low(draw), high(draw), 0, 0}, {low(seed), high(seed)});
  const uint64_t bits = (uint64_t{block[1]} << 32) | block[0];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace moeflux
