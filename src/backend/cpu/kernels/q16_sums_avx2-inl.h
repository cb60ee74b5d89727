// Sums of a unit's codes times integers of 16 bits where no instruction multiplies bytes into sums
// of 32 bits. For q16_few-inl.h; included after q16_tiles-inl.h.

/// The sum of up to eight lines of codes below 16, or four of codes below 32: what is in 16 bits
/// stays below 2^15 (8 * 2 * 15 * 128 and 4 * 2 * 31 * 128).
struct NibbleSum {
  IVec high = izero();
  IVec low = izero();

  /// `x` are the 256s of four columns; the ones are kUnitChunk bytes behind.
  MF_INLINE void add(IVec codes, const uint8_t* x) {
    high = _mm256_add_epi16(high, _mm256_maddubs_epi16(codes, ibroadcast(x)));
    low = _mm256_add_epi16(low, _mm256_maddubs_epi16(codes, ibroadcast(x + kUnitChunk)));
  }
  MF_INLINE IVec value() const {
    return iadd(_mm256_madd_epi16(high, _mm256_set1_epi16(256)),
                _mm256_madd_epi16(low, _mm256_set1_epi16(1)));
  }
};

using SmallSum = NibbleSum;
constexpr int kSmallSumLines = 4;

/// The sum of any codes, as 16 bits: that is as many instructions as the 256s and the ones of codes
/// below 128 take with maddubs, and a third of those of other codes.
struct CodeSum {
  IVec sum = izero();

  /// `x` are integers of columns 0 and 2, then of columns 1 and 3.
  template <int kBits>
  MF_INLINE void add(IVec codes, const uint8_t* x) {
    const IVec even = _mm256_and_si256(codes, _mm256_set1_epi16(255));
    const IVec odd = _mm256_srli_epi16(codes, 8);
    sum = iadd(sum, _mm256_madd_epi16(even, ibroadcast(x)));
    sum = iadd(sum, _mm256_madd_epi16(odd, ibroadcast(x + 4)));
  }
  MF_INLINE IVec value() const { return sum; }
};
constexpr bool kSumsPairs = true;
