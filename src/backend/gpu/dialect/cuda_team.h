// Products of four SIMD groups together on GPUs of compute capability 9.0, compiled for 90a: wgmma
// multiplies beside the other instructions, where mma keeps the registers busy. On an H200 a block
// of products with its additions in floats takes two thirds of the time.
#pragma once

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define MF_HAS_TEAM_MULTIPLY 1

namespace moeflux {
namespace gpu {

/// 64 rows x 32 columns of unsigned bytes, 16 rows a SIMD group, times TILES * 8 rows of signed
/// ones in shared memory: d = or d +=. Both are under way until they are waited for.
template <u32 TILES>
struct TeamStep;
/// The same of signed bytes by signed ones.
template <u32 TILES>
struct TeamSignedStep;

#define MF_SUMS8(c, d) c(d[0]), c(d[1]), c(d[2]), c(d[3]), c(d[4]), c(d[5]), c(d[6]), c(d[7])
#define MF_SUMS12(c, d) MF_SUMS8(c, d), c(d[8]), c(d[9]), c(d[10]), c(d[11])
#define MF_SUMS16(c, d) MF_SUMS12(c, d), c(d[12]), c(d[13]), c(d[14]), c(d[15])
#define MF_WGMMA(adds, columns, types, operands) \
  "{\n.reg .pred adds;\nsetp.ne.b32 adds, " adds \
  ", 0;\n"                                       \
  "wgmma.mma_async.sync.aligned.m64n" columns "k32.s32." types " " operands ", adds;\n}"
#define MF_TEAM_STEP_OF(name, types, tiles, columns, operands, sums)              \
  template <>                                                                     \
  struct name<tiles> {                                                            \
    static MF_FN_MEMBER void set(i32* d, u32 a0, u32 a1, u32 a2, u32 a3, u64 b) { \
      asm volatile(MF_WGMMA("0", columns, types, operands)                        \
                   : sums("=r", d)                                                \
                   : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));                 \
    }                                                                             \
    static MF_FN_MEMBER void add(i32* d, u32 a0, u32 a1, u32 a2, u32 a3, u64 b) { \
      asm volatile(MF_WGMMA("1", columns, types, operands)                        \
                   : sums("+r", d)                                                \
                   : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));                 \
    }                                                                             \
  };
#define MF_TEAM_STEP(tiles, columns, operands, sums)                 \
  MF_TEAM_STEP_OF(TeamStep, "u8.s8", tiles, columns, operands, sums) \
  MF_TEAM_STEP_OF(TeamSignedStep, "s8.s8", tiles, columns, operands, sums)
MF_TEAM_STEP(2u, "16", "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, %12", MF_SUMS8)
MF_TEAM_STEP(3u, "24",
             "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11}, {%12, %13, %14, %15}, %16",
             MF_SUMS12)
MF_TEAM_STEP(4u, "32",
             "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
             "{%16, %17, %18, %19}, %20",
             MF_SUMS16)
#undef MF_TEAM_STEP
#undef MF_TEAM_STEP_OF
#undef MF_WGMMA
#undef MF_SUMS16
#undef MF_SUMS12
#undef MF_SUMS8

/// Rows of x of 128 bytes, swizzled as wgmma has them, eight in 1024 bytes, in pieces of 16 bytes:
/// the address, from eight rows to the next, and how they are swizzled.
MF_FN u64 team_rows(u32* x) {
  const u32 at = static_cast<u32>(__cvta_generic_to_shared(x)) >> 4u;
  return at | (u64{1024 / 16} << 32 | u64{1} << 62);
}

/// As in common.h.
template <u32 TILES>
struct TeamBytes {
  static MF_FN_MEMBER void begin_half(MF_T, i32* high, i32* low, W2 above, W2 below, u32 half,
                                      u32* x) {
    const u64 rows = team_rows(x) + half * 2u;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    TeamStep<TILES>::set(high, above.v[0], below.v[0], above.v[1], below.v[1], rows);
    TeamStep<TILES>::set(low, above.v[0], below.v[0], above.v[1], below.v[1], rows + 4u);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  }
  static MF_FN_MEMBER void begin(MF_T, i32* high, i32* low, const W2* codes, u32* x) {
    const u64 rows = team_rows(x);
    const u32 first[4] = {codes[0].v[0], codes[2].v[0], codes[0].v[1], codes[2].v[1]};
    const u32 second[4] = {codes[1].v[0], codes[3].v[0], codes[1].v[1], codes[3].v[1]};
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    TeamStep<TILES>::set(high, first[0], first[1], first[2], first[3], rows);
    TeamStep<TILES>::add(high, second[0], second[1], second[2], second[3], rows + 2u);
    TeamStep<TILES>::set(low, first[0], first[1], first[2], first[3], rows + 4u);
    TeamStep<TILES>::add(low, second[0], second[1], second[2], second[3], rows + 6u);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  }
  template <u32 PENDING>
  static MF_FN_MEMBER void wait(MF_T, i32* high, i32* low) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
    hold(high, low);
  }

 private:
  /// From here on they are what they are: no instruction that reads them comes earlier.
  static MF_FN_MEMBER void hold(i32* high, i32* low) {
    MF_UNROLL
    for (u32 i = 0u; i < TILES * 4u; ++i) {
      asm volatile("" : "+r"(high[i]), "+r"(low[i])::"memory");
    }
  }
};

/// As in common.h; TeamBytes waits for them.
template <u32 TILES, u32 NEXT>
struct TeamDigits {
  template <u32 HALVES>
  static MF_FN_MEMBER void begin(MF_T, i32* high, i32* low, const W2* first, const W2* second,
                                 u32 half, u32* x) {
    typedef TeamSignedStep<TILES> Step;
    const u64 rows = team_rows(x);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    MF_UNROLL
    for (u32 h = 0u; h < 2u; ++h) {
      if (HALVES == 2u && h != half) continue;
      const W2 above = first[h];
      const W2 below = first[h + 2u];
      const W2 next_above = second[h];
      const W2 next_below = second[h + 2u];
      const u64 of_256s = rows + h * 2u;
      const u64 of_ones = of_256s + 4u;
      if (HALVES == 2u || h == 0u) {
        Step::set(high, above.v[0], below.v[0], above.v[1], below.v[1], of_256s);
        Step::set(low, above.v[0], below.v[0], above.v[1], below.v[1], of_ones);
      } else {
        Step::add(high, above.v[0], below.v[0], above.v[1], below.v[1], of_256s);
        Step::add(low, above.v[0], below.v[0], above.v[1], below.v[1], of_ones);
      }
      Step::add(NEXT == 1u ? low : high, next_above.v[0], next_below.v[0], next_above.v[1],
                next_below.v[1], NEXT == 1u ? of_256s : of_ones);
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  }
};

}  // namespace gpu
}  // namespace moeflux
#endif
