// Softmax attention of a tile of rows (heads of one kv head, of some tokens) over paged keys and
// values. Included inside the namespace of one ISA; see kernels-inl.h.
//
// The order of operations, which is the same whatever else a tile holds:
// - a score is the sum over head_dim, in order, of q * k, times scale: keys lie across lanes;
// - an online softmax goes over blocks of kPositions, whose borders lie at multiples of kPositions,
//   and starts anew at every segment; sums of values go over positions in order;
// - segments are folded in order.
// So what a token computes depends on its position alone, not on the chunk it came in.

constexpr int kPositions = 64;
constexpr int kPanelVecs = 2;
constexpr int kPanelKeys = kPanelVecs * kLanes;
static_assert(kPanelKeys <= kAttentionPanelKeys && kPositions % kPanelKeys == 0 &&
              32 % kPanelKeys == 0 &&  // vectors side by side share the scale of a block
              kAttentionSegment % kPositions == 0);
/// Rows of the largest register tile.
constexpr int kQueryRows = kRegisters >= 32 ? 8 : 4;

/// Positions [first, last) of a block.
struct SeenPart {
  int64_t first;
  int64_t last;
};

struct AttentionBlock {
  int64_t begin;        // position of the block's first key; positions below count from it
  SeenPart seen;        // by any token
  int64_t token_begin;  // tokens that see some of the block
  int64_t token_end;
  const float* q[kAttentionRowsMax];
  const uint8_t* k[kPositions + kPanelKeys];  // and of the panel behind, to fetch it ahead
  const uint8_t* v[kPositions];
  float factors[kAttentionRowsMax];                    // of what was accumulated before this block
  alignas(64) float p[kAttentionRowsMax][kPositions];  // scores, then probabilities
};

MF_INLINE int64_t cached_bytes(CachedType type) {
  return type == CachedType::kF32 ? 4 : type == CachedType::kF16 ? 2 : 1;
}
/// The factor of the elements from `d` on, up to the next multiple of 32.
template <CachedType kType>
MF_INLINE Vec cached_scale(const uint8_t* row, int64_t scales, int64_t d) {
  return kType == CachedType::kQ8 ? vset_f16(row + scales + d / 32 * 2) : vset(1.0f);
}
/// Elements from `d` on of a row of keys or values, of which `left` are left; rows in 8 bits have
/// whole vectors.
template <CachedType kType>
MF_INLINE Vec vload_cached(const uint8_t* row, int64_t d, int64_t left, Vec scale) {
  if (kType == CachedType::kQ8) return vmul(vload_i8(row + d), scale);
  constexpr ElementType kElement =
      kType == CachedType::kF16 ? ElementType::kF16 : ElementType::kF32;
  const uint8_t* p = row + d * element_bytes(kElement);
  return left < kLanes ? vload_element_partial(p, kElement, left) : vload_element(p, kElement);
}

/// The part of a block that token t sees.
MF_INLINE SeenPart seen_by(const AttentionArgs& args, int64_t t, int64_t begin) {
  const int64_t end = args.position + t + 1;
  int64_t oldest = args.window > 0 && args.window < end ? end - args.window : 0;
  if (args.chunked) oldest = (end - 1) / args.window * args.window;
  const int64_t block_end = begin + kPositions < args.end ? begin + kPositions : args.end;
  return {(oldest > begin ? oldest : begin) - begin, (end < block_end ? end : block_end) - begin};
}

/// Rows of the positions some token sees. Places around them repeat a row: scores of those are not
/// used.
static void find_rows(const AttentionArgs& args, AttentionBlock& block) {
  const int64_t first = block.seen.first;
  int64_t page = (block.begin + first) / args.page_tokens % args.pages;
  int64_t slot = (block.begin + first) % args.page_tokens;
  const int64_t stored = args.position + args.tokens - block.begin;
  const int64_t end = stored < kPositions + kPanelKeys ? stored : kPositions + kPanelKeys;
  for (int64_t j = first; j < end; ++j) {
    block.k[j] = args.k_pages[page] + slot * args.k_stride + args.kv_head_k_offset;
    if (j < kPositions) {
      block.v[j] = args.v_pages[page] + slot * args.v_stride + args.kv_head_v_offset;
    }
    if (++slot == args.page_tokens) {
      slot = 0;
      page = page + 1 == args.pages ? 0 : page + 1;
    }
  }
  for (int64_t j = 0; j < first; ++j) block.k[j] = block.k[first];
  for (int64_t j = end; j < kPositions + kPanelKeys; ++j) block.k[j] = block.k[end - 1];
}

