// Products of lines of codes where an instruction multiplies bytes into sums of 32 bits.
// For int8_tiles-inl.h; included after int8_lanes_*-inl.h.

/// Code bits of blocks that have products of their own: the least that is not below `code_bits`.
constexpr int product_bits(int code_bits) { return kDotsWholeBytes || code_bits == 8 ? 8 : 7; }

/// As tiles-inl.h wants them.
template <int kBits, bool kTight>
struct CodeDots {
  using Line = IVec;
  static constexpr int kPartLines = 0;
  static MF_INLINE Line line(IVec codes) { return codes; }
  static MF_INLINE IVec add(IVec sum, Line codes, IVec x) {
    return kTight ? idot_tight<kBits>(sum, codes, x) : idot<kBits>(sum, codes, x);
  }
  static MF_INLINE IVec join(IVec sum, IVec) { return sum; }
  static MF_INLINE IVec dot(IVec sum, const float*, const float*) { return sum; }
};
