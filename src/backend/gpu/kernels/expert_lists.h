// Which slots go to which ready expert, found on the device: lists of slots per table entry, in
// order of slots, and tiles over the lists.
#pragma once

namespace moeflux {
namespace gpu {
namespace kernels {

/// The table entry of a routed expert, or kNoEntry.
MF_FN u32 entry_of(MF_GLOBAL(const i32) ids, MF_GLOBAL(const u32) map, u32 num_ids, u32 slot) {
  const u32 id = static_cast<u32>(ids[slot]);
  if (id >= num_ids) return kNoEntry;
  return map[id];
}

/// Of a lane's next slots, every 32nd from `slot` on; kNoEntry from `end` on. They are on their way
/// together.
enum : u32 { kSlotBatch = 8 };
MF_FN void load_entries(MF_LOCAL(u32) entries, MF_GLOBAL(const i32) ids, MF_GLOBAL(const u32) map,
                        u32 num_ids, u32 slot, u32 end) {
  MF_UNROLL
  for (u32 i = 0u; i < kSlotBatch; ++i) {
    const u32 own = slot + i * 32u;
    entries[i] = own < end ? static_cast<u32>(ids[own]) : num_ids;
  }
  MF_UNROLL
  for (u32 i = 0u; i < kSlotBatch; ++i) {
    entries[i] = entries[i] < num_ids ? map[entries[i]] : static_cast<u32>(kNoEntry);
  }
}

MF_FN u32 simd_count(MF_T t, u32 value) {
  for (u32 mask = 16u; mask > 0u; mask /= 2u) value += simd_shuffle_xor(t, value, mask);
  return value;
}

/// Group x: an entry; its SIMD groups divide the slots among them. ranges holds begin and count of
/// each entry in `list`. Shared: two words a SIMD group.
MF_KERNEL(expert_lists, ExpertListParams, MF_READ(0, i32, ids), MF_READ(1, u32, map),
          MF_WRITE(2, u32, list), MF_WRITE(3, u32, ranges)) {
  MF_THREAD;
  MF_SHARED(u32) befores = MF_SHARED_AT(t, u32, 0u);
  MF_SHARED(u32) counts = befores + t.simds;
  const u32 own = t.group.x;
  const u32 part = ((p.slots + 31u) / 32u + t.simds - 1u) / t.simds * 32u;
  const u32 first = t.simd * part;
  const u32 end = first + part < p.slots ? first + part : p.slots;
  u32 before = 0u;
  u32 count = 0u;
  u32 entries[kSlotBatch];
  for (u32 base = first; base < end; base += 32u * kSlotBatch) {
    load_entries(entries, ids, map, p.ids, base + t.lane, end);
    MF_UNROLL
    for (u32 i = 0u; i < kSlotBatch; ++i) {
      before += entries[i] < own ? 1u : 0u;
      count += entries[i] == own ? 1u : 0u;
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
  at += begin;
  for (u32 base = first; base < end; base += 32u * kSlotBatch) {
    load_entries(entries, ids, map, p.ids, base + t.lane, end);
    MF_UNROLL
    for (u32 i = 0u; i < kSlotBatch; ++i) {
      const bool mine = entries[i] == own;
      const u32 lanes = simd_ballot(t, mine);
      if (mine) list[at + count_bits(lanes & ((1u << t.lane) - 1u))] = base + i * 32u + t.lane;
      at += count_bits(lanes);
    }
  }
  if (t.index == 0u) {
    ranges[own * 2u] = begin;
    ranges[own * 2u + 1u] = all;
  }
}

/// One group of 32 threads. tiles[0] is their number; then entry, begin and count of each.
MF_KERNEL(expert_tiles, ExpertListParams, MF_READ(0, u32, ranges), MF_WRITE(1, u32, tiles)) {
  MF_THREAD;
  u32 total = 0u;
  for (u32 base = 0u; base < p.entries; base += 32u) {
    const u32 entry = base + t.lane;
    const u32 begin = entry < p.entries ? ranges[entry * 2u] : 0u;
    const u32 count = entry < p.entries ? ranges[entry * 2u + 1u] : 0u;
    const u32 own = (count + p.tile - 1u) / p.tile;
    u32 through = own;  // tiles of this entry and those before it
    for (u32 step = 1u; step < 32u; step *= 2u) {
      const u32 other = simd_shuffle(t, through, t.lane >= step ? t.lane - step : t.lane);
      if (t.lane >= step) through += other;
    }
    for (u32 i = 0u; i < own; ++i) {
      const u32 at = 1u + (total + through - own + i) * 3u;
      const u32 left = count - i * p.tile;
      tiles[at] = entry;
      tiles[at + 1u] = begin + i * p.tile;
      tiles[at + 2u] = left < p.tile ? left : p.tile;
    }
    total += simd_shuffle(t, through, 31u);
  }
  if (t.lane == 0u) tiles[0] = total;
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
