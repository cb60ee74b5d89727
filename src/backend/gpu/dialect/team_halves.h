// Products of f16 of four SIMD groups together, with sums in f32: rows lie in shared memory, 64
// halves in 128 bytes, as wgmma has them swizzled. On other GPUs each SIMD group multiplies for
// itself. An H200 gives both the same bits. Kernel text: compiled by all dialects.
#pragma once

#include "backend/gpu/dialect/tile_loads.h"

namespace moeflux {
namespace gpu {

/// Words from eight rows to the next and from one block of 64 columns of 32 rows to the next.
enum : u32 { kTeamEightWords = 256, kTeamBlockWords = 1024 };

/// Where the 16 bytes `piece` of a row are, in words: blocks begin at multiples of 1024 bytes.
MF_FN u32 team_piece(u32 row, u32 piece) { return row * 32u + ((piece ^ (row & 7u)) & 7u) * 4u; }

#if defined(MF_HAS_TEAM_MULTIPLY)
#define MF_F4(d, i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define MF_F16(d, i) MF_F4(d, i), MF_F4(d, (i) + 4), MF_F4(d, (i) + 8), MF_F4(d, (i) + 12)
#define MF_F32(d, i) MF_F16(d, i), MF_F16(d, (i) + 16)
#define MF_F64(d, i) MF_F16(d, i), MF_F16(d, (i) + 16), MF_F16(d, (i) + 32), MF_F16(d, (i) + 48)
#define MF_HALVES "k16.f32.f16.f16 "
#define MF_32                                                              \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"

/// Products that are under way between begin() and end() may not be touched, nor may their rows be
/// written, until wait() returns.
struct TeamHalves {
  static MF_FN_MEMBER void begin(MF_T) { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
  static MF_FN_MEMBER void end(MF_T) {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  }
  template <u32 PENDING>
  static MF_FN_MEMBER void wait(MF_T) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
  }
  /// After wait(): no instruction that reads these sums comes earlier.
  template <u32 COUNT>
  static MF_FN_MEMBER void hold(f32* sums) {
    MF_UNROLL
    for (u32 i = 0u; i < COUNT; ++i) asm volatile("" : "+f"(sums[i])::"memory");
  }
  /// 16 columns of 64 rows at piece x of shared memory, of 16 bytes, times those of 32 rows at
  /// piece y.
  static MF_FN_MEMBER void add_rows(MF_T t, f32* d, u32 x, u32 y) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n32" MF_HALVES
                 "{"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
                 "}, %16, %17, 1, 1, 1, 0, 0;"
                 : MF_F16(d, 0)
                 : "l"(rows(t, x)), "l"(rows(t, y)));
  }
  /// 16 columns of 64 rows at piece x times COLUMNS of 16 rows at piece y.
  template <u32 COLUMNS>
  static MF_FN_MEMBER void add_columns(MF_T t, f32* d, u32 x, u32 y);
  /// As add_rows(), of 64 rows at piece y; d = where it BEGINS a sum.
  template <bool BEGINS>
  static MF_FN_MEMBER void rows64(MF_T t, f32* d, u32 x, u32 y) {
    asm volatile(
        "{\n.reg .pred adds;\nsetp.ne.b32 adds, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64" MF_HALVES "{" MF_32
        "}, %32, %33, adds, 1, 1, 0, 0;\n}"
        : MF_F32(d, 0)
        : "l"(rows(t, x)), "l"(rows(t, y)), "n"(BEGINS ? 0 : 1));
  }
  /// 16 columns of 64 rows, of which a SIMD group holds 16 as matrix_multiply_add_f16() takes them,
  /// times 64 columns of 16 rows at piece y.
  template <bool BEGINS>
  static MF_FN_MEMBER void columns64(MF_T t, f32* d, W4 x, u32 y) {
    asm volatile(
        "{\n.reg .pred adds;\nsetp.ne.b32 adds, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64" MF_HALVES "{" MF_32
        "}, {%32, %33, %34, %35}, %36, adds, 1, 1, 1;\n}"
        : MF_F32(d, 0)
        : "r"(x.v[0]), "r"(x.v[1]), "r"(x.v[2]), "r"(x.v[3]), "l"(rows(t, y)), "n"(BEGINS ? 0 : 1));
  }

