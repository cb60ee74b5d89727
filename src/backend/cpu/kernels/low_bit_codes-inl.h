// Blocks of GGML's types of one and two bits and of its ternary ones, as those of
// block_codes-inl.h, which includes this.

// --- one and two bits ---

/// A block's one scale, for each 64 numbers: activations are rounded in groups of a scale, and a
/// group of 128 rounds them more than other programs do.
template <class Block>
MF_INLINE void repeat_scale(const uint8_t* half, BlockCodes<Block>& to) {
  const float scale = load_half(half);
  for (int g = 0; g < Block::kElements / Block::kGroup; ++g) to.scales[g] = scale;
}

template <int kCount, int kSize>
struct BlockOfBits {
  static constexpr int kElements = kCount;
  static constexpr int kBytes = kSize;
  static constexpr int kGroup = 64;
  static constexpr int kZero = 1;
  static constexpr bool kHasMin = false;
};

struct BlockQ1_0 : BlockOfBits<128, 18> {
  static MF_INLINE void unpack(const uint8_t* block, BlockCodes<BlockQ1_0>& to) {
    repeat_scale(block, to);
    for (int i = 0; i < 128; ++i) to.codes[i] = (block[2 + i / 8] >> (i % 8) & 1) != 0 ? 2 : 0;
  }
};

template <int kCount>
struct BlockQ2 : BlockOfBits<kCount, 2 + kCount / 4> {
  static MF_INLINE void unpack(const uint8_t* block, BlockCodes<BlockQ2<kCount>>& to) {
    repeat_scale(block, to);
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

struct BlockTq1_0 : BlockOf256<54, 64, 1> {
  static MF_INLINE void unpack(const uint8_t* block, BlockCodes<BlockTq1_0>& to) {
    repeat_scale(block + 52, to);
    unpack_digits<32, 5>(block, to.codes);
    unpack_digits<16, 5>(block + 32, to.codes + 160);
    unpack_digits<4, 4>(block + 48, to.codes + 240);
  }
};

struct BlockTq2_0 : BlockOf256<66, 64, 1> {
  static MF_INLINE void unpack(const uint8_t* block, BlockCodes<BlockTq2_0>& to) {
    repeat_scale(block + 64, to);
    unpack_pairs(block, to.codes);
  }
};
