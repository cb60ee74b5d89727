// Parts of vectors that instruction sets share where they have neither masks of halves nor
// permutations of sixteen lanes. Included behind vload_bf16() and vload_f16() of each.

/// The first `count` < kLanes elements, zeros behind them.
MF_INLINE Vec vload_bf16_partial(const uint8_t* p, int64_t count) {
  uint8_t bytes[2 * kLanes] = {};
  __builtin_memcpy(bytes, p, static_cast<uint64_t>(2 * count));
  return vload_bf16(bytes);
}
MF_INLINE Vec vload_f16_partial(const uint8_t* p, int64_t count) {
  uint8_t bytes[2 * kLanes] = {};
  __builtin_memcpy(bytes, p, static_cast<uint64_t>(2 * count));
  return vload_f16(bytes);
}

struct NibbleTable {
  Vec scale;
  Vec bias;
};
MF_INLINE NibbleTable make_nibble_table(Vec scale, Vec bias) { return {scale, bias}; }
