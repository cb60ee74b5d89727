// The sum of a token's slots in router order, in whatever kernel it is: one multiply-add a slot,
// from the first rank on. The order of arrival cannot change its bits.
#pragma once

namespace moeflux {
namespace gpu {
namespace kernels {

/// sum += weight * slot for ranks 0 to top_k. `slots` loads the Value and the weight of a rank and
/// adds them; AT_ONCE of them are under way together.
template <u32 AT_ONCE, class Slots>
MF_FN void sum_slots(MF_T t, MF_LOCAL(const Slots) slots, u32 top_k,
                     MF_LOCAL(typename Slots::Value) sum) {
  MF_ROLLED
  for (u32 first = 0u; first < top_k; first += AT_ONCE) {
    typename Slots::Value held[AT_ONCE];
    f32 weights[AT_ONCE];
    MF_UNROLL
    for (u32 i = 0u; i < AT_ONCE; ++i) {
      const u32 rank = first + i < top_k ? first + i : top_k - 1u;
      held[i] = slots->load(t, rank);
      weights[i] = slots->weight(t, rank);
    }
    MF_UNROLL
    for (u32 i = 0u; i < AT_ONCE; ++i) {
      if (first + i < top_k) slots->add(sum, weights[i], held[i]);
    }
  }
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
