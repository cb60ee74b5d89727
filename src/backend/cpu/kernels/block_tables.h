// The tables of quant/formats/iq_grids.h in the form that decoding reads: a grid's row as a word of
// small bytes. Data only: kernel files may include it.
#pragma once

#include <cstdint>

#include "quant/formats/iq_grids.h"

namespace moeflux::cpu {

template <typename Word, int kCount>
struct GridWords {
  Word words[kCount];
};

/// Entry after entry, number `i` of it in byte `i`: factor * level + offset.
template <typename Word, int kBits, int kCount, int kLevels>
constexpr GridWords<Word, kCount> spread_grid(const uint16_t (&grid)[kCount],
                                              const int8_t (&levels)[kLevels], int factor,
                                              int offset) {
  GridWords<Word, kCount> all{};
  for (int n = 0; n < kCount; ++n) {
    for (int i = 0; i < static_cast<int>(sizeof(Word)); ++i) {
      const int level = levels[grid[n] >> (kBits * i) & ((1 << kBits) - 1)];
      all.words[n] |= static_cast<Word>(static_cast<uint8_t>(factor * level + offset)) << (8 * i);
    }
  }
  return all;
}

/// Byte i is 0x7f where bit i of the index is set.
constexpr GridWords<uint64_t, 256> spread_signs() {
  GridWords<uint64_t, 256> all{};
  for (int n = 0; n < 256; ++n) {
    for (int i = 0; i < 8; ++i) {
      if ((n >> i & 1) != 0) all.words[n] |= uint64_t{0x7f} << (8 * i);
    }
  }
  return all;
}

/// The same of the eight signs that seven bits stand for: their count is even.
constexpr GridWords<uint64_t, 128> spread_even_signs() {
  GridWords<uint64_t, 128> all{};
  for (int n = 0; n < 128; ++n) {
    int count = 0;
    for (int i = 0; i < 7; ++i) count += n >> i & 1;
    all.words[n] = spread_signs().words[n | (count % 2 << 7)];
  }
  return all;
}

inline constexpr auto kIq2XxsWords =
    spread_grid<uint64_t, 2>(iq::kIq2XxsGrid, iq::kIq2Levels, 1, 0);
inline constexpr auto kIq2XsWords = spread_grid<uint64_t, 2>(iq::kIq2XsGrid, iq::kIq2Levels, 1, 0);
inline constexpr auto kIq2SWords = spread_grid<uint64_t, 2>(iq::kIq2SGrid, iq::kIq2Levels, 1, 0);
inline constexpr auto kIq3XxsWords =
    spread_grid<uint32_t, 3>(iq::kIq3XxsGrid, iq::kIq3XxsLevels, 1, 0);
inline constexpr auto kIq3SWords = spread_grid<uint32_t, 3>(iq::kIq3SGrid, iq::kIq3SLevels, 1, 0);
/// Eight times the number, and 16 more.
inline constexpr auto kIq1Words = spread_grid<uint64_t, 2>(iq::kIq1Grid, iq::kIq1Levels, 8, 16);
inline constexpr auto kSignWords = spread_signs();
inline constexpr auto kEvenSignWords = spread_even_signs();

/// iq::kIq4Levels and 128 more.
inline constexpr uint8_t kIq4Codes[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                          129, 141, 153, 166, 181, 197, 217, 241};
/// Twice the numbers of e2m1, and 16 more.
inline constexpr uint8_t kE2m1Codes[16] = {16, 17, 18, 19, 20, 22, 24, 28,
                                           16, 15, 14, 13, 12, 10, 8,  4};

/// Codes of a grid's levels by their number.
struct LevelCodes {
  uint8_t codes[16];
};
template <int kLevels>
constexpr LevelCodes level_codes(const int8_t (&levels)[kLevels]) {
  LevelCodes all{};
  for (int i = 0; i < kLevels; ++i) {
    all.codes[i] = static_cast<uint8_t>(64 + levels[i]);
  }
  return all;
}
/// The same by four times the number, too: what block_lanes_*-inl.h makes of four levels.
constexpr LevelCodes level_codes_of_pairs(const int8_t (&levels)[4]) {
  LevelCodes all = level_codes(levels);
  for (int i = 1; i < 4; ++i) all.codes[4 * i] = all.codes[i];
  return all;
}
/// IQ1 has eight times the level, 16 more, and 1 more or, from 8 on, less.
constexpr LevelCodes moved_levels() {
  LevelCodes all{};
  for (int i = 0; i < 3; ++i) {
    all.codes[i] = static_cast<uint8_t>(8 * iq::kIq1Levels[i] + 17);
    all.codes[8 + i] = static_cast<uint8_t>(8 * iq::kIq1Levels[i] + 15);
  }
  return all;
}
inline constexpr LevelCodes kIq2Codes = level_codes_of_pairs(iq::kIq2Levels);
inline constexpr LevelCodes kIq3XxsCodes = level_codes(iq::kIq3XxsLevels);
inline constexpr LevelCodes kIq3SCodes = level_codes(iq::kIq3SLevels);
inline constexpr LevelCodes kIq1Codes = moved_levels();

}  // namespace moeflux::cpu
