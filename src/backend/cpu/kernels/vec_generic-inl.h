// Vectors of four f32 in portable C++ (GNU vector extensions): the ISA of last resort.
// Included inside the namespace of one ISA; see kernels-inl.h.

using Vec = float __attribute__((vector_size(16)));
using VecInt = int32_t __attribute__((vector_size(16)));
constexpr int kLanes = 4;
constexpr int kRegisters = 16;

MF_INLINE Vec vset(float x) { return Vec{x, x, x, x}; }
MF_INLINE Vec vload(const float* p) {
  Vec v{};
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}
MF_INLINE void vstore(float* p, Vec v) { __builtin_memcpy(p, &v, sizeof(v)); }
MF_INLINE Vec vload_partial(const float* p, int64_t count) {
  Vec v{0.0f, 0.0f, 0.0f, 0.0f};
  for (int64_t i = 0; i < count; ++i) v[i] = p[i];
  return v;
}
MF_INLINE void vstore_partial(float* p, Vec v, int64_t count) {
  for (int64_t i = 0; i < count; ++i) p[i] = v[i];
}

MF_INLINE Vec vadd(Vec a, Vec b) { return a + b; }
MF_INLINE Vec vsub(Vec a, Vec b) { return a - b; }
MF_INLINE Vec vmul(Vec a, Vec b) { return a * b; }
MF_INLINE Vec vdiv(Vec a, Vec b) { return a / b; }
/// b where either is NaN.
MF_INLINE Vec vmax(Vec a, Vec b) { return a > b ? a : b; }
MF_INLINE Vec vmin(Vec a, Vec b) { return a < b ? a : b; }
/// a * b + c, rounded twice: a true fused multiply-add would be a library call here.
MF_INLINE Vec vfma(Vec a, Vec b, Vec c) { return a * b + c; }
/// The same, rounded once.
MF_INLINE Vec vfused(Vec a, Vec b, Vec c) {
  for (int i = 0; i < kLanes; ++i) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return c;
}
MF_INLINE float vreduce_add(Vec v) { return (v[0] + v[2]) + (v[1] + v[3]); }
MF_INLINE float vreduce_max(Vec v) {
  const float a = v[0] > v[2] ? v[0] : v[2];
  const float b = v[1] > v[3] ? v[1] : v[3];
  return a > b ? a : b;
}
MF_INLINE float scalar_sqrt(float x) { return __builtin_sqrtf(x); }

/// Nearest integer, for |v| below 2^22.
MF_INLINE Vec vround(Vec v) {
  const Vec magic = vset(12582912.0f);  // 1.5 * 2^23: the sum has no fraction bits left
  return (v + magic) - magic;
}
/// v * 2^n for integral n in [-252, 254]; two factors, so that results may be subnormal.
MF_INLINE Vec vscale(Vec v, Vec n) {
  const VecInt whole = __builtin_convertvector(n, VecInt);
  const VecInt half = whole >> 1;
  const VecInt first = (half + 127) << 23;
  const VecInt second = (whole - half + 127) << 23;
  Vec a;
  Vec b;
  __builtin_memcpy(&a, &first, sizeof(a));
  __builtin_memcpy(&b, &second, sizeof(b));
  return v * a * b;
}

