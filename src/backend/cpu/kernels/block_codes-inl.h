// Blocks of GGML's types as small unsigned codes in groups: w = scale * (code - kZero), or
// scale * code - min. The numbers are those of quant/formats/ggml_*_formats.cc to the last bit, for
// scales and products of theirs with codes are exact in f32.
// Included inside a namespace, after inline_macros-inl.h and block_tables.h. Every type has
//   kElements, kBytes  of a block
//   kGroup             numbers that share a scale
//   kZero              the code of zero; where kHasMin is set, 0
//   unpack(block, to)  for any bits, reading nothing else

/// Up to 256 codes with the scales of their groups.
template <class Block>
struct BlockCodes {
  uint8_t codes[Block::kElements];
  float scales[Block::kElements / Block::kGroup];
  float mins[Block::kElements / Block::kGroup];  // where the type has them
};

MF_INLINE uint32_t load_u16(const uint8_t* p) {
  uint16_t value;
  __builtin_memcpy(&value, p, 2);
  return value;
}
MF_INLINE uint32_t load_u32(const uint8_t* p) {
  uint32_t value;
  __builtin_memcpy(&value, p, 4);
  return value;
}
MF_INLINE void store_u32(uint8_t* p, uint32_t value) { __builtin_memcpy(p, &value, 4); }
MF_INLINE void store_u64(uint8_t* p, uint64_t value) { __builtin_memcpy(p, &value, 8); }

/// Half to float. The exponent moves by 112, which also makes normal numbers of small ones.
MF_INLINE float half_bits(uint32_t bits) {
  const uint32_t magnitude = (bits & 0x7fffu) << 13;
  float value;
  __builtin_memcpy(&value, &magnitude, 4);
  value *= 0x1p112f;
  uint32_t out;
  __builtin_memcpy(&out, &value, 4);
  if (magnitude >= 0x0f800000u) out |= 0x7f800000u;
  out |= (bits & 0x8000u) << 16;
  __builtin_memcpy(&value, &out, 4);
  return value;
}
MF_INLINE float load_half(const uint8_t* p) { return half_bits(load_u16(p)); }

/// Codes of 4 bits in 16 bytes: the low halves first.
MF_INLINE void unpack_nibbles(const uint8_t* from, uint8_t* to) {
  for (int i = 0; i < 16; ++i) {
    to[i] = from[i] & 15;
    to[16 + i] = static_cast<uint8_t>(from[i] >> 4);
  }
}
/// Adds 16 to the codes of 32 bits.
MF_INLINE void add_fifth_bits(uint32_t bits, uint8_t* codes) {
  for (int i = 0; i < 32; ++i) {
    codes[i] = static_cast<uint8_t>(codes[i] | ((bits >> i & 1) << 4));
  }
}
MF_INLINE void look_up_nibbles(const uint8_t* from, const uint8_t (&table)[16], uint8_t* to) {
  for (int i = 0; i < 16; ++i) {
    to[i] = table[from[i] & 15];
    to[16 + i] = table[from[i] >> 4];
  }
}

// --- 32 numbers ---

template <int kSize, int kZeroCode>
struct BlockOf32 {
  static constexpr int kElements = 32;
  static constexpr int kBytes = kSize;
  static constexpr int kGroup = 32;
  static constexpr int kZero = kZeroCode;
  static constexpr bool kHasMin = false;
};
template <int kSize>
struct BlockOf32WithMin : BlockOf32<kSize, 0> {
  static constexpr bool kHasMin = true;
};

struct BlockQ4_0 : BlockOf32<18, 8> {
  static MF_INLINE void unpack(const uint8_t* block, BlockCodes<BlockQ4_0>& to) {
    to.scales[0] = load_half(block);
    unpack_nibbles(block + 2, to.codes);
  }
};

struct BlockQ4_1 : BlockOf32WithMin<20> {
  static MF_INLINE void unpack(const uint8_t* block, BlockCodes<BlockQ4_1>& to) {
    to.scales[0] = load_half(block);
    to.mins[0] = -load_half(block + 2);
    unpack_nibbles(block + 4, to.codes);
  }
};

struct BlockQ5_0 : BlockOf32<22, 16> {
  static MF_INLINE void unpack(const uint8_t* block, BlockCodes<BlockQ5_0>& to) {
    to.scales[0] = load_half(block);
    unpack_nibbles(block + 6, to.codes);
    add_fifth_bits(load_u32(block + 2), to.codes);
  }
};

