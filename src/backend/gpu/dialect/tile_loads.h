// Tiles of 8 x 8 halves from shared memory, as products on matrix units take them. Kernel text:
// compiled by all dialects.
#pragma once

namespace moeflux {
namespace gpu {

/// Four tiles whose rows, of four words, begin at words of shared memory that lanes know: lane 8 m
/// + r that of row r of tile m. Word m is of tile m the row lane / 4 and there the word lane % 4;
/// or, TRANSPOSED, of column lane / 4 the rows 2 (lane % 4) and the next.
#if defined(__CUDA_ARCH__)
template <bool TRANSPOSED>
MF_FN W4 load_tiles(MF_T t, u32 at) {
  const u32 from = static_cast<u32>(__cvta_generic_to_shared(t.shared)) + at * 4u;
  W4 words;
  if (TRANSPOSED) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words.v[0]), "=r"(words.v[1]), "=r"(words.v[2]), "=r"(words.v[3])
                 : "r"(from)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words.v[0]), "=r"(words.v[1]), "=r"(words.v[2]), "=r"(words.v[3])
                 : "r"(from)
                 : "memory");
  }
  return words;
}
#else
template <bool TRANSPOSED>
MF_FN W4 load_tiles(MF_T t, u32 at) {
  W4 words;
  for (u32 m = 0u; m < 4u; ++m) {
    if (!TRANSPOSED) {
      const u32 row = simd_shuffle(t, at, m * 8u + t.lane / 4u);
      words.v[m] = MF_SHARED_AT(t, u32, (row + t.lane % 4u) * 4u)[0];
      continue;
    }
    words.v[m] = 0u;
    for (u32 i = 0u; i < 2u; ++i) {
      const u32 row = simd_shuffle(t, at, m * 8u + t.lane % 4u * 2u + i);
      const u32 pair = MF_SHARED_AT(t, u32, (row + t.lane / 8u) * 4u)[0];
      words.v[m] |= (t.lane / 4u % 2u == 0u ? pair & 0xffffu : pair >> 16u) << (16u * i);
    }
  }
  return words;
}
#endif

}  // namespace gpu
}  // namespace moeflux
