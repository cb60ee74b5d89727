// Softmax attention of one token's query heads over paged keys and values.
// Included inside the namespace of one ISA; see kernels-inl.h.
//
// Online softmax over blocks of kPositions, whose borders lie at multiples of kPositions: what a
// token computes depends on its position alone, not on the chunk it came in. `out` accumulates.

constexpr int kPositions = 32;
constexpr int kAttentionHeadsMax = 4;
constexpr int kValueVecs = 4;

struct AttentionBlock {
  int64_t count;
  const float* k[kPositions];
  const float* v[kPositions];
  float p[kAttentionHeadsMax][kPositions];  // scores, then probabilities
};

static void find_rows(const AttentionArgs& args, int64_t start, AttentionBlock& block) {
  const int64_t left = args.length - start;
  block.count = left < kPositions ? left : kPositions;
  int64_t page = start / args.page_tokens;
  int64_t slot = start % args.page_tokens;
  for (int64_t j = 0; j < block.count; ++j) {
    block.k[j] = args.k_pages[page] + slot * args.k_stride + args.kv_head_k_offset;
    block.v[j] = args.v_pages[page] + slot * args.v_stride + args.kv_head_v_offset;
    if (++slot == args.page_tokens) {
      slot = 0;
      ++page;
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
static void score_block(const AttentionArgs& args, const float* q, AttentionBlock& block) {
  constexpr int kKeys = kHeads == 1 ? 4 : 2;
  int64_t j = 0;
  for (; j + kKeys <= block.count; j += kKeys) {
    score_tile<kHeads, kKeys>(args, q, block.k, block.p, j);
  }
  for (; j < block.count; ++j) score_tile<kHeads, 1>(args, q, block.k, block.p, j);
}

struct Softmax {
  float largest;
  float total;
};

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

template <int kVecs>
static void accumulate_columns(float* out, const float* p, const AttentionBlock& block, int64_t d,
                               float factor, int64_t left) {
  Vec acc[kVecs];
  for (int v = 0; v < kVecs; ++v) {
    const int64_t at = d + v * kLanes;
    acc[v] = vmul(vload_some(out + at, left - v * kLanes), vset(factor));
  }
  for (int64_t j = 0; j < block.count; ++j) {
    const Vec weight = vset(p[j]);
    for (int v = 0; v < kVecs; ++v) {
      const int64_t at = d + v * kLanes;
      acc[v] = vfma(weight, vload_some(block.v[j] + at, left - v * kLanes), acc[v]);
    }
  }
  for (int v = 0; v < kVecs; ++v) {
    vstore_some(out + d + v * kLanes, acc[v], left - v * kLanes);
  }
}

static void accumulate_values(const AttentionArgs& args, float* out, const float* p,
                              const AttentionBlock& block, float factor) {
  const int64_t n = args.v_head_dim;
  int64_t d = 0;
  for (; d + kValueVecs * kLanes <= n; d += kValueVecs * kLanes) {
    accumulate_columns<kValueVecs>(out, p, block, d, factor, n - d);
  }
  for (; d < n; d += kLanes) accumulate_columns<1>(out, p, block, d, factor, n - d);
}

template <int kHeads>
static void attend(const AttentionArgs& args, const float* q, float* out) {
  Softmax softmax[kHeads];
  for (int h = 0; h < kHeads; ++h) {
    softmax[h] = {-__builtin_inff(), 0.0f};
    for (int64_t d = 0; d < args.v_head_dim; ++d) out[h * args.out_stride + d] = 0.0f;
  }
  AttentionBlock block;
  for (int64_t start = 0; start < args.length; start += kPositions) {
    find_rows(args, start, block);
    score_block<kHeads>(args, q, block);
    for (int h = 0; h < kHeads; ++h) {
      const float factor = update_softmax(softmax[h], block.p[h], block.count);
      accumulate_values(args, out + h * args.out_stride, block.p[h], block, factor);
    }
  }
  for (int h = 0; h < kHeads; ++h) {
    float* row = out + h * args.out_stride;
    const float inverse = 1.0f / softmax[h].total;
    for (int64_t d = 0; d < args.v_head_dim; ++d) row[d] *= inverse;
  }
}

static void attention(const AttentionArgs& args) {
  int64_t h = 0;
  for (; h + 4 <= args.heads; h += 4) {
    attend<4>(args, args.q + h * args.q_stride, args.out + h * args.out_stride);
  }
  for (; h + 2 <= args.heads; h += 2) {
    attend<2>(args, args.q + h * args.q_stride, args.out + h * args.out_stride);
  }
  for (; h < args.heads; ++h) {
    attend<1>(args, args.q + h * args.q_stride, args.out + h * args.out_stride);
  }
}