struct BlockQ5_1 : BlockOf32WithMin<24> {
  static MF_INLINE void unpack(const uint8_t* block, BlockCodes<BlockQ5_1>& to) {
    to.scales[0] = load_half(block);
    to.mins[0] = -load_half(block + 2);
    unpack_nibbles(block + 8, to.codes);
    add_fifth_bits(load_u32(block + 4), to.codes);
  }
};

struct BlockQ8_0 : BlockOf32<34, 128> {
  static MF_INLINE void unpack(const uint8_t* block, BlockCodes<BlockQ8_0>& to) {
    to.scales[0] = load_half(block);
    for (int i = 0; i < 32; ++i) to.codes[i] = block[2 + i] ^ 0x80;
  }
};

struct BlockIq4Nl : BlockOf32<18, 128> {
  static MF_INLINE void unpack(const uint8_t* block, BlockCodes<BlockIq4Nl>& to) {
    to.scales[0] = load_half(block);
    look_up_nibbles(block + 2, kIq4Codes, to.codes);
  }
};

struct BlockMxfp4 : BlockOf32<17, 16> {
  /// Half of a power of two by its bits: the two smallest are below the normal numbers.
  static MF_INLINE float half_scale(uint32_t e) {
    const uint32_t bits = e < 2 ? 0x00200000u << e : (e - 1) << 23;
    float scale;
    __builtin_memcpy(&scale, &bits, 4);
    return scale;
  }
  static MF_INLINE void unpack(const uint8_t* block, BlockCodes<BlockMxfp4>& to) {
    to.scales[0] = half_scale(block[0]);
    look_up_nibbles(block + 1, kE2m1Codes, to.codes);
  }
};

struct BlockNvfp4 {
  static constexpr int kElements = 64;
  static constexpr int kBytes = 36;
  static constexpr int kGroup = 16;
  static constexpr int kZero = 16;
  static constexpr bool kHasMin = false;
  /// Half of a float of 4 bits of exponent and 3 of fraction, without sign, as an f16 of which the
  /// exponent is 8 too small: 2^-8 times 2^-1 is left.
  static MF_INLINE float half_scale(uint32_t scale) {
    return scale == 0x7f ? 0.0f : half_bits((scale & 0x7f) << 7) * 128.0f;
  }
  static MF_INLINE void unpack(const uint8_t* block, BlockCodes<BlockNvfp4>& to) {
    for (int g = 0; g < 4; ++g) {
      to.scales[g] = half_scale(block[g]);
      for (int i = 0; i < 8; ++i) {
        const uint8_t byte = block[4 + 8 * g + i];
        to.codes[16 * g + i] = kE2m1Codes[byte & 15];
        to.codes[16 * g + 8 + i] = kE2m1Codes[byte >> 4];
      }
    }
  }
};

// --- K types ---

template <int kSize, int kGroupSize, int kZeroCode>
struct BlockOf256 {
  static constexpr int kElements = 256;
  static constexpr int kBytes = kSize;
  static constexpr int kGroup = kGroupSize;
  static constexpr int kZero = kZeroCode;
  static constexpr bool kHasMin = false;
};
template <int kSize, int kGroupSize>
struct BlockOf256WithMin : BlockOf256<kSize, kGroupSize, 0> {
  static constexpr bool kHasMin = true;
};

