// The same where instructions multiply bytes into sums of 16 bits alone, by pairs.
// For int8_tiles-inl.h; included after int8_lanes_avx2-inl.h.

constexpr int product_bits(int code_bits) { return code_bits; }

/// Lines of short codes are summed in 16 bits as long as these hold their sums: 8 lines of 4 bits
/// (8 * 2 * 15 * 127), 4 of 5 bits, 2 of 6 bits.
template <int kBits, bool kTight>
struct CodeDots {
  using Line = IVec;
  static constexpr int kPartLines = kBits < 7 ? 128 >> kBits : 0;
  static MF_INLINE Line line(IVec codes) { return codes; }
  static MF_INLINE IVec add(IVec sum, Line codes, IVec x) {
    if constexpr (kPartLines == 0) return idot<kBits>(sum, codes, x);
    IVec pairs = _mm256_add_epi16(sum, _mm256_maddubs_epi16(codes, x));
    asm("" : "+x"(pairs));  // as iadd_now() says
    return pairs;
  }
  static MF_INLINE IVec join(IVec sum, IVec part) {
    return iadd_now(sum, _mm256_madd_epi16(part, _mm256_set1_epi16(1)));
  }
  static MF_INLINE IVec dot(IVec sum, const float*, const float*) { return sum; }
};

/// Codes of 8 bits are multiplied less 128, as magnitudes times x with their signs: pairs reach
/// 2 * 128 * 127. A group's sum of x, which 128 was taken from, is an integer below 2^15: the
/// quotient of two floats rounds to it. A scale of 0 or NaN gives 2^31, of which 128 times are 0.
template <bool kTight>
struct CodeDots<8, kTight> {
  struct Line {
    IVec magnitudes;
    IVec signs;
  };
  static constexpr int kPartLines = 0;
  static MF_INLINE Line line(IVec codes) {
    const IVec less = _mm256_xor_si256(codes, _mm256_set1_epi8(-128));
    return {_mm256_abs_epi8(less), less};
  }
  static MF_INLINE IVec add(IVec sum, const Line& codes, IVec x) {
    const IVec turned = _mm256_sign_epi8(x, codes.signs);
    const IVec pairs = _mm256_maddubs_epi16(codes.magnitudes, turned);
    return iadd_now(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
  static MF_INLINE IVec join(IVec sum, IVec) { return sum; }
  static MF_INLINE IVec dot(IVec sum, const float* x_scale, const float* x_sum) {
    const IVec codes =
        _mm256_cvtps_epi32(_mm256_div_ps(_mm256_broadcast_ss(x_sum), _mm256_broadcast_ss(x_scale)));
    return iadd(sum, _mm256_slli_epi32(codes, 7));
  }
};