MF_INLINE float scalar_from_bits(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}
MF_INLINE Vec vload_bf16(const uint8_t* p) {
  uint16_t h[4];
  __builtin_memcpy(h, p, sizeof(h));
  Vec v{};
  for (int i = 0; i < 4; ++i) v[i] = scalar_from_bits(static_cast<uint32_t>(h[i]) << 16);
  return v;
}
MF_INLINE Vec vload_f16(const uint8_t* p) {
  uint16_t h[4];
  __builtin_memcpy(h, p, sizeof(h));
  Vec v{};
  for (int i = 0; i < 4; ++i) {
    const uint32_t sign = (h[i] & 0x8000u) << 16;
    const uint32_t magnitude = static_cast<uint32_t>(h[i] & 0x7fffu) << 13;
    // Multiplying by 2^112 moves the exponent to f32's bias and is exact for subnormals too.
    const float value = scalar_from_bits(magnitude) * 0x1p112f;
    const bool special = magnitude >= 0x0f800000u;  // infinity or NaN
    v[i] =
        special ? scalar_from_bits(sign | 0x70000000u | magnitude) : (sign != 0 ? -value : value);
  }
  return v;
}
#include "backend/cpu/kernels/vec_partial-inl.h"
MF_INLINE uint16_t scalar_to_f16(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  const uint32_t sign = bits >> 16 & 0x8000u;
  uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {  // NaN, which becomes a quiet one
    return static_cast<uint16_t>(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
  }
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // from 65520 on
  if (magnitude < 0x38800000u) {
    // Subnormal: one half is in units of the half of its last place.
    const float rounded = scalar_from_bits(magnitude) + 0.5f;
    __builtin_memcpy(&bits, &rounded, sizeof(bits));
    return static_cast<uint16_t>(sign | (bits - 0x3f000000u));
  }
  magnitude += 0xfffu + (magnitude >> 13 & 1u);
  return static_cast<uint16_t>(sign | (magnitude - 0x38000000u) >> 13);
}
/// Rounds to nearest even, as all of them do.
MF_INLINE void vstore_f16(uint8_t* p, Vec v) {
  for (int i = 0; i < kLanes; ++i) {
    const uint16_t half = scalar_to_f16(v[i]);
    __builtin_memcpy(p + 2 * i, &half, sizeof(half));
  }
}
MF_INLINE Vec vload_u8(const uint8_t* p) {
  return Vec{static_cast<float>(p[0]), static_cast<float>(p[1]), static_cast<float>(p[2]),
             static_cast<float>(p[3])};
}
MF_INLINE Vec vload_i8(const uint8_t* p) {
  int8_t codes[4];
  __builtin_memcpy(codes, p, sizeof(codes));
  return Vec{static_cast<float>(codes[0]), static_cast<float>(codes[1]),
             static_cast<float>(codes[2]), static_cast<float>(codes[3])};
}
/// One f16 in all lanes.
MF_INLINE Vec vset_f16(const uint8_t* p) { return vset(vload_f16_partial(p, 1)[0]); }

/// The lower half of lanes a, the upper b.
MF_INLINE Vec vhalves(float a, float b) { return Vec{a, a, b, b}; }
/// Four e4m3 codes, each 256 times too small.
MF_INLINE Vec vload_e4m3(const uint8_t* p) {
  Vec v = vset(0.0f);
  for (int i = 0; i < 4; ++i) {
    // Four exponent bits and three fraction bits where f32 has them, 2^120 times too small.
    const uint32_t magnitude = p[i] & 0x7fu;
    const uint32_t sign = (p[i] & 0x80u) << 24;
    const float value = scalar_from_bits(magnitude << 20 | sign) * 0x1p112f;
    v[i] = magnitude == 0x7fu ? scalar_from_bits(0x7fc00000u | sign) : value;
  }
  return v;
}

/// 16 bytes, 32 codes: lane i of out[k] is code 8 i + k.
MF_INLINE void vdecode_nibbles(const NibbleTable& table, const uint8_t* p, Vec* out) {
  VecInt words;
  __builtin_memcpy(&words, p, sizeof(words));
  for (int k = 0; k < 8; ++k) {
    const VecInt codes = (words >> (4 * k)) & 15;
    out[k] = vfma(__builtin_convertvector(codes, Vec), table.scale, table.bias);
  }
}
/// The same order, of e2m1 codes times the scale of each lane.
MF_INLINE void vdecode_e2m1(const uint8_t* p, Vec scale, Vec* out) {
  constexpr float kValues[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                 -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
  VecInt words;
  __builtin_memcpy(&words, p, sizeof(words));
  for (int k = 0; k < 8; ++k) {
    const VecInt codes = (words >> (4 * k)) & 15;
    out[k] =
        Vec{kValues[codes[0]], kValues[codes[1]], kValues[codes[2]], kValues[codes[3]]} * scale;
  }
}
/// Reorders 32 activations the way vdecode_nibbles orders codes.
MF_INLINE void permute_chunk(const float* x, float* out) {
  for (int k = 0; k < 8; ++k) {
    for (int i = 0; i < 4; ++i) out[k * 4 + i] = x[i * 8 + k];
  }
}
/// Lane i of out[j] is p[4 i + j].
MF_INLINE void vload_deinterleaved4(const float* p, Vec* out) {
  for (int j = 0; j < 4; ++j) out[j] = Vec{p[j], p[4 + j], p[8 + j], p[12 + j]};
}
/// Codes of kBits bits at `shift` of four words.
template <int kBits>
MF_INLINE Vec vcodes(const uint8_t* words, int shift) {
  uint32_t word[kLanes];
  __builtin_memcpy(word, words, sizeof(word));
  VecInt codes{};
  for (int i = 0; i < kLanes; ++i) {
    codes[i] = static_cast<int32_t>((word[i] >> shift) & ((1u << kBits) - 1));
  }
  return __builtin_convertvector(codes, Vec);
}
/// Lane j of m[i] becomes lane i of m[j].
MF_INLINE void vtranspose(Vec* m) {
  const Vec a = m[0];
  const Vec b = m[1];
  const Vec c = m[2];
  const Vec d = m[3];
  for (int i = 0; i < 4; ++i) m[i] = Vec{a[i], b[i], c[i], d[i]};
}
