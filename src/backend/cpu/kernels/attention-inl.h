// Softmax attention of one token's query heads over paged keys and values.
// Included inside the namespace of one ISA; see kernels-inl.h.
//
// Online softmax over blocks of kPositions, whose borders lie at multiples of kPositions: what a
// token computes depends on its position alone, not on the chunk it came in. `out` accumulates.

constexpr int kPositions = 32;

struct Softmax {
  float largest;
  float total;
};

struct AttentionBlock {
  int64_t count;
  const float* k[kPositions];
  const float* v[kPositions];
  float p[kAttentionHeadsMax][kPositions];  // scores, then probabilities
  Softmax softmax[kAttentionHeadsMax];
  float factors[kAttentionHeadsMax];  // of what was accumulated before this block
};

/// Rows of the positions from `start` to the next border.
static void find_rows(const AttentionArgs& args, int64_t start, AttentionBlock& block) {
  const int64_t border = (start / kPositions + 1) * kPositions;
  block.count = (border < args.end ? border : args.end) - start;
  int64_t page = start / args.page_tokens % args.pages;
  int64_t slot = start % args.page_tokens;
  for (int64_t j = 0; j < block.count; ++j) {
    block.k[j] = args.k_pages[page] + slot * args.k_stride + args.kv_head_k_offset;
    block.v[j] = args.v_pages[page] + slot * args.v_stride + args.kv_head_v_offset;
    if (++slot == args.page_tokens) {
      slot = 0;
      page = page + 1 == args.pages ? 0 : page + 1;
    }
  }
}

/// Scores of kHeads heads against kKeys keys; each one accumulates like vdot.
template <int kHeads, int kKeys>
static void score_tile(const AttentionArgs& args, const float* q, const float* const* k,
                       float (*p)[kPositions], int64_t j) {
  Vec acc[kHeads][kKeys];
  for (int h = 0; h < kHeads; ++h) {
    for (int i = 0; i < kKeys; ++i) acc[h][i] = vset(0.0f);
  }
  const int64_t n = args.head_dim;
  for (int64_t d = 0; d < n; d += kLanes) {
    Vec queries[kHeads];
    for (int h = 0; h < kHeads; ++h) queries[h] = vload_some(q + h * args.q_stride + d, n - d);
    for (int i = 0; i < kKeys; ++i) {
      const Vec key = vload_some(k[j + i] + d, n - d);
      for (int h = 0; h < kHeads; ++h) acc[h][i] = vfma(queries[h], key, acc[h][i]);
    }
  }
  for (int h = 0; h < kHeads; ++h) {
    for (int i = 0; i < kKeys; ++i) p[h][j + i] = vreduce_add(acc[h][i]) * args.scale;
  }
}

template <int kHeads>
static void score_heads(const AttentionArgs& args, int64_t head, AttentionBlock& block) {
  constexpr int kKeys = kRegisters >= 32 || kHeads < 4 ? 4 : 2;
  const float* q = args.q + head * args.q_stride;
  float(*p)[kPositions] = block.p + head;
  int64_t j = 0;
  for (; j + kKeys <= block.count; j += kKeys) {
    score_tile<kHeads, kKeys>(args, q, block.k, p, j);
  }
  for (; j < block.count; ++j) score_tile<kHeads, 1>(args, q, block.k, p, j);
}

/// Turns scores into probabilities relative to the new maximum; returns the factor that what was
/// accumulated so far must be scaled by.
static float update_softmax(Softmax& softmax, float* p, int64_t count) {
  for (int64_t j = count; j < kPositions; ++j) p[j] = -__builtin_inff();
  Vec most = vload(p);
  for (int j = kLanes; j < kPositions; j += kLanes) most = vmax(most, vload(p + j));
  const float block_largest = vreduce_max(most);
  const float largest = block_largest > softmax.largest ? block_largest : softmax.largest;
  Vec sum = vset(0.0f);
  for (int j = 0; j < kPositions; j += kLanes) {
    const Vec value = vexp(vsub(vload(p + j), vset(largest)));
    vstore(p + j, value);
    sum = vadd(sum, value);
  }
  float factors[kLanes];
  vstore(factors, vexp(vset(softmax.largest - largest)));
  softmax.total = softmax.total * factors[0] + vreduce_add(sum);
  softmax.largest = largest;
  return factors[0];
}