/// panel[d][i] = element d of key `first` + i, kVecs vectors of keys.
template <int kVecs, CachedType kType>
static void transpose_keys(const AttentionArgs& args, const AttentionBlock& block, int64_t first,
                           float* panel) {
  for (int v = 0; v < kVecs; ++v) {
    const uint8_t* const* keys = block.k + first + v * kLanes;
    const uint8_t* const* values = block.v + first + v * kLanes;
    const bool has_values =
        first + v * kLanes >= block.seen.first && first + (v + 1) * kLanes <= block.seen.last;
    for (int64_t d = 0; d < args.head_dim; d += kLanes) {
      Vec m[kLanes];
      for (int i = 0; i < kLanes; ++i) {
        m[i] = vload_cached<kType>(keys[i], d, args.head_dim - d,
                                   cached_scale<kType>(keys[i], args.k_scales, d));
      }
      // Rows are too short and too many for the hardware's prefetchers.
      const int64_t at = d * cached_bytes(kType);
      for (int i = 0; i < kLanes; ++i) __builtin_prefetch(keys[i + kPanelKeys] + at, 0, 2);
      if (has_values) {
        for (int i = 0; i < kLanes; ++i) __builtin_prefetch(values[i] + at, 0, 2);
      }
      vtranspose(m);
      float* to = panel + d * kPanelKeys + v * kLanes;
      for (int i = 0; i < kLanes; ++i) vstore(to + i * kPanelKeys, m[i]);
    }
  }
}

template <int kRows, int kVecs>
static void score_tile(const AttentionArgs& args, AttentionBlock& block, int64_t row,
                       int64_t first) {
  Vec acc[kRows][kVecs];
  const float* q[kRows];
  for (int r = 0; r < kRows; ++r) {
    q[r] = block.q[row + r];
    for (int v = 0; v < kVecs; ++v) acc[r][v] = vset(0.0f);
  }
  const float* panel = args.workspace;
  for (int64_t d = 0; d < args.head_dim; ++d) {
    Vec keys[kVecs];
    for (int v = 0; v < kVecs; ++v) keys[v] = vload(panel + d * kPanelKeys + v * kLanes);
    for (int r = 0; r < kRows; ++r) {
      const Vec query = vset(q[r][d]);
      for (int v = 0; v < kVecs; ++v) acc[r][v] = vfma(query, keys[v], acc[r][v]);
    }
  }
  const Vec scale = vset(args.scale);
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVecs; ++v) {
      vstore(block.p[row + r] + first + v * kLanes, vmul(acc[r][v], scale));
    }
  }
}

template <int kVecs>
static void score_keys(const AttentionArgs& args, AttentionBlock& block, int64_t first) {
  if (args.k_type == CachedType::kF16) {
    transpose_keys<kVecs, CachedType::kF16>(args, block, first, args.workspace);
  } else if (args.k_type == CachedType::kQ8) {
    transpose_keys<kVecs, CachedType::kQ8>(args, block, first, args.workspace);
  } else {
    transpose_keys<kVecs, CachedType::kF32>(args, block, first, args.workspace);
  }
  int64_t row = block.token_begin * args.heads;
  const int64_t end = block.token_end * args.heads;
  for (; row + kQueryRows <= end; row += kQueryRows)
    score_tile<kQueryRows, kVecs>(args, block, row, first);
  for (; row + 4 <= end; row += 4) score_tile<4, kVecs>(args, block, row, first);
  for (; row + 2 <= end; row += 2) score_tile<2, kVecs>(args, block, row, first);
  for (; row < end; ++row) score_tile<1, kVecs>(args, block, row, first);
}

MF_INLINE float scalar_exp(float x) {
  float lanes[kLanes];
  vstore(lanes, vexp(vset(x)));
  return lanes[0];
}

/// Adds to a row's scores what depends on how far back a key is.
static void add_bias(const AttentionArgs& args, AttentionBlock& block, int64_t t, int64_t h,
                     SeenPart seen) {
  float* p = block.p[t * args.heads + h];
  const float* bias = args.bias + t * args.bias_stride + h * args.bias_extent;
  const int64_t own = args.position + t - block.begin;
  const int64_t nearest = own + 1 - args.bias_extent;
  for (int64_t j = nearest > seen.first ? nearest : seen.first; j < seen.last; ++j) {
    p[j] += bias[own - j];
  }
}

