// Groups slots by ready expert on the device: lists of slots per table entry, in order of slots,
// and tiles over the lists.
#pragma once

#include "backend/gpu/kernels/experts/params.h"
#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// The table entry of a routed expert, or kNoEntry.
MF_FN u32 entry_of(MF_GLOBAL(const i32) ids, MF_GLOBAL(const u32) map, u32 num_ids, u32 slot) {
  const u32 id = static_cast<u32>(ids[slot]);
  if (id >= num_ids) return kNoEntry;
  return map[id];
}

MF_FN u32 simd_count(MF_T t, u32 value) {
  for (u32 mask = 16u; mask > 0u; mask /= 2u) value += simd_shuffle_xor(t, value, mask);
  return value;
}

/// Slots of a lane that are looked up together.
enum : u32 { kSlotsLooked = 4 };

/// A bit for each expert id: those whose entries come before one, then its own. All lanes read a
/// table of a few words at once; that of all entries is too large for it.
MF_FN void store_entry_bits(MF_T t, MF_PARAMS(ExpertListParams) p, MF_GLOBAL(const u32) map,
                            MF_SHARED(u32) befores, MF_SHARED(u32) owns) {
  for (u32 word = t.simd; word * 32u < p.ids; word += t.simds) {
    const u32 id = word * 32u + t.lane;
    const u32 entry = id < p.ids ? map[id] : static_cast<u32>(kNoEntry);
    const u32 before = simd_ballot(t, entry < t.group.x);
    const u32 own = simd_ballot(t, entry == t.group.x);
    if (t.lane != 0u) continue;
    befores[word] = before;
    owns[word] = own;
  }
}
MF_FN u32 entry_bit(MF_PARAMS(ExpertListParams) p, MF_SHARED(u32) bits, u32 id) {
  return id < p.ids ? bits[id / 32u] >> id % 32u & 1u : 0u;
}

/// Group x: an entry; its SIMD groups divide the slots among them. ranges holds begin and count of
/// each entry in `list`. Shared: two words a SIMD group, and two for 32 ids.
MF_KERNEL(expert_lists, ExpertListParams, MF_READ(0, i32, ids), MF_READ(1, u32, map),
          MF_WRITE(2, u32, list), MF_WRITE(3, u32, ranges)) {
  MF_THREAD;
  MF_SHARED(u32) befores = MF_SHARED_AT(t, u32, 0u);
  MF_SHARED(u32) counts = befores + t.simds;
  MF_SHARED(u32) before_bits = counts + t.simds;
  MF_SHARED(u32) own_bits = before_bits + (p.ids + 31u) / 32u;
  store_entry_bits(t, p, map, before_bits, own_bits);
  barrier(t);
  const u32 part = ((p.slots + 31u) / 32u + t.simds - 1u) / t.simds * 32u;
  const u32 first = t.simd * part;
  const u32 end = first + part < p.slots ? first + part : p.slots;
  u32 before = 0u;
  u32 count = 0u;
  for (u32 base = first; base < end; base += kSlotsLooked * 32u) {
    MF_UNROLL
    for (u32 i = 0u; i < kSlotsLooked; ++i) {
      const u32 slot = base + i * 32u + t.lane;
      const u32 id = slot < end ? static_cast<u32>(ids[slot]) : static_cast<u32>(kNoEntry);
      before += entry_bit(p, before_bits, id);
      count += entry_bit(p, own_bits, id);
    }
  }
  before = simd_count(t, before);
  count = simd_count(t, count);
  if (t.lane == 0u) {
    befores[t.simd] = before;
    counts[t.simd] = count;
  }
  barrier(t);
  u32 begin = 0u;
  u32 at = 0u;
  u32 all = 0u;
  for (u32 s = 0u; s < t.simds; ++s) {
    begin += befores[s];
    at += s < t.simd ? counts[s] : 0u;
    all += counts[s];
  }
  if (t.index == 0u) {
    ranges[t.group.x * 2u] = begin;
    ranges[t.group.x * 2u + 1u] = all;
  }
  if (count == 0u) return;
  at += begin;
  for (u32 base = first; base < end; base += kSlotsLooked * 32u) {
    MF_UNROLL
    for (u32 i = 0u; i < kSlotsLooked; ++i) {
      const u32 slot = base + i * 32u + t.lane;
      const u32 id = slot < end ? static_cast<u32>(ids[slot]) : static_cast<u32>(kNoEntry);
      const bool mine = entry_bit(p, own_bits, id) != 0u;
      const u32 lanes = simd_ballot(t, mine);
      if (mine) list[at + count_bits(lanes & ((1u << t.lane) - 1u))] = slot;
      at += count_bits(lanes);
    }
  }
}

/// The sum of what lanes before this one have, and its own.
MF_FN u32 simd_through(MF_T t, u32 value) {
  u32 through = value;
  for (u32 step = 1u; step < 32u; step *= 2u) {
    const u32 other = simd_shuffle(t, through, t.lane >= step ? t.lane - step : t.lane);
    if (t.lane >= step) through += other;
  }
  return through;
}

