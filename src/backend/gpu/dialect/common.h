// What every dialect derives from its primitives in the same way: reductions over a SIMD group in a
// fixed order, and small numeric helpers. Kernel text: compiled by all dialects.
#pragma once

namespace moeflux {
namespace gpu {

#if !defined(MF_HAS_REDUCTIONS)
/// The sum over the SIMD group, the same bits in every lane and on every vendor.
MF_FN f32 simd_sum(MF_T t, f32 value) {
  value += simd_shuffle_xor(t, value, 16u);
  value += simd_shuffle_xor(t, value, 8u);
  value += simd_shuffle_xor(t, value, 4u);
  value += simd_shuffle_xor(t, value, 2u);
  value += simd_shuffle_xor(t, value, 1u);
  return value;
}

MF_FN f32 simd_max(MF_T t, f32 value) {
  value = mf_max(value, simd_shuffle_xor(t, value, 16u));
  value = mf_max(value, simd_shuffle_xor(t, value, 8u));
  value = mf_max(value, simd_shuffle_xor(t, value, 4u));
  value = mf_max(value, simd_shuffle_xor(t, value, 2u));
  value = mf_max(value, simd_shuffle_xor(t, value, 1u));
  return value;
}
#endif

MF_FN f32 bf16_to_float(u16 bits) { return as_float(static_cast<u32>(bits) << 16); }

MF_FN f32 sigmoid(f32 x) { return 1.0f / (1.0f + mf_exp(-x)); }
MF_FN f32 silu(f32 x) { return x / (1.0f + mf_exp(-x)); }
/// 0.5 x (1 + tanh(u)) = x sigmoid(2 u), which keeps its digits where tanh(u) is near -1.
MF_FN f32 gelu_tanh(f32 x) {
  const f32 inner = 0.79788456080286535588f * (x + 0.044715f * x * x * x);
  return x / (1.0f + mf_exp(-2.0f * inner));
}

}  // namespace gpu
}  // namespace moeflux