/// Codes of 2 bits: 32 bytes hold four times 32 numbers.
MF_INLINE void unpack_pairs(const uint8_t* from, uint8_t* to) {
  for (int half = 0; half < 2; ++half) {
    for (int j = 0; j < 4; ++j, to += 32) {
      for (int i = 0; i < 32; ++i) {
        to[i] = static_cast<uint8_t>(from[32 * half + i] >> (2 * j) & 3);
      }
    }
  }
}
/// Codes of 4 bits: 32 bytes hold two times 32 numbers.
MF_INLINE void unpack_halves(const uint8_t* from, uint8_t* to) {
  for (int c = 0; c < 4; ++c, from += 32, to += 64) {
    for (int i = 0; i < 32; ++i) {
      to[i] = from[i] & 15;
      to[32 + i] = static_cast<uint8_t>(from[i] >> 4);
    }
  }
}
/// Eight scales and eight minima of 6 bits in 12 bytes.
MF_INLINE void unpack_six_bits(const uint8_t* from, uint8_t* scales, uint8_t* mins) {
  const uint32_t a = load_u32(from);
  const uint32_t b = load_u32(from + 4);
  const uint32_t c = load_u32(from + 8);
  store_u32(scales, a & 0x3f3f3f3fu);
  store_u32(scales + 4, (c & 0x0f0f0f0fu) | (a >> 2 & 0x30303030u));
  store_u32(mins, b & 0x3f3f3f3fu);
  store_u32(mins + 4, (c >> 4 & 0x0f0f0f0fu) | (b >> 2 & 0x30303030u));
}
template <class Block>
MF_INLINE void unpack_scales_and_mins(const uint8_t* block, BlockCodes<Block>& to) {
  uint8_t scales[8];
  uint8_t mins[8];
  unpack_six_bits(block + 4, scales, mins);
  const float d = load_half(block);
  const float d_min = load_half(block + 2);
  for (int g = 0; g < 8; ++g) {
    to.scales[g] = d * static_cast<float>(scales[g]);
    to.mins[g] = d_min * static_cast<float>(mins[g]);
  }
}

struct BlockQ2K : BlockOf256WithMin<84, 16> {
  static MF_INLINE void unpack(const uint8_t* block, BlockCodes<BlockQ2K>& to) {
    const float d = load_half(block + 80);
    const float d_min = load_half(block + 82);
    for (int g = 0; g < 16; ++g) {
      to.scales[g] = d * static_cast<float>(block[g] & 15);
      to.mins[g] = d_min * static_cast<float>(block[g] >> 4);
    }
    unpack_pairs(block + 16, to.codes);
  }
};

struct BlockQ3K : BlockOf256<110, 16, 4> {
  static MF_INLINE void unpack(const uint8_t* block, BlockCodes<BlockQ3K>& to) {
    const float d = load_half(block + 108);
    const uint32_t a = load_u32(block + 96);
    const uint32_t b = load_u32(block + 100);
    const uint32_t high = load_u32(block + 104);
    uint8_t scales[16];
    store_u32(scales, (a & 0x0f0f0f0fu) | (high & 0x03030303u) << 4);
    store_u32(scales + 4, (b & 0x0f0f0f0fu) | (high >> 2 & 0x03030303u) << 4);
    store_u32(scales + 8, (a >> 4 & 0x0f0f0f0fu) | (high >> 4 & 0x03030303u) << 4);
    store_u32(scales + 12, (b >> 4 & 0x0f0f0f0fu) | (high >> 6 & 0x03030303u) << 4);
    for (int g = 0; g < 16; ++g) to.scales[g] = d * static_cast<float>(scales[g] - 32);
    unpack_pairs(block + 32, to.codes);
    for (int j = 0; j < 8; ++j) {
      for (int i = 0; i < 32; ++i) {
        uint8_t& code = to.codes[32 * j + i];
        code = static_cast<uint8_t>(code | (block[i] >> j & 1) << 2);
      }
    }
  }
};

struct BlockQ4K : BlockOf256WithMin<144, 32> {
  static MF_INLINE void unpack(const uint8_t* block, BlockCodes<BlockQ4K>& to) {
    unpack_scales_and_mins(block, to);
    unpack_halves(block + 16, to.codes);
  }
};

struct BlockQ5K : BlockOf256WithMin<176, 32> {
  static MF_INLINE void unpack(const uint8_t* block, BlockCodes<BlockQ5K>& to) {
    unpack_scales_and_mins(block, to);
    unpack_halves(block + 48, to.codes);
    for (int j = 0; j < 8; ++j) {
      for (int i = 0; i < 32; ++i) {
        uint8_t& code = to.codes[32 * j + i];
        code = static_cast<uint8_t>(code | (block[16 + i] >> j & 1) << 4);
      }
    }
  }
};

