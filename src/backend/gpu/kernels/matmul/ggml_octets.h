// Octets of codes and 64 columns of a row, of any type that has a GgmlCodes.
#pragma once

#include "backend/gpu/kernels/matmul/ggml_codes.h"
#include "backend/gpu/kernels/matmul/ggml_params.h"
#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// One scale and its columns: the product of a row's codes, of activations whose sum this is.
MF_FN f32 add_ggml_products(f32 total, i32 products, GgmlScale own, f32 sum) {
  return mf_fma(own.scale, static_cast<f32>(products), mf_fma(own.bias, sum, total));
}
MF_FN f32 add_ggml_group(f32 total, i32 high, i32 low, GgmlScale own, f32 sum) {
  return add_ggml_products(total, high * 256 + low, own, sum);
}

/// The scales of 64 columns of a row; `outer`: its matrix's factor.
template <class Type>
MF_FN void ggml_scales(MF_T t, u32 at, u32 block, MF_SHARED(f32) outer, MF_LOCAL(GgmlScale) to) {
  Type::scales(t, at, block, to);
  if (Type::kOuter == 0u) return;
  MF_UNROLL
  for (u32 i = 0u; i < Type::kScales; ++i) to[i] = Type::with_outer(to[i], outer[0]);
}

/// The codes of octets from the words of pieces.
template <class Type, u32 LOOKS_UP>
struct GgmlOctet {
  static MF_FN_MEMBER W2 codes(W2 low, W2 high, u32 block, u32 octet) {
    const u32 part = octet / 2u;
    const W2 codes = {{Type::code(low.v[0], high.v[0], block, part),
                       Type::code(low.v[1], high.v[1], block, part)}};
    return codes;
  }
  /// The same where the compiler knows `octet`.
  static MF_FN_MEMBER W2 known_codes(W2 low, W2 high, u32 block, u32 octet) {
    return codes(low, high, block, octet);
  }
  /// Codes of the lower halves of four bytes, and of the upper ones.
  static MF_FN_MEMBER W2 nibbles(u32 word) {
    const W2 codes = {{bits_of_bytes(word, 0u, 15u), bits_of_bytes(word, 4u, 15u)}};
    return codes;
  }
};
template <class Type>
struct GgmlOctet<Type, 1u> {
  static MF_FN_MEMBER W2 nibbles(u32 word) { return Type::halves(word); }
  static MF_FN_MEMBER W2 codes(W2 low, W2, u32, u32 octet) {
    const u32 shift = Type::odd_halves(octet) * 4u;
    const u32 first = bits_of_bytes(low.v[0], shift, 15u);
    return Type::halves(first | bits_of_bytes(low.v[1], shift, 15u) << 4u);
  }
  /// Both octets of the same bytes are looked up at once, as the compiler sees.
  static MF_FN_MEMBER W2 known_codes(W2 low, W2, u32, u32 octet) {
    const u32 odd = Type::odd_halves(octet);
    const W2 codes = {{Type::halves(low.v[0]).v[odd], Type::halves(low.v[1]).v[odd]}};
    return codes;
  }
};

/// The lane's codes of half `half` of a block, in order: of an octet of its four. The compiler sees
/// which bytes both halves share.
template <class Type>
MF_FN W2 ggml_half_octet(MF_T t, u32 at, u32 block, u32 half) {
  const u32 part = half * 2u + (t.lane / 2u & 1u);
  const u32 own = t.lane & 1u;
  const W2 low = Type::low_pair(t, at, block, Type::low_piece(part), own);
  const W2 high = Type::high_pair(t, at, block, Type::high_piece(part), own);
  return GgmlOctet<Type, Type::kLooksUp>::codes(low, high, block, part * 2u + own);
}

/// 64 columns of a row, as they lie.
template <class Type>
struct GgmlBlock {
  enum : u32 { kHigh = Type::kHigh == 0 ? 1u : static_cast<u32>(Type::kHigh) };
  W4 low[Type::kLow];
  W4 high[kHigh];
  GgmlScale scales[Type::kScales];

  MF_FN_MEMBER void load(MF_T t, u32 at, u32 block, MF_SHARED(f32) outer) {
    MF_UNROLL
    for (u32 i = 0u; i < Type::kLow; ++i) low[i] = Type::low(t, at, block, i);
    MF_UNROLL
    for (u32 i = 0u; i < kHigh; ++i) high[i] = Type::high(t, at, block, i);
    ggml_scales<Type>(t, at, block, outer, scales);
  }
  MF_FN_MEMBER W2 codes(u32 block, u32 octet) const {
    const u32 part = octet / 2u;
    const u32 o = octet % 2u * 2u;
    const W4 from_low = low[Type::low_piece(part)];
    const W4 from_high = high[Type::high_piece(part)];
    const W2 own_low = {{from_low.v[o], from_low.v[o + 1u]}};
    const W2 own_high = {{from_high.v[o], from_high.v[o + 1u]}};
    return GgmlOctet<Type, Type::kLooksUp>::known_codes(own_low, own_high, block, octet);
  }
};

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