/// out = factor * out + sum over positions in order of p * v, kVecs vectors of kHeads heads.
template <int kHeads, int kVecs>
static void value_tile(const AttentionArgs& args, int64_t head, const AttentionBlock& block,
                       int64_t d) {
  Vec acc[kHeads][kVecs];
  float* out = args.out + head * args.out_stride + d;
  const int64_t left = args.v_head_dim - d;
  for (int h = 0; h < kHeads; ++h) {
    const Vec factor = vset(block.factors[head + h]);
    for (int v = 0; v < kVecs; ++v) {
      const float* from = out + h * args.out_stride + v * kLanes;
      acc[h][v] = vmul(vload_some(from, left - v * kLanes), factor);
    }
  }
  for (int64_t j = 0; j < block.count; ++j) {
    Vec values[kVecs];
    for (int v = 0; v < kVecs; ++v) {
      values[v] = vload_some(block.v[j] + d + v * kLanes, left - v * kLanes);
    }
    for (int h = 0; h < kHeads; ++h) {
      const Vec weight = vset(block.p[head + h][j]);
      for (int v = 0; v < kVecs; ++v) acc[h][v] = vfma(weight, values[v], acc[h][v]);
    }
  }
  for (int h = 0; h < kHeads; ++h) {
    for (int v = 0; v < kVecs; ++v) {
      float* to = out + h * args.out_stride + v * kLanes;
      vstore_some(to, acc[h][v], left - v * kLanes);
    }
  }
}

template <int kHeads>
static void accumulate_heads(const AttentionArgs& args, int64_t head, const AttentionBlock& block) {
  constexpr int kVecs = kRegisters >= 32 || kHeads < 4 ? 4 : 2;
  const int64_t n = args.v_head_dim;
  int64_t d = 0;
  for (; d + kVecs * kLanes <= n; d += kVecs * kLanes) {
    value_tile<kHeads, kVecs>(args, head, block, d);
  }
  for (; d < n; d += kLanes) value_tile<kHeads, 1>(args, head, block, d);
}

/// All heads go through a block together, so that its keys and values are read once from memory.
static void attend_block(const AttentionArgs& args, AttentionBlock& block) {
  int64_t h = 0;
  for (; h + 4 <= args.heads; h += 4) score_heads<4>(args, h, block);
  for (; h + 2 <= args.heads; h += 2) score_heads<2>(args, h, block);
  for (; h < args.heads; ++h) score_heads<1>(args, h, block);
  for (h = 0; h < args.heads; ++h) {
    block.factors[h] = update_softmax(block.softmax[h], block.p[h], block.count);
  }
  for (h = 0; h + 4 <= args.heads; h += 4) accumulate_heads<4>(args, h, block);
  for (; h + 2 <= args.heads; h += 2) accumulate_heads<2>(args, h, block);
  for (; h < args.heads; ++h) accumulate_heads<1>(args, h, block);
}

static void attention(const AttentionArgs& args) {
  AttentionBlock block;
  for (int64_t h = 0; h < args.heads; ++h) {
    // A sink counts as a score whose value is zero.
    block.softmax[h] = {-__builtin_inff(), 0.0f};
    if (args.sinks != nullptr) block.softmax[h] = {args.sinks[h], 1.0f};
    for (int64_t d = 0; d < args.v_head_dim; ++d) args.out[h * args.out_stride + d] = 0.0f;
  }
  for (int64_t start = args.begin; start < args.end; start += block.count) {
    find_rows(args, start, block);
    attend_block(args, block);
  }
  for (int64_t h = 0; h < args.heads; ++h) {
    float* row = args.out + h * args.out_stride;
    const float inverse = 1.0f / block.softmax[h].total;
    for (int64_t d = 0; d < args.v_head_dim; ++d) row[d] *= inverse;
  }
}