/// A bit for each of four words that is `word`. A third nested loop to unroll has a counter without
/// a value in what g++ 12 compiles at -O1.
MF_FN u32 equal_words(const W4& four, u32 word) {
  return (four.v[0] == word ? 1u : 0u) | (four.v[1] == word ? 2u : 0u) |
         (four.v[2] == word ? 4u : 0u) | (four.v[3] == word ? 8u : 0u);
}

/// Words of the bits of slots.
enum : u32 { kFewSlotWords = kListedSlotsFew / 32u };

/// Lists and tiles of few slots in one group, a thread an entry. Shared: two words a SIMD group, in
/// fours, then a slot's entry each, in 32s.
MF_KERNEL(expert_tiles_of_few, ExpertListParams, MF_READ(0, i32, ids), MF_READ(1, u32, map),
          MF_WRITE(2, u32, list), MF_WRITE(3, u32, tiles)) {
  MF_THREAD;
  MF_SHARED(u32) counts = MF_SHARED_AT(t, u32, 0u);
  MF_SHARED(u32) entries = counts + (2u * t.simds + 3u) / 4u * 4u;
  const u32 slots = (p.slots + 31u) / 32u * 32u;
  for (u32 i = t.index; i < slots; i += t.threads) {
    entries[i] = i < p.slots ? entry_of(ids, map, p.ids, i) : static_cast<u32>(kNoEntry);
  }
  barrier(t);
  u32 bits[kFewSlotWords];  // of the slots that are the entry's
  u32 count = 0u;
  MF_UNROLL
  for (u32 w = 0u; w < kFewSlotWords; ++w) {
    bits[w] = 0u;
    if (w * 32u < slots) {
      MF_UNROLL
      for (u32 i = 0u; i < 32u; i += 4u) {
        bits[w] |= equal_words(load4(entries + w * 32u + i), t.index) << i;
      }
      count += count_bits(bits[w]);
    }
  }
  const u32 own = (count + p.tile - 1u) / p.tile;
  u32 begin = simd_through(t, count);
  u32 at = simd_through(t, own);
  if (t.lane == 31u) {
    counts[t.simd * 2u] = begin;
    counts[t.simd * 2u + 1u] = at;
  }
  barrier(t);
  begin -= count;
  at -= own;
  u32 total = 0u;
  for (u32 s = 0u; s < t.simds; ++s) {
    const u32 all = counts[s * 2u + 1u];
    begin += s < t.simd ? counts[s * 2u] : 0u;
    at += s < t.simd ? all : 0u;
    total += all;
  }
  if (t.index == 0u) tiles[0] = total;
  for (u32 i = 0u; i < own; ++i) {
    const u32 left = count - i * p.tile;
    tiles[1u + (at + i) * 3u] = t.index;
    tiles[2u + (at + i) * 3u] = begin + i * p.tile;
    tiles[3u + (at + i) * 3u] = left < p.tile ? left : p.tile;
  }
  if (count == 0u) return;
  MF_UNROLL
  for (u32 w = 0u; w < kFewSlotWords; ++w) {
    for (u32 left = bits[w]; left != 0u; left &= left - 1u) {
      list[begin++] = w * 32u + count_bits((left & (0u - left)) - 1u);
    }
  }
}

/// One group. tiles[0] is their number; then entry, begin and count of each. Shared: a word a SIMD
/// group.
MF_KERNEL(expert_tiles, ExpertListParams, MF_READ(0, u32, ranges), MF_WRITE(1, u32, tiles)) {
  MF_THREAD;
  MF_SHARED(u32) counts = MF_SHARED_AT(t, u32, 0u);
  u32 total = 0u;
  for (u32 base = 0u; base < p.entries; base += t.threads) {
    const u32 entry = base + t.index;
    const u32 begin = entry < p.entries ? ranges[entry * 2u] : 0u;
    const u32 count = entry < p.entries ? ranges[entry * 2u + 1u] : 0u;
    const u32 own = (count + p.tile - 1u) / p.tile;
    const u32 through = simd_through(t, own);  // tiles of this entry and those before it
    if (t.lane == 31u) counts[t.simd] = through;
    barrier(t);
    u32 at = total + through - own;
    for (u32 s = 0u; s < t.simds; ++s) {
      at += s < t.simd ? counts[s] : 0u;
      total += counts[s];
    }
    for (u32 i = 0u; i < own; ++i) {
      const u32 left = count - i * p.tile;
      tiles[1u + (at + i) * 3u] = entry;
      tiles[2u + (at + i) * 3u] = begin + i * p.tile;
      tiles[3u + (at + i) * 3u] = left < p.tile ? left : p.tile;
    }
    barrier(t);
  }
  if (t.index == 0u) tiles[0] = total;
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
