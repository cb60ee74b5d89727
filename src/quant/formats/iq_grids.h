// The points that the codes of GGML's IQ types choose from: rows of a grid of eight or four small
// numbers. 9 KiB in all.
#pragma once

#include <cstdint>

#include "quant/formats/iq_grid_data.h"

namespace moeflux::iq {

inline constexpr uint16_t kIq2XxsGrid[256] = {MF_IQ2_XXS_GRID};
inline constexpr uint16_t kIq2XsGrid[512] = {MF_IQ2_XS_GRID};
inline constexpr uint16_t kIq2SGrid[1024] = {MF_IQ2_S_GRID};
inline constexpr uint16_t kIq3XxsGrid[256] = {MF_IQ3_XXS_GRID};
inline constexpr uint16_t kIq3SGrid[512] = {MF_IQ3_S_GRID};
inline constexpr uint16_t kIq1Grid[2048] = {MF_IQ1_GRID};

/// Values of an entry's levels. No entry of 2 bits has level 3.
inline constexpr int8_t kIq2Levels[4] = {8, 25, 43, 0};
inline constexpr int8_t kIq3XxsLevels[8] = {4, 12, 20, 28, 36, 44, 52, 62};
inline constexpr int8_t kIq3SLevels[8] = {1, 3, 5, 7, 9, 11, 13, 15};
inline constexpr int8_t kIq1Levels[4] = {-1, 0, 1, 0};

/// Values of the codes of IQ4_NL and IQ4_XS.
inline constexpr int8_t kIq4Levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};

/// Number `i` of an entry.
constexpr int iq2_number(uint16_t entry, int i) { return kIq2Levels[entry >> (2 * i) & 3]; }
constexpr int iq3_xxs_number(uint16_t entry, int i) { return kIq3XxsLevels[entry >> (3 * i) & 7]; }
constexpr int iq3_s_number(uint16_t entry, int i) { return kIq3SLevels[entry >> (3 * i) & 7]; }
constexpr int iq1_number(uint16_t entry, int i) { return kIq1Levels[entry >> (2 * i) & 3]; }

/// Whether bit `i` of the signs that 7 bits stand for is set: bit 7 makes their count even.
constexpr bool even_sign(uint32_t bits, int i) {
  const uint32_t parity = bits ^ bits >> 4;
  return ((i < 7 ? bits >> i : 0x6996u >> (parity & 15)) & 1) != 0;
}

}  // namespace moeflux::iq