/// Turns a row's scores into probabilities relative to the new maximum; what was accumulated so far
/// must be scaled by the block's factor.
static void update_softmax(const AttentionPart& part, AttentionBlock& block, int64_t row,
                           SeenPart seen) {
  float* p = block.p[row];
  const int64_t begin = seen.first / kLanes * kLanes;
  const int64_t end = (seen.last + kLanes - 1) / kLanes * kLanes;
  for (int64_t j = begin; j < seen.first; ++j) p[j] = -__builtin_inff();
  for (int64_t j = seen.last; j < end; ++j) p[j] = -__builtin_inff();
  Vec most = vload(p + begin);
  for (int64_t j = begin + kLanes; j < end; j += kLanes) most = vmax(most, vload(p + j));
  const float block_largest = vreduce_max(most);
  const float before = part.largest[row];
  const float largest = block_largest > before ? block_largest : before;
  const Vec shift = vset(largest);
  Vec sum = vset(0.0f);
  for (int64_t j = begin; j < end; j += kLanes) {
    const Vec value = vexp(vsub(vload(p + j), shift));
    vstore(p + j, value);
    sum = vadd(sum, value);
  }
  // e^0 is exactly 1, and before the first block nothing was accumulated.
  float factor = 1.0f;
  if (largest != before) factor = part.total[row] == 0.0f ? 0.0f : scalar_exp(before - largest);
  part.total[row] = part.total[row] * factor + vreduce_add(sum);
  part.largest[row] = largest;
  block.factors[row] = factor;
}

