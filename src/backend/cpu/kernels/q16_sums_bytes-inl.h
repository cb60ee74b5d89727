// Sums of a unit's codes times integers of 16 bits, of which the 256s and the ones are multiplied
// as bytes, by idot(). For q16_few-inl.h; included after q16_tiles-inl.h.

/// The codes of a row's lane, four at a time.
struct ByteSum {
  IVec high = izero();
  IVec low = izero();

  /// `x` are the 256s of the four columns; the ones are kUnitChunk bytes behind.
  template <int kBits = 7>
  MF_INLINE void add(IVec codes, const uint8_t* x) {
    high = idot<kBits>(high, codes, ibroadcast(x));
    low = idot<kBits>(low, codes, ibroadcast(x + kUnitChunk));
  }
  MF_INLINE IVec value() const { return iadd(times_256(high), low); }
};

/// The sum of up to eight lines of codes below 16.
using NibbleSum = ByteSum;
/// The sum of up to kSmallSumLines lines of codes below 32.
using SmallSum = ByteSum;
constexpr int kSmallSumLines = 16;
/// The sum of any codes.
using CodeSum = ByteSum;
constexpr bool kSumsPairs = false;