struct BlockQ6K : BlockOf256<210, 16, 32> {
  static MF_INLINE void unpack(const uint8_t* block, BlockCodes<BlockQ6K>& to) {
    const float d = load_half(block + 208);
    for (int g = 0; g < 16; ++g) {
      to.scales[g] = d * static_cast<float>(static_cast<int8_t>(block[192 + g]));
    }
    for (int half = 0; half < 2; ++half) {
      const uint8_t* low = block + 64 * half;
      const uint8_t* high = block + 128 + 32 * half;
      uint8_t* codes = to.codes + 128 * half;
      for (int i = 0; i < 32; ++i) {
        codes[i] = static_cast<uint8_t>((low[i] & 15) | (high[i] & 3) << 4);
        codes[32 + i] = static_cast<uint8_t>((low[32 + i] & 15) | (high[i] >> 2 & 3) << 4);
        codes[64 + i] = static_cast<uint8_t>(low[i] >> 4 | (high[i] >> 4 & 3) << 4);
        codes[96 + i] = static_cast<uint8_t>(low[32 + i] >> 4 | (high[i] >> 6) << 4);
      }
    }
  }
};

// --- IQ types ---

struct BlockIq4Xs : BlockOf256<136, 32, 128> {
  static MF_INLINE void unpack(const uint8_t* block, BlockCodes<BlockIq4Xs>& to) {
    const float d = load_half(block);
    const uint32_t high = load_u16(block + 2);
    for (int g = 0; g < 8; ++g) {
      const uint32_t low = block[4 + g / 2] >> (4 * (g % 2)) & 15;
      const auto scale = static_cast<int32_t>(low | (high >> (2 * g) & 3) << 4) - 32;
      to.scales[g] = d * static_cast<float>(scale);
      look_up_nibbles(block + 8 + 16 * g, kIq4Codes, to.codes + 32 * g);
    }
  }
};

/// The code of zero of the grids of IQ2 and IQ3, whose numbers are up to 62.
constexpr int kGridZero = 64;
/// 64 plus the numbers of a grid's row, or less where `sign` has 0x7f. Bytes neither carry nor
/// borrow: 127 - number + 64 - 127.
MF_INLINE uint64_t signed_codes(uint64_t numbers, uint64_t sign) {
  return (numbers ^ sign) + 0x4040404040404040u - sign;
}
MF_INLINE float quarter_scale(float d, uint32_t code) {
  return d * (0.5f + static_cast<float>(code)) * 0.25f;
}

struct BlockIq2Xxs : BlockOf256<66, 32, kGridZero> {
  static MF_INLINE void unpack(const uint8_t* block, BlockCodes<BlockIq2Xxs>& to) {
    const float d = load_half(block);
    for (int g = 0; g < 8; ++g) {
      const uint8_t* part = block + 2 + 8 * g;
      const uint32_t word = load_u32(part + 4);
      to.scales[g] = quarter_scale(d, word >> 28);
      for (int l = 0; l < 4; ++l) {
        store_u64(
            to.codes + 32 * g + 8 * l,
            signed_codes(kIq2XxsWords.words[part[l]], kEvenSignWords.words[word >> (7 * l) & 127]));
      }
    }
  }
};

/// Two scales of sixteen numbers each a byte.
template <class Block>
MF_INLINE void unpack_quarter_scales(float d, const uint8_t* scales, BlockCodes<Block>& to) {
  for (int g = 0; g < 8; ++g) {
    to.scales[2 * g] = quarter_scale(d, scales[g] & 15);
    to.scales[2 * g + 1] = quarter_scale(d, scales[g] >> 4);
  }
}

struct BlockIq2Xs : BlockOf256<74, 16, kGridZero> {
  static MF_INLINE void unpack(const uint8_t* block, BlockCodes<BlockIq2Xs>& to) {
    unpack_quarter_scales(load_half(block), block + 66, to);
    for (int i = 0; i < 32; ++i) {
      const uint32_t code = load_u16(block + 2 + 2 * i);
      store_u64(to.codes + 8 * i,
                signed_codes(kIq2XsWords.words[code & 511], kEvenSignWords.words[code >> 9]));
    }
  }
};

struct BlockIq2S : BlockOf256<82, 16, kGridZero> {
  static MF_INLINE void unpack(const uint8_t* block, BlockCodes<BlockIq2S>& to) {
    unpack_quarter_scales(load_half(block), block + 74, to);
    for (int i = 0; i < 32; ++i) {
      const int index = block[2 + i] | (block[66 + i / 4] >> (2 * (i % 4)) & 3) << 8;
      store_u64(to.codes + 8 * i,
                signed_codes(kIq2SWords.words[index], kSignWords.words[block[34 + i]]));
    }
  }
};

