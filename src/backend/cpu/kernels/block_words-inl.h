// Vectors of 32-bit words and floats in the compiler's own terms, as wide as the instruction set's:
// what block_fill-inl.h unpacks lines with. Included after a block_lanes_*-inl.h, which says
// kWordBytes.

using Words = uint32_t __attribute__((vector_size(kWordBytes)));
using Ints = int32_t __attribute__((vector_size(kWordBytes)));
using Floats = float __attribute__((vector_size(kWordBytes)));
constexpr int kWordLanes = kWordBytes / 4;

MF_INLINE Words load_words(const void* p) {
  Words words;
  __builtin_memcpy(&words, p, kWordBytes);
  return words;
}
MF_INLINE Floats load_floats(const float* p) {
  Floats floats;
  __builtin_memcpy(&floats, p, kWordBytes);
  return floats;
}
MF_INLINE void store_words(void* p, Words words) { __builtin_memcpy(p, &words, kWordBytes); }
MF_INLINE void store_floats(float* p, Floats floats) { __builtin_memcpy(p, &floats, kWordBytes); }

/// Small numbers as floats.
MF_INLINE Floats to_floats(Words words) {
  return __builtin_convertvector(reinterpret_cast<Ints>(words), Floats);
}
/// Halves in the low parts of words; half_bits() says how.
MF_INLINE Floats halves_to_floats(Words bits) {
  const Words magnitude = (bits & 0x7fffu) << 13;
  const Floats moved = reinterpret_cast<Floats>(magnitude) * 0x1p112f;
  Words out = reinterpret_cast<Words>(moved);
  out |= reinterpret_cast<Words>(magnitude >= 0x0f800000u) & 0x7f800000u;
  return reinterpret_cast<Floats>(out | (bits & 0x8000u) << 16);
}
