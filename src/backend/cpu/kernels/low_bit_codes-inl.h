// Blocks of GGML's types of one and two bits and of its ternary ones, as those of
// block_codes-inl.h, behind which this is included. Rows are decoded only: no fill has these types.

// --- one and two bits ---

template <int kCount, int kSize>
struct BlockOfBits {
  static constexpr int kElements = kCount;
  static constexpr int kBytes = kSize;
  static constexpr int kGroup = kCount;
  static constexpr int kZero = 1;
  static constexpr bool kHasMin = false;
};

struct BlockQ1_0 : BlockOfBits<128, 18> {
  static MF_INLINE void unpack(const uint8_t* block, BlockCodes<BlockQ1_0>& to) {
    to.scales[0] = load_half(block);
    for (int i = 0; i < 128; ++i) to.codes[i] = (block[2 + i / 8] >> (i % 8) & 1) != 0 ? 2 : 0;
  }
};

template <int kCount>
struct BlockQ2 : BlockOfBits<kCount, 2 + kCount / 4> {
  static MF_INLINE void unpack(const uint8_t* block, BlockCodes<BlockQ2<kCount>>& to) {
    to.scales[0] = load_half(block);
    for (int i = 0; i < kCount; ++i) to.codes[i] = block[2 + i / 4] >> (i % 4 * 2) & 3;
  }
};

// --- ternary types ---

/// `kDigits` digits to the base of 3 of each of `kCount` bytes, all first ones before all second.
template <int kCount, int kDigits>
MF_INLINE void unpack_digits(const uint8_t* from, uint8_t* to) {
  for (int i = 0; i < kCount; ++i) {
    uint32_t rest = from[i];
    for (int n = 0; n < kDigits; ++n, rest = rest * 3 & 255) {
      to[n * kCount + i] = static_cast<uint8_t>(rest * 3 >> 8);
    }
  }
}

struct BlockTq1_0 : BlockOf256<54, 256, 1> {
  static MF_INLINE void unpack(const uint8_t* block, BlockCodes<BlockTq1_0>& to) {
    to.scales[0] = load_half(block + 52);
    unpack_digits<32, 5>(block, to.codes);
    unpack_digits<16, 5>(block + 32, to.codes + 160);
    unpack_digits<4, 4>(block + 48, to.codes + 240);
  }
};

struct BlockTq2_0 : BlockOf256<66, 256, 1> {
  static MF_INLINE void unpack(const uint8_t* block, BlockCodes<BlockTq2_0>& to) {
    to.scales[0] = load_half(block + 64);
    unpack_pairs(block, to.codes);
  }
};
