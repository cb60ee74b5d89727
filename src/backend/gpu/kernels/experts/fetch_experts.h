// Chosen experts that lie in memory of the host are brought into the device's before few tokens'
// products read them: whole requests in the order of memory, where products ask for pieces of rows
// and of scales. On PCIe 5 these get 34 of the 50 GB/s that this gets.
#pragma once

#include "backend/gpu/kernels/experts/expert_lists.h"
#include "backend/gpu/kernels/experts/params.h"
#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// Loads of 16 bytes that a thread has on their way at once.
enum : u32 { kFetchAhead = 4 };

/// Where each slot's expert lies: its index among the slots of far memory, or kNoEntry for one that
/// lies elsewhere, that no table has, or that a slot before has too.
MF_FN void find_far(MF_T t, MF_PARAMS(FetchParams) p, MF_GLOBAL(const i32) ids,
                    MF_GLOBAL(const u32) map, MF_GLOBAL(const u64) homes, MF_SHARED(u32) entries,
                    MF_SHARED(u32) fars) {
  const u32 s = t.index;
  if (s < p.slots) {
    const u32 entry = entry_of(ids, map, p.ids, s);
    entries[s] = entry;
    u32 far = kNoEntry;
    if (entry != kNoEntry) {
      const u64 data = homes[static_cast<u64>(entry) * kEntryWords];
      if (data >= p.far && data - p.far < p.far_bytes) {
        far = static_cast<u32>((data - p.far) / p.slot_bytes);
      }
    }
    fars[s] = far;
  }
  barrier(t);
  bool is_first = s < p.slots;
  for (u32 i = 0u; i < s && is_first; ++i) is_first = entries[i] != entries[s];
  barrier(t);
  if (s < p.slots && !is_first) {
    entries[s] = kNoEntry;
    fars[s] = kNoEntry;
  }
  barrier(t);
}

/// Group x: one of those that share the bytes. Copies the experts of these slots that lie in far
/// memory into places one after another, as many as there are, and writes where each chosen expert
/// is to be read. Shared: two words a slot, one a place, and one.
MF_KERNEL(fetch_experts, FetchParams, MF_READ(0, i32, ids), MF_READ(1, u32, map),
          MF_READ(2, u64, homes), MF_WRITE(3, u64, entries)) {
  MF_THREAD;
  MF_SHARED(u32) chosen = MF_SHARED_AT(t, u32, 0u);
  MF_SHARED(u32) fars = chosen + p.slots;
  MF_SHARED(u32) sources = fars + p.slots;
  MF_SHARED(u32) count = sources + p.places;
  find_far(t, p, ids, map, homes, chosen, fars);
  u32 place = kNoEntry;
  if (t.index < p.slots && fars[t.index] != kNoEntry) {
    place = 0u;
    for (u32 i = 0u; i < t.index; ++i) place += fars[i] != kNoEntry ? 1u : 0u;
    if (place < p.places) {
      sources[place] = fars[t.index];
    } else {
      place = kNoEntry;
    }
  }
  if (t.index == 0u) {
    u32 all = 0u;
    for (u32 i = 0u; i < p.slots; ++i) all += fars[i] != kNoEntry ? 1u : 0u;
    count[0] = all < p.places ? all : p.places;
  }
  barrier(t);
  if (t.group.x == 0u && t.index < p.slots && chosen[t.index] != kNoEntry) {
    const u64 at = static_cast<u64>(chosen[t.index]) * kEntryWords;
    const u64 from = p.far + static_cast<u64>(fars[t.index]) * p.slot_bytes;
    const u64 to = p.landing + static_cast<u64>(place) * p.slot_bytes;
    for (u32 w = 0u; w < kEntryWords; ++w) {
      const u64 home = homes[at + w];
      entries[at + w] = place == kNoEntry || home == 0u ? home : home - from + to;
    }
  }
  const u32 packs = p.copy_bytes / 16u;
  const u32 piece = t.threads * kFetchAhead;
  const u32 pieces = (packs + piece - 1u) / piece;
  for (u32 i = t.group.x; i < pieces * count[0]; i += p.groups) {
    const u32 to_place = i / pieces;
    MF_GLOBAL(const u32)
    from = MF_AT(t, const u32, p.far + static_cast<u64>(sources[to_place]) * p.slot_bytes);
    MF_GLOBAL(u32) to = MF_AT(t, u32, p.landing + static_cast<u64>(to_place) * p.slot_bytes);
    const u32 first = (i - to_place * pieces) * piece + t.index;
    W4 ahead[kFetchAhead];
    MF_UNROLL
    for (u32 a = 0u; a < kFetchAhead; ++a) {
      const u32 pack = first + a * t.threads;
      ahead[a] = load4(from + static_cast<u64>(pack < packs ? pack : packs - 1u) * 4u);
    }
    MF_UNROLL
    for (u32 a = 0u; a < kFetchAhead; ++a) {
      const u32 pack = first + a * t.threads;
      if (pack < packs) store4(to + static_cast<u64>(pack) * 4u, ahead[a]);
    }
  }
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