/// out = factor * out + sum over seen positions in order of p * v: kVecs vectors of kRows rows.
template <int kRows, int kVecs, bool kWhole, CachedType kType>
static void value_tile(const AttentionArgs& args, const AttentionBlock& block, int64_t row,
                       SeenPart seen, int64_t d) {
  Vec acc[kRows][kVecs];
  float* out = args.part.out + row * args.part.out_stride + d;
  for (int r = 0; r < kRows; ++r) {
    const Vec factor = vset(block.factors[row + r]);
    for (int v = 0; v < kVecs; ++v) {
      acc[r][v] = vmul(vload(out + r * args.part.out_stride + v * kLanes), factor);
    }
  }
  const float* p = block.p[row];
  for (int64_t j = seen.first; j < seen.last; ++j) {
    Vec values[kVecs];
    const Vec scale = cached_scale<kType>(block.v[j], args.v_scales, d);
    for (int v = 0; v < kVecs; ++v) {
      values[v] = vload_cached<kType>(block.v[j], d + v * kLanes,
                                      kWhole ? int64_t{kLanes} : args.v_head_dim - d, scale);
    }
    for (int r = 0; r < kRows; ++r) {
      const Vec weight = vset(p[r * kPositions + j]);
      for (int v = 0; v < kVecs; ++v) acc[r][v] = vfma(weight, values[v], acc[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVecs; ++v) {
      vstore(out + r * args.part.out_stride + v * kLanes, acc[r][v]);
    }
  }
}

template <int kVecs, bool kWhole, CachedType kType>
static void add_values(const AttentionArgs& args, const AttentionBlock& block, int64_t row,
                       int64_t end, SeenPart seen, int64_t d) {
  for (; row + kQueryRows <= end; row += kQueryRows) {
    value_tile<kQueryRows, kVecs, kWhole, kType>(args, block, row, seen, d);
  }
  for (; row + 4 <= end; row += 4) value_tile<4, kVecs, kWhole, kType>(args, block, row, seen, d);
  for (; row + 2 <= end; row += 2) value_tile<2, kVecs, kWhole, kType>(args, block, row, seen, d);
  for (; row < end; ++row) value_tile<1, kVecs, kWhole, kType>(args, block, row, seen, d);
}

/// The rows of tokens [first, last), which see the same positions.
template <CachedType kType>
static void add_values_of(const AttentionArgs& args, const AttentionBlock& block, int64_t first,
                          int64_t last, SeenPart seen) {
  const int64_t row = first * args.heads;
  const int64_t end = last * args.heads;
  int64_t d = 0;
  for (; d + kPanelVecs * kLanes <= args.v_head_dim; d += kPanelVecs * kLanes) {
    add_values<kPanelVecs, true, kType>(args, block, row, end, seen, d);
  }
  for (; d < args.v_head_dim; d += kLanes) {
    add_values<1, false, kType>(args, block, row, end, seen, d);
  }
}

static void attend_block(const AttentionArgs& args, AttentionBlock& block) {
  find_rows(args, block);
  for (int64_t first = block.seen.first / kLanes * kLanes; first < block.seen.last;) {
    const bool is_narrow = first + kLanes >= block.seen.last;
    if (is_narrow) {
      score_keys<1>(args, block, first);
    } else {
      score_keys<kPanelVecs>(args, block, first);
    }
    first += is_narrow ? kLanes : kPanelKeys;
  }
  for (int64_t t = block.token_begin; t < block.token_end; ++t) {
    const SeenPart seen = seen_by(args, t, block.begin);
    for (int64_t h = 0; h < args.heads; ++h) {
      if (args.bias != nullptr) add_bias(args, block, t, h, seen);
      update_softmax(args.part, block, t * args.heads + h, seen);
    }
  }
  // Tokens that see the same go together: all but those whose first or last block this is.
  for (int64_t t = block.token_begin; t < block.token_end;) {
    const SeenPart seen = seen_by(args, t, block.begin);
    int64_t next = t + 1;
    for (; next < block.token_end; ++next) {
      const SeenPart other = seen_by(args, next, block.begin);
      if (other.first != seen.first || other.last != seen.last) break;
    }
    if (args.v_type == CachedType::kF16) {
      add_values_of<CachedType::kF16>(args, block, t, next, seen);
    } else if (args.v_type == CachedType::kQ8) {
      add_values_of<CachedType::kQ8>(args, block, t, next, seen);
    } else {
      add_values_of<CachedType::kF32>(args, block, t, next, seen);
    }
    t = next;
  }
}

/// Finds who sees what of the block; false if nobody sees anything.
static bool look_at_block(const AttentionArgs& args, AttentionBlock& block) {
  block.seen = {kPositions, 0};
  block.token_begin = args.tokens;
  block.token_end = 0;
  for (int64_t t = 0; t < args.tokens; ++t) {
    const SeenPart seen = seen_by(args, t, block.begin);
    if (seen.first >= seen.last) continue;
    if (t < block.token_begin) block.token_begin = t;
    block.token_end = t + 1;
    if (seen.first < block.seen.first) block.seen.first = seen.first;
    if (seen.last > block.seen.last) block.seen.last = seen.last;
  }
  return block.token_begin < block.token_end;
}

static void attention(const AttentionArgs& args) {
  AttentionBlock block;
  for (int64_t row = 0; row < args.tokens * args.heads; ++row) {
    block.q[row] =
        args.q + row / args.heads * args.q_token_stride + row % args.heads * args.q_stride;
    args.part.largest[row] = -__builtin_inff();
    args.part.total[row] = 0.0f;
    float* out = args.part.out + row * args.part.out_stride;
    for (int64_t d = 0; d < args.part.out_stride; d += kLanes) vstore(out + d, vset(0.0f));
  }
  for (block.begin = args.begin; block.begin < args.end; block.begin += kPositions) {
    if (look_at_block(args, block)) attend_block(args, block);
  }
}

static void fold_row(const AttentionFoldArgs& args, int64_t row, float sink) {
  float* out =
      args.out + row / args.heads * args.out_token_stride + row % args.heads * args.out_stride;
  const int64_t n = args.v_head_dim;
  if (args.is_first) {
    // A sink counts as a score whose value is zero.
    args.largest[row] = sink;
    args.total[row] = args.sinks == nullptr ? 0.0f : 1.0f;
    for (int64_t d = 0; d < n; d += kLanes) vstore_some(out + d, vset(0.0f), n - d);
  }
  if (args.part.total[row] != 0.0f) {
    const float before = args.largest[row];
    const float now = args.part.largest[row];
    const float largest = now > before ? now : before;
    const Vec keep = vset(scalar_exp(before - largest));
    const Vec take = vset(scalar_exp(now - largest));
    const float* part = args.part.out + row * args.part.out_stride;
    for (int64_t d = 0; d < n; d += kLanes) {
      const Vec sum = vfma(vload(part + d), take, vmul(vload_some(out + d, n - d), keep));
      vstore_some(out + d, sum, n - d);
    }
    float totals[kLanes];
    vstore(totals, vfma(vset(args.part.total[row]), take, vmul(vset(args.total[row]), keep)));
    args.total[row] = totals[0];
    args.largest[row] = largest;
  }
  if (args.is_last) {
    const Vec inverse = vset(1.0f / args.total[row]);
    for (int64_t d = 0; d < n; d += kLanes) {
      vstore_some(out + d, vmul(vload_some(out + d, n - d), inverse), n - d);
    }
  }
}

/// The same for a row that has one segment and no sink, where both scales are 1.
static void finish_row(const AttentionFoldArgs& args, int64_t row) {
  float* out =
      args.out + row / args.heads * args.out_token_stride + row % args.heads * args.out_stride;
  const float* part = args.part.out + row * args.part.out_stride;
  const Vec inverse = vset(1.0f / args.part.total[row]);
  for (int64_t d = 0; d < args.v_head_dim; d += kLanes) {
    const Vec sum = vadd(vload(part + d), vset(0.0f));  // no negative zeros, as above
    vstore_some(out + d, vmul(sum, inverse), args.v_head_dim - d);
  }
}

static void attention_fold(const AttentionFoldArgs& args) {
  if (args.is_first && args.is_last && args.sinks == nullptr) {
    for (int64_t row = 0; row < args.tokens * args.heads; ++row) finish_row(args, row);
    return;
  }
  for (int64_t row = 0; row < args.tokens * args.heads; ++row) {
    fold_row(args, row,
             args.sinks == nullptr
                 ? -__builtin_inff()
                 : args.sinks[row / args.heads * args.sink_stride + row % args.heads]);
  }
}
