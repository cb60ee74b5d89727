// Weights of one or two panels unpacked to lines, a run of columns at a time: what comes before
// many tokens are multiplied by them. Included inside a namespace of one ISA, after what defines
// the vectors: FVec of kVecLanes f32 with fstore and fload_element; kLineCols, the columns that one
// unpacked line covers; unpack_line<kBits>; kPairPanels; kTakesBlocks, whether rows of blocks come.
//
// A line is 64 bytes: a 32-bit lane for each of the sixteen rows of a panel. A run fits the L1
// cache beside its activations; all tokens are multiplied by it, a block at a time.

#include "backend/cpu/kernels/fill_args-inl.h"

constexpr int kVecs = static_cast<int>(kTilePanelRows) / kVecLanes;  // of one panel
constexpr int kLine = 64;
constexpr int kRunLines = 128;
constexpr int kRunCols = kRunLines * kLineCols;
constexpr int kRunGroupsMax = kRunCols / 16;

struct TileExtents {
  int64_t groups;
  int64_t code_bytes;   // of one group of a panel
  int64_t param_bytes;  // of its scales, and of its biases
  int64_t group_bytes;
  int64_t panel_bytes;
};

MF_INLINE TileExtents tile_extents(const TileMatrix& w) {
  TileExtents e;
  e.groups = w.cols / w.group_size;
  if (w.block != nullptr) {
    e.code_bytes = e.param_bytes = e.group_bytes = 0;
    e.panel_bytes = kTilePanelRows * (w.cols / w.block->elements) * w.block->bytes;
    return e;
  }
  e.code_bytes = kTilePanelRows * w.group_size * w.bits / 8;
  e.param_bytes = kTilePanelRows * (w.type == ElementType::kF32 ? 4 : 2);
  e.group_bytes = e.code_bytes + 2 * e.param_bytes;
  e.panel_bytes = e.groups * e.group_bytes;
  return e;
}

/// One run of groups of a pair of panels.
struct TileRun {
  const uint8_t* codes;  // lines of the first panel
  int64_t next_panel;    // bytes from them to those of the second
  int64_t group_stride;  // bytes between groups
  // The bytes of each panel that are read next: asked for bit by bit while this run is multiplied,
  // in steps of one group and one block.
  const uint8_t* ahead;
  const uint8_t* ahead_end;
  int64_t ahead_next_panel;
  int64_t ahead_step;  // bytes of each panel
  alignas(64) float scales[kRunGroupsMax][kPairPanels][kTilePanelRows];
  alignas(64) float biases[kRunGroupsMax][kPairPanels][kTilePanelRows];
  alignas(64) uint8_t unpacked[kPairPanels][kRunLines][kLine];
};

template <int kBits>
static void unpack_run(TileRun& run, const TileMatrix& w, const TileExtents& e,
                       const uint8_t* tiles, int panel, int64_t groups) {
  constexpr int kLines = 32 / (kBits * kLineCols);  // that one stored line unpacks to
  uint8_t(*to)[kLine] = run.unpacked[panel];
  for (int64_t g = 0; g < groups; ++g) {
    const uint8_t* p = tiles + g * e.group_bytes;
    if constexpr (kLines > 1) {
      for (int64_t i = 0; i < e.code_bytes; i += kLine, to += kLines) {
        unpack_line<kBits>(p + i, to[0]);
      }
    }
    p += e.code_bytes;
    for (int v = 0; v < kVecs; ++v) {
      const int64_t lane = v * e.param_bytes / kVecs;
      fstore(run.scales[g][panel] + v * kVecLanes, fload_element(p + lane, w.type));
      fstore(run.biases[g][panel] + v * kVecLanes, fload_element(p + e.param_bytes + lane, w.type));
    }
  }
  if constexpr (kLines > 1) {
    run.codes = run.unpacked[0][0];
    run.next_panel = kRunLines * kLine;
    run.group_stride = w.group_size / kLineCols * kLine;
  } else {
    run.codes = tiles - panel * e.panel_bytes;
    run.next_panel = e.panel_bytes;
    run.group_stride = e.group_bytes;
  }
}
/// Fills `cols` columns from `col` on of the panel whose rows begin at `panel`.
MF_INLINE void fill_panel(const TileMatrix& w, const uint8_t* panel, int64_t col, int64_t cols,
                          uint8_t* lines, float* scales, float* biases, int64_t stride) {
  const BlockKernel& block = *w.block;
  block.fill(fill_args(w, panel, col, cols, lines, scales, biases, stride));
  if (w.outer_scale == 1.0f) return;
  for (int64_t g = 0; g < cols / block.group_size; ++g) {
    for (int64_t r = 0; r < kTilePanelRows; ++r) {
      scales[g * stride + r] *= w.outer_scale;
      biases[g * stride + r] *= w.outer_scale;
    }
  }
}

/// Like unpack_run() for blocks. `group` is the run's first one of the panel at `rows`.
static void fill_run(TileRun& run, const TileMatrix& w, const uint8_t* rows, int panel,
                     int64_t group, int64_t groups) {
  constexpr int64_t kStride = kPairPanels * kTilePanelRows;
  const int64_t end = (group + groups) * w.group_size;
  for (int64_t col = group * w.group_size; col < end; col += kBlockFillCols) {
    const int64_t at = col - group * w.group_size;
    const int64_t cols = end - col < kBlockFillCols ? end - col : kBlockFillCols;
    fill_panel(w, rows, col, cols, run.unpacked[panel][at / 4],
               run.scales[at / w.group_size][panel], run.biases[at / w.group_size][panel], kStride);
  }
  run.codes = run.unpacked[0][0];
  run.next_panel = kRunLines * kLine;
  run.group_stride = w.group_size / kLineCols * kLine;
}

/// Plans what to ask for while groups [group, group + groups) of the panels at `tiles` are
/// multiplied: their next run, or the first one of the panels at `after`.
MF_INLINE void plan_ahead(TileRun& run, const TileExtents& e, const uint8_t* tiles,
                          const uint8_t* after, int64_t group, int64_t groups, int64_t run_groups,
                          int64_t blocks) {
  if (e.group_bytes == 0) {  // rows of blocks: a part of what comes after
    run.ahead = after == nullptr ? nullptr : after + e.panel_bytes * group / e.groups;
    run.ahead_end = after == nullptr ? nullptr : run.ahead + e.panel_bytes * groups / e.groups;
    run.ahead_next_panel = e.panel_bytes;
    run.ahead_step = (e.panel_bytes / (e.groups * blocks) / kLine + 1) * kLine;
    return;
  }
  const bool is_last = group + groups == e.groups;
  const int64_t from = is_last ? 0 : group + groups;
  const int64_t count = e.groups - from < run_groups ? e.groups - from : run_groups;
  run.ahead = is_last ? after : tiles + from * e.group_bytes;
  run.ahead_end = run.ahead == nullptr ? nullptr : run.ahead + count * e.group_bytes;
  run.ahead_next_panel = e.panel_bytes;
  run.ahead_step = (count * e.group_bytes / (groups * blocks) / kLine + 1) * kLine;
}

/// Asks for a step of what comes next, of kPanels panels.
template <int kPanels>
MF_INLINE void ask_ahead(TileRun& run) {
  if (run.ahead >= run.ahead_end) return;  // nothing, which is null
  const uint8_t* const end = run.ahead + run.ahead_step;
  for (; run.ahead < end && run.ahead < run.ahead_end; run.ahead += kLine) {
    for (int p = 0; p < kPanels; ++p) {
      __builtin_prefetch(run.ahead + p * run.ahead_next_panel, 0, 2);
    }
  }
}
