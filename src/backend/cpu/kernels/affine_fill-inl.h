// Rows of MLX's affine groups to lines of bytes, as block_fill-inl.h does it for blocks: codes,
// scales and biases lie apart. Included inside a namespace, after what block_fill-inl.h begins
// with.

/// Eight codes of 4 bits, the first in the lowest bits, to bytes: the first four, then the others.
MF_INLINE void spread_nibbles(Words eight, uint8_t* first, uint8_t* second) {
  const auto spread = [](Words four) {
    const Words pairs = (four & 0xffu) | (four & 0xff00u) << 8;
    return (pairs | pairs << 4) & kNibbles;
  };
  store_words(first, spread(eight));
  store_words(second, spread(eight >> 16));
}

/// One number of each of sixteen rows.
MF_INLINE void gather_params(const BlockFillArgs& args, const uint8_t* from, float* to) {
  if (args.param_type == ElementType::kF16) return gather_halves(from, args.param_row_bytes, to);
  alignas(64) uint32_t words[kPanelRows];
  const bool narrow = args.param_type == ElementType::kBf16;
  MF_UNROLL
  for (int r = 0; r < kPanelRows; ++r) {
    const uint8_t* p = from + r * args.param_row_bytes;
    words[r] = narrow ? load_u16(p) << 16 : load_u32(p);
  }
  __builtin_memcpy(to, words, sizeof(words));
}

template <int kBits, int kGroup>
static void fill_affine(const BlockFillArgs& args) {
  constexpr int kBytes = kGroup * kBits / 8;
  const int64_t element = args.param_type == ElementType::kF32 ? 4 : 2;
  uint8_t* lines = args.lines;
  for (int64_t g = 0; g < args.blocks; ++g) {
    gather_params(args, args.scale_rows + g * element, args.scales + g * args.stride);
    gather_params(args, args.bias_rows + g * element, args.biases + g * args.stride);
    for (int at = 0; at < kBytes; at += 16) {
      const uint8_t* from = args.rows + g * kBytes + at;
      if constexpr (kBits == 8) {
        transpose_words(from, args.row_bytes, lines);
        lines += 4 * kLineBytes;
      } else {
        const RowWords packed(from, args.row_bytes);
        MF_UNROLL
        for (int word = 0; word < 4; ++word, lines += 2 * kLineBytes) {
          for_rows([&](int row) {
            spread_nibbles(packed.at(word, row), lines + row * 4, lines + kLineBytes + row * 4);
          });
        }
      }
    }
  }
}

template <int kBits, int kGroup>
constexpr BlockKernel affine_kernel() {
  return {kGroup, kGroup * kBits / 8, kGroup, kBits == 4, fill_affine<kBits, kGroup>};
}
