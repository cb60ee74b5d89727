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

/// Stores the entries of 32 slots, one a lane, by a SIMD group: a word for each of their bits, then
/// one for whether there is an entry.
MF_FN void store_slot_entries(MF_T t, MF_SHARED(u32) to, u32 entry) {
  u32 own = simd_ballot(t, entry != static_cast<u32>(kNoEntry));
  MF_UNROLL
  for (u32 bit = 0u; bit < u32{kListedEntryBits}; ++bit) {
    const u32 slots = simd_ballot(t, (entry >> bit & 1u) != 0u);
    own = t.lane == bit ? slots : own;
  }
  if (t.lane < u32{kListedWords}) to[t.lane] = own;
}
/// A bit for each of 32 slots, set where its entry is `entry`.
MF_FN u32 slots_of_entry(MF_SHARED(u32) from, u32 entry) {
  u32 words[kListedWords];
  MF_UNROLL
  for (u32 i = 0u; i < u32{kListedWords}; i += 4u) {
    const W4 four = load4(from + i);
    MF_UNROLL
    for (u32 k = 0u; k < 4u; ++k) words[i + k] = four.v[k];
  }
  u32 slots = words[kListedEntryBits];
  MF_UNROLL
  for (u32 bit = 0u; bit < u32{kListedEntryBits}; ++bit) {
    slots &= words[bit] ^ ((entry >> bit & 1u) - 1u);
  }
  return slots;
}

/// Lists and tiles of few slots in one group, a thread an entry. Shared: two words a SIMD group, in
/// fours, then kListedWords for 32 slots, in fours too. Loops are short: text that runs once is
/// fetched from memory.
MF_KERNEL(expert_tiles_of_few, ExpertListParams, MF_READ(0, i32, ids), MF_READ(1, u32, map),
          MF_WRITE(2, u32, list), MF_WRITE(3, u32, tiles)) {
  MF_THREAD;
  MF_SHARED(u32) counts = MF_SHARED_AT(t, u32, 0u);
  MF_SHARED(u32) entries = counts + (2u * t.simds + 3u) / 4u * 4u;
  const u32 words = (p.slots + 127u) / 128u * 4u;
  MF_ROLLED
  for (u32 base = t.simd; base < words; base += kSlotsLooked * t.simds) {
    u32 looked[kSlotsLooked];
    MF_UNROLL
    for (u32 i = 0u; i < kSlotsLooked; ++i) {
      const u32 slot = (base + i * t.simds) * 32u + t.lane;
      looked[i] = slot < p.slots ? entry_of(ids, map, p.ids, slot) : static_cast<u32>(kNoEntry);
    }
    MF_UNROLL
    for (u32 i = 0u; i < kSlotsLooked; ++i) {
      const u32 word = base + i * t.simds;
      if (word < words) store_slot_entries(t, entries + word * kListedWords, looked[i]);
    }
  }
  barrier(t);
  u32 count = 0u;
  MF_ROLLED
  for (u32 w = 0u; w < words; w += 4u) {
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) {
      count += count_bits(slots_of_entry(entries + (w + i) * kListedWords, t.index));
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
  MF_ROLLED
  for (u32 w = 0u; w < words; ++w) {
    const u32 slots = slots_of_entry(entries + w * kListedWords, t.index);
    for (u32 left = slots; left != 0u; left &= left - 1u) {
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