 private:
  /// One addition where `piece` is a sum with a constant. Beside products an H200 issues two
  /// instructions in five cycles, and one of 32 rows takes 24.
  static MF_FN_MEMBER u64 rows(MF_T t, u32 piece) {
    const u32 begin =
        static_cast<u32>(__cvta_generic_to_shared(t.shared)) / 16u + (kTeamBlockWords / 4u << 16u);
    return (begin + piece) | (u64{kTeamEightWords / 4} << 32 | u64{1} << 62);
  }
};
template <>
MF_FN_MEMBER void TeamHalves::add_columns<256u>(MF_T t, f32* d, u32 x, u32 y) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n256" MF_HALVES
      "{"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, "
      "%127"
      "}, %128, %129, 1, 1, 1, 0, 1;"
      : MF_F64(d, 0), MF_F64(d, 64)
      : "l"(rows(t, x)), "l"(rows(t, y)));
}
/// Copies of whole places of shared memory, which one thread begins. A flag of two words says when
/// those of its number have arrived; copies into a place come after a barrier that all who read it
/// have reached.
struct TeamCopies {
  /// Makes `count` flags, before a barrier.
  static MF_FN_MEMBER void make(MF_T t, u32 flags, u32 count) {
    if (t.index != 0u) return;
    for (u32 i = 0u; i < count; ++i) {
      asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(at(t, flags + i * 2u)) : "memory");
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  /// So many words come with the copies that follow.
  static MF_FN_MEMBER void expect(MF_T t, u32 flag, u32 words) {
    if (t.index != 0u) return;
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(at(t, flag)),
                 "r"(words * 4u)
                 : "memory");
  }
  template <u32 WORDS>
  static MF_FN_MEMBER void copy(MF_T t, u32 flag, u32 to, const u32* from) {
    if (t.index != 0u) return;
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(at(t, to)),
        "l"(from), "r"(WORDS * 4u), "r"(at(t, flag))
        : "memory");
  }
  static MF_FN_MEMBER void finish(MF_T) {}
  /// Waits for the copies whose number, of those of the flag, is `parity` modulo 2.
  static MF_FN_MEMBER void await(MF_T t, u32 flag, u32 parity) {
    asm volatile(
        "{\n.reg .pred there;\nagain:\n"
        "mbarrier.try_wait.parity.shared.b64 there, [%0], %1;\n@!there bra again;\n}" ::"r"(
            at(t, flag)),
        "r"(parity)
        : "memory");
  }

 private:
  static MF_FN_MEMBER u32 at(MF_T t, u32 word) {
    return static_cast<u32>(__cvta_generic_to_shared(t.shared)) + word * 4u;
  }
};
/// Gives registers of these four SIMD groups back, or takes more: all teams of 384 threads have
/// 504.
template <u32 COUNT>
MF_FN void team_gives_registers(MF_T) {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <u32 COUNT>
MF_FN void team_takes_registers(MF_T) {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
#undef MF_32
#undef MF_HALVES
#undef MF_F64
#undef MF_F32
#undef MF_F16
#undef MF_F4
#else
/// As above; products are there at once.
struct TeamHalves {
  static MF_FN_MEMBER void begin(MF_T) {}
  static MF_FN_MEMBER void end(MF_T) {}
  template <u32 PENDING>
  static MF_FN_MEMBER void wait(MF_T) {}
  template <u32 COUNT>
  static MF_FN_MEMBER void hold(MF_LOCAL(f32)) {}
  static MF_FN_MEMBER void add_rows(MF_T t, MF_LOCAL(f32) d, u32 x, u32 y) {
    const W4 a = own_rows(t, x);
    MF_UNROLL
    for (u32 n = 0u; n < 2u; ++n) {
      const W4 b =
          load_tiles<false>(t, row(y, n * 16u + t.lane / 16u * 8u + t.lane % 8u, t.lane / 8u % 2u));
      add(t, d + n * 8u, a, b.v[0], b.v[1]);
      add(t, d + (n * 8u + 4u), a, b.v[2], b.v[3]);
    }
  }
  template <u32 COLUMNS>
  static MF_FN_MEMBER void add_columns(MF_T t, MF_LOCAL(f32) d, u32 x, u32 y) {
    const W4 a = own_rows(t, x);
    MF_ROLLED
    for (u32 e = 0u; e < COLUMNS / 8u; e += 2u) {
      const u32 block = y + e / 8u * (kTeamBlockWords / 4u);
      const W4 b = load_tiles<true>(t, row(block, t.lane % 16u, e % 8u + t.lane / 16u));
      add(t, d + e * 4u, a, b.v[0], b.v[1]);
      add(t, d + (e * 4u + 4u), a, b.v[2], b.v[3]);
    }
  }
  template <bool BEGINS>
  static MF_FN_MEMBER void rows64(MF_T t, MF_LOCAL(f32) d, u32 x, u32 y) {
    if (BEGINS) clear(d);
    add_rows(t, d, x, y);
    add_rows(t, d + 16u, x, y + kTeamBlockWords / 4u);
  }
  template <bool BEGINS>
  static MF_FN_MEMBER void columns64(MF_T t, MF_LOCAL(f32) d, W4 x, u32 y) {
    if (BEGINS) clear(d);
    MF_UNROLL
    for (u32 e = 0u; e < 8u; e += 2u) {
      const W4 b = load_tiles<true>(t, row(y, t.lane % 16u, e + t.lane / 16u));
      add(t, d + e * 4u, x, b.v[0], b.v[1]);
      add(t, d + (e * 4u + 4u), x, b.v[2], b.v[3]);
    }
  }

 private:
  static MF_FN_MEMBER void clear(MF_LOCAL(f32) d) {
    MF_UNROLL
    for (u32 i = 0u; i < 32u; ++i) d[i] = 0.0f;
  }
  /// The word of piece `next` after the one in whose place x is, of row r.
  static MF_FN_MEMBER u32 row(u32 x, u32 r, u32 next) {
    return x / 8u * 32u + team_piece(r, x % 8u + next);
  }
  static MF_FN_MEMBER W4 own_rows(MF_T t, u32 x) {
    return load_tiles<false>(t, row(x, (t.simd & 3u) * 16u + t.lane % 16u, t.lane / 16u));
  }
  static MF_FN_MEMBER void add(MF_T t, MF_LOCAL(f32) d, W4 a, u32 b0, u32 b1) {
    matrix_multiply_add_f16(t, d, a.v[0], a.v[1], a.v[2], a.v[3], b0, b1);
  }
};
/// The same by all threads. They are there behind finish() and a barrier.
struct TeamCopies {
  static MF_FN_MEMBER void make(MF_T, u32, u32) {}
  static MF_FN_MEMBER void expect(MF_T, u32, u32) {}
  template <u32 WORDS>
  static MF_FN_MEMBER void copy(MF_T t, u32, u32 to, MF_GLOBAL(const u32) from) {
    for (u32 i = t.index * 4u; i < WORDS; i += t.threads * 4u) {
      copy_async4(t, MF_SHARED_AT(t, u32, (to + i) * 4u), from + i);
    }
    copies_commit(t);
  }
  static MF_FN_MEMBER void finish(MF_T t) { copies_wait<0>(t); }
  static MF_FN_MEMBER void await(MF_T, u32, u32) {}
};
template <u32 COUNT>
MF_FN void team_gives_registers(MF_T) {}
template <u32 COUNT>
MF_FN void team_takes_registers(MF_T) {}
#endif

}  // namespace gpu
}  // namespace moeflux