MF_INLINE uint64_t pair_of(uint32_t low, uint32_t high) {
  return low | static_cast<uint64_t>(high) << 32;
}

struct BlockIq3Xxs : BlockOf256<98, 32, kGridZero> {
  static MF_INLINE void unpack(const uint8_t* block, BlockCodes<BlockIq3Xxs>& to) {
    const float d = load_half(block);
    for (int g = 0; g < 8; ++g) {
      const uint32_t word = load_u32(block + 66 + 4 * g);
      const uint8_t* index = block + 2 + 8 * g;
      to.scales[g] = 2.0f * quarter_scale(d, word >> 28);
      for (int l = 0; l < 4; ++l) {
        const uint64_t numbers =
            pair_of(kIq3XxsWords.words[index[2 * l]], kIq3XxsWords.words[index[2 * l + 1]]);
        store_u64(to.codes + 32 * g + 8 * l,
                  signed_codes(numbers, kEvenSignWords.words[word >> (7 * l) & 127]));
      }
    }
  }
};

struct BlockIq3S : BlockOf256<110, 32, kGridZero> {
  static MF_INLINE void unpack(const uint8_t* block, BlockCodes<BlockIq3S>& to) {
    const float d = load_half(block);
    for (int g = 0; g < 8; ++g) {
      const int scale = block[106 + g / 2] >> (4 * (g % 2)) & 15;
      const uint32_t high = block[66 + g];
      to.scales[g] = d * static_cast<float>(1 + 2 * scale);
      for (int l = 0; l < 4; ++l) {
        const uint8_t* index = block + 2 + 8 * g + 2 * l;
        const uint64_t numbers =
            pair_of(kIq3SWords.words[index[0] | (high >> (2 * l) & 1) << 8],
                    kIq3SWords.words[index[1] | (high >> (2 * l + 1) & 1) << 8]);
        store_u64(to.codes + 32 * g + 8 * l,
                  signed_codes(numbers, kSignWords.words[block[74 + 4 * g + l]]));
      }
    }
  }
};

/// The code of zero of IQ1: codes are eight times the grid's number, and 1 more or less.
constexpr int kIq1Zero = 16;
MF_INLINE uint64_t moved_codes(uint32_t index, bool down) {
  constexpr uint64_t kOnes = 0x0101010101010101u;
  return kIq1Words.words[index] + (down ? uint64_t{0} - kOnes : kOnes);
}

struct BlockIq1S : BlockOf256<50, 32, kIq1Zero> {
  static MF_INLINE void unpack(const uint8_t* block, BlockCodes<BlockIq1S>& to) {
    const float d = load_half(block);
    for (int g = 0; g < 8; ++g) {
      const uint32_t high = load_u16(block + 34 + 2 * g);
      to.scales[g] = d * static_cast<float>(2 * (high >> 12 & 7) + 1) * 0.125f;
      for (int l = 0; l < 4; ++l) {
        const uint32_t index = block[2 + 4 * g + l] | (high >> (3 * l) & 7) << 8;
        store_u64(to.codes + 32 * g + 8 * l, moved_codes(index, (high & 0x8000u) != 0));
      }
    }
  }
};

struct BlockIq1M : BlockOf256<56, 16, kIq1Zero> {
  static MF_INLINE void unpack(const uint8_t* block, BlockCodes<BlockIq1M>& to) {
    const uint8_t* scales = block + 48;
    uint32_t bits = 0;
    for (int i = 0; i < 4; ++i) bits |= load_u16(scales + 2 * i) >> 12 << (4 * i);
    const float d = half_bits(bits);
    for (int g = 0; g < 16; ++g) {
      const uint32_t code = load_u16(scales + g / 4 * 2) >> (3 * (g % 4)) & 7;
      to.scales[g] = d * static_cast<float>(2 * code + 1) * 0.125f;
      const uint32_t high = block[32 + g];
      store_u64(to.codes + 16 * g, moved_codes(block[2 * g] | (high & 7) << 8, (high & 8) != 0));
      store_u64(to.codes + 16 * g + 8,
                moved_codes(block[2 * g + 1] | (high >> 4 & 7) << 8, (high & 0x80) != 0));
    }
  }
};

#include "backend/cpu/kernels/low_bit_codes-inl.h"
