// The choice of keys: scores of candidates by index heads, and the best of a row; layer_norm;
// pools. Included inside the namespace of one ISA, behind its vectors and math; see kernels-inl.h.
//
// A dot product goes over dimensions in order, keys lying across lanes; heads are added in order.
// So a score depends on its query and its key alone.

constexpr int kPanelVecs = 2;
constexpr int kPanelKeys = kPanelVecs * kLanes;
static_assert(kPanelKeys <= kIndexPanelKeys);
/// Heads of the largest register tile.
constexpr int kIndexHeads = kRegisters >= 32 ? 8 : 4;

/// Row pointers of a panel of keys and of the one behind it, to fetch it ahead.
struct IndexPanel {
  const uint8_t* keys[2 * kPanelKeys];  // places behind the last key repeat it
};

static void find_index_rows(const IndexScoresArgs& args, int64_t first, IndexPanel& panel) {
  const int64_t stored = (args.position + args.tokens) / args.key_tokens - first;
  const int64_t end = stored < 2 * kPanelKeys ? stored : 2 * kPanelKeys;
  int64_t page = first / args.page_keys % args.pages;
  int64_t slot = first % args.page_keys;
  for (int64_t j = 0; j < end; slot = 0) {
    const uint8_t* key = args.k_pages[page] + slot * args.k_stride;
    const int64_t run = j + args.page_keys - slot < end ? j + args.page_keys - slot : end;
    for (; j < run; ++j, key += args.k_stride) panel.keys[j] = key;
    page = page + 1 == args.pages ? 0 : page + 1;
  }
  for (int64_t j = end; j < 2 * kPanelKeys; ++j) panel.keys[j] = panel.keys[end - 1];
}

/// Elements of a key from `d` on, of which `left` are left.
template <bool kIsF16>
MF_INLINE Vec vload_key(const uint8_t* key, int64_t d, int64_t left) {
  if (kIsF16) {
    const uint8_t* p = key + 2 * d;
    return left < kLanes ? vload_f16_partial(p, left) : vload_f16(p);
  }
  return vload_some(reinterpret_cast<const float*>(key) + d, left);
}

/// args.workspace[d][i] = element d of the panel's key i.
template <bool kIsF16>
static void transpose_index_keys(const IndexScoresArgs& args, const IndexPanel& panel) {
  for (int v = 0; v < kPanelVecs; ++v) {
    const uint8_t* const* keys = panel.keys + v * kLanes;
    for (int64_t d = 0; d < args.head_dim; d += kLanes) {
      Vec m[kLanes];
      for (int i = 0; i < kLanes; ++i) {
        m[i] = vload_key<kIsF16>(keys[i], d, args.head_dim - d);
      }
      const int64_t at = d * (kIsF16 ? 2 : 4);
      for (int i = 0; i < kLanes; ++i) __builtin_prefetch(keys[i + kPanelKeys] + at, 0, 2);
      vtranspose(m);
      float* to = args.workspace + d * kPanelKeys + v * kLanes;
      for (int i = 0; i < kLanes; ++i) vstore(to + i * kPanelKeys, m[i]);
    }
  }
}

/// The sums of a group's heads so far.
struct IndexSums {
  Vec of[kPanelVecs];
};

/// Adds the products of heads [head, head + kHeads) to their groups' sums; `out` is of the token's
/// group 0 and the panel's first key.
template <int kHeads>
MF_INLINE void add_index_heads(const IndexScoresArgs& args, int64_t token, int64_t head,
                               const Vec (*products)[kPanelVecs], IndexSums& sums, float* out) {
  // Divisions take as long as a head's products.
  int64_t group = head / args.heads_per_group;
  int64_t in_group = head % args.heads_per_group;
  for (int r = 0; r < kHeads; ++r) {
    if (in_group == 0) {
      for (int v = 0; v < kPanelVecs; ++v) sums.of[v] = vset(0.0f);
    }
    if (args.weights != nullptr) {
      // The greater of a dot and 0; NaN stays, as it is the second operand.
      const Vec weight = vset(args.weights[token * args.weight_stride + head + r]);
      for (int v = 0; v < kPanelVecs; ++v) {
        sums.of[v] = vfma(weight, vmax(vset(0.0f), products[r][v]), sums.of[v]);
      }
    } else {
      for (int v = 0; v < kPanelVecs; ++v) {
        const Vec dot = args.relu ? vmax(vset(0.0f), products[r][v]) : products[r][v];
        sums.of[v] = vadd(sums.of[v], dot);
      }
    }
    if (++in_group < args.heads_per_group) continue;
    for (int v = 0; v < kPanelVecs; ++v) {
      // No negative zeros, which are equal to zero; what is no number is the second operand.
      const Vec sum = vmin(vadd(sums.of[v], vset(0.0f)), vset(__builtin_inff()));
      vstore(out + group * args.out_group_stride + v * kLanes, sum);
    }
    in_group = 0;
    ++group;
  }
}

/// Heads [head, head + kHeads) of a token over the panel.
template <int kHeads>
static void score_index_heads(const IndexScoresArgs& args, int64_t token, int64_t head,
                              IndexSums& sums, float* out) {
  Vec acc[kHeads][kPanelVecs];
  const float* q[kHeads];
  for (int r = 0; r < kHeads; ++r) {
    q[r] = args.q + token * args.q_token_stride + (head + r) * args.q_stride;
    for (int v = 0; v < kPanelVecs; ++v) acc[r][v] = vset(0.0f);
  }
  for (int64_t d = 0; d < args.head_dim; ++d) {
    Vec keys[kPanelVecs];
    for (int v = 0; v < kPanelVecs; ++v) {
      keys[v] = vload(args.workspace + d * kPanelKeys + v * kLanes);
    }
    for (int r = 0; r < kHeads; ++r) {
      const Vec query = vset(q[r][d]);
      for (int v = 0; v < kPanelVecs; ++v) acc[r][v] = vfma(query, keys[v], acc[r][v]);
    }
  }
  add_index_heads<kHeads>(args, token, head, acc, sums, out);
}

static void score_index_token(const IndexScoresArgs& args, int64_t token, float* out) {
  IndexSums sums;
  for (int v = 0; v < kPanelVecs; ++v) sums.of[v] = vset(0.0f);
  int64_t head = 0;
  for (; head + kIndexHeads <= args.heads; head += kIndexHeads) {
    score_index_heads<kIndexHeads>(args, token, head, sums, out);
  }
  for (; head + 4 <= args.heads; head += 4) score_index_heads<4>(args, token, head, sums, out);
  for (; head + 2 <= args.heads; head += 2) score_index_heads<2>(args, token, head, sums, out);
  for (; head < args.heads; ++head) score_index_heads<1>(args, token, head, sums, out);
}

/// Heads of a token that may be too few for the time that turning keys takes.
constexpr int kFewIndexHeads = 4;

/// Half `part` of the columns in `from`, those of each vector of keys by themselves; `q` is of the
/// first column and head.
template <class Columns>
MF_INLINE void add_index_columns(const uint8_t* from, int part, const float* q, int64_t q_stride,
                                 Vec (*products)[kPanelVecs]) {
  constexpr int kHalf = Columns::kCount / 2;
  q += part * kHalf;
  from += Columns::at(part * kHalf);
  for (int c = 0; c < kHalf; ++c) {
    Vec keys[kPanelVecs];
    for (int v = 0; v < kPanelVecs; ++v) {
      keys[v] = vload_f16(from + v * Columns::kBytes + Columns::at(c));
    }
    for (int r = 0; r < kFewIndexHeads; ++r) {
      const Vec query = vset(q[r * q_stride + c]);
      for (int v = 0; v < kPanelVecs; ++v) products[r][v] = vfma(query, keys[v], products[r][v]);
    }
  }
}

/// Columns from dimension d on of the panel behind this one are on their way.
MF_INLINE void fetch_index_keys(const IndexPanel& panel, int64_t d) {
  constexpr int64_t kLine = 32;
  if (d % kLine != 0) return;
  for (int i = 0; i < kPanelKeys; ++i) {
    __builtin_prefetch(panel.keys[i + kPanelKeys] + 2 * d, 0, 2);
  }
}

/// index_scores() of one token with few heads: the next panel is turned among the products of the
/// last one, which wait for each other. The same sums in the same order.
template <class Columns>
[[gnu::noinline]] static void score_few_heads(const IndexScoresArgs& all) {
  const IndexScoresArgs args = all;  // which no store can change
  auto* now = reinterpret_cast<uint8_t*>(args.workspace);
  uint8_t* then = now + args.head_dim * 2 * kPanelKeys;
  IndexPanel panel;
  find_index_rows(args, args.begin, panel);
  constexpr int64_t kStep = kPanelVecs * Columns::kBytes;  // columns of a panel
  for (int64_t d = 0; d < args.head_dim; d += Columns::kCount) {
    for (int v = 0; v < kPanelVecs; ++v) {
      Columns::turn(panel.keys + v * kLanes, 2 * d,
                    now + d / Columns::kCount * kStep + v * Columns::kBytes);
    }
  }
  for (int64_t first = args.begin; first < args.end; first += kPanelKeys) {
    // Behind the last panel the same once more, which is cheaper than asking at each step.
    if (first + kPanelKeys < args.end) find_index_rows(args, first + kPanelKeys, panel);
    Vec products[kFewIndexHeads][kPanelVecs];
    for (int r = 0; r < kFewIndexHeads; ++r) {
      for (int v = 0; v < kPanelVecs; ++v) products[r][v] = vset(0.0f);
    }
    for (int64_t d = 0; d < args.head_dim; d += Columns::kCount) {
      const uint8_t* from = now + d / Columns::kCount * kStep;
      uint8_t* to = then + d / Columns::kCount * kStep;
      fetch_index_keys(panel, d);
      MF_UNROLL
      for (int v = 0; v < kPanelVecs; ++v) {
        Columns::turn(panel.keys + v * kLanes, 2 * d, to + v * Columns::kBytes);
        add_index_columns<Columns>(from, v, args.q + d, args.q_stride, products);
      }
    }
    IndexSums sums;
    add_index_heads<kFewIndexHeads>(args, 0, 0, products, sums, args.out + first - args.begin);
    uint8_t* const free = now;
    now = then;
    then = free;
  }
}

/// Whether score_few_heads() takes it.
template <class Columns>
MF_INLINE bool try_few_heads(const IndexScoresArgs& args) {
  if constexpr (Columns::kAreFast) {
    static_assert(kPanelVecs == 2 &&
                  2 * 2 * kPanelKeys <= kIndexPanelKeys * static_cast<int>(sizeof(float)));
    if (args.tokens == 1 && args.heads == kFewIndexHeads && args.keys_are_f16 &&
        args.head_dim % Columns::kCount == 0) {
      score_few_heads<Columns>(args);
      return true;
    }
  }
  return false;
}

static void index_scores(const IndexScoresArgs& args) {
  if (try_few_heads<HalfColumns>(args)) return;
  for (int64_t first = args.begin; first < args.end; first += kPanelKeys) {
    IndexPanel panel;
    find_index_rows(args, first, panel);
    if (args.keys_are_f16) {
      transpose_index_keys<true>(args, panel);
    } else {
      transpose_index_keys<false>(args, panel);
    }
    for (int64_t t = 0; t < args.tokens; ++t) {
      if (first >= (args.position + t + 1) / args.key_tokens) continue;
      score_index_token(args, t, args.out + t * args.out_token_stride + first - args.begin);
    }
  }
}

/// to[c] = the best of candidate c's `unit` scores, of which there are `count` in all.
static void best_of_units(float* to, const float* scores, int64_t count, int64_t unit) {
  for (int64_t begin = 0; begin < count; begin += unit) {
    const int64_t end = begin + unit < count ? begin + unit : count;
    int64_t j = begin;
    float best = scores[j];
    if (j + kLanes <= end) {
      Vec most = vload(scores + j);
      for (j += kLanes; j + kLanes <= end; j += kLanes) most = vmax(most, vload(scores + j));
      best = vreduce_max(most);
    }
    for (; j < end; ++j) best = scores[j] > best ? scores[j] : best;
    *to++ = best;
  }
}

/// As integers, floats that are numbers keep their order.
MF_INLINE int32_t ordered_bits(float value) {
  int32_t bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  return bits ^ (bits >> 31 & 0x7fffffff);
}

MF_INLINE int64_t count_from(const int32_t* order, int64_t n, int32_t least) {
  int32_t count = 0;  // of an index that has 32 bits
  for (int64_t i = 0; i < n; ++i) count += order[i] >= least ? 1 : 0;
  return count;
}

/// The highest number that at least `most` of n > most are not below.
static int32_t find_threshold(const int32_t* order, int64_t n, int64_t most) {
  int32_t low = order[0];
  int32_t high = order[0];
  for (int64_t i = 1; i < n; ++i) {
    low = order[i] < low ? order[i] : low;
    high = order[i] > high ? order[i] : high;
  }
  while (low < high) {
    const auto middle = static_cast<int32_t>((int64_t{low} + high + 1) >> 1);
    const int64_t count = count_from(order, n, middle);
    if (count == most) return middle;
    if (count > most) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

static void choose_best(const ChooseArgs& args) {
  const int64_t n = args.candidates - args.recent;
  const int64_t most = args.most - args.recent;
  int32_t* order = args.workspace;
  int32_t* to = args.ids;
  if (most > 0) {
    for (int64_t i = 0; i < n; ++i) order[i] = ordered_bits(args.scores[i]);
    const int32_t threshold = find_threshold(order, n, most);
    int64_t equal = most - (threshold == 0x7fffffff ? 0 : count_from(order, n, threshold + 1));
    // The places behind what is chosen are overwritten by the next one, or by recent candidates.
    int64_t taken = 0;
    for (int64_t i = 0; taken < most; ++i) {
      const bool is_equal = order[i] == threshold && equal > 0;
      to[taken] = static_cast<int32_t>(i);
      taken += order[i] > threshold || is_equal ? 1 : 0;
      equal -= is_equal ? 1 : 0;
    }
    to += most;
  }
  for (int64_t c = n; c < args.candidates; ++c) *to++ = static_cast<int32_t>(c);
}

/// out = (x - mean) / sqrt(mean((x - mean)^2) + eps) * weight.
static void layer_norm(float* out, const float* x, const float* weight, int64_t n, float eps) {
  Vec sums = vset(0.0f);
  for (int64_t i = 0; i < n; i += kLanes) sums = vadd(sums, vload_some(x + i, n - i));
  const float mean = vreduce_add(sums) / static_cast<float>(n);
  Vec squares = vset(0.0f);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Vec value = vsub(vload(x + i), vset(mean));
    squares = vfma(value, value, squares);
  }
  float square = vreduce_add(squares);
  for (; i < n; ++i) square += (x[i] - mean) * (x[i] - mean);
  const Vec scale = vset(1.0f / scalar_sqrt(square / static_cast<float>(n) + eps));
  for (i = 0; i < n; i += kLanes) {
    const Vec value = vmul(vsub(vload_some(x + i, n - i), vset(mean)), scale);
    vstore_some(out + i, vmul(value, vload_some(weight + i, n - i)), n - i);
  }
}

/// The highest gate first, so that no power overflows.
static void pool(const PoolArgs& args) {
  for (int64_t i = 0; i < args.n; i += kLanes) {
    const int64_t left = args.n - i;
    const auto gate = [&](int64_t s) {
      return vadd(vload_some(args.gates[s] + i, left), vload_some(args.biases[s] + i, left));
    };
    Vec most = vset(0.0f);
    for (int64_t s = 0; args.gates != nullptr && s < args.count; ++s) {
      most = s == 0 ? gate(s) : vmax(most, gate(s));
    }
    Vec total = vset(0.0f);
    Vec sum = vset(0.0f);
    for (int64_t s = 0; s < args.count; ++s) {
      const Vec share = args.gates == nullptr ? vset(1.0f) : vexp(vsub(gate(s), most));
      total = vadd(total, share);
      sum = vfma(share, vload_some(args.x[s] + i, left), sum);
    }
    vstore_some(args.out + i, vdiv(sum, total), left);
  }
}

constexpr SelectKernels make_select_kernels() {
  return {.index_scores = index_scores,
          .best_of_units = best_of_units,
          .choose_best = choose_best,
          .layer_norm = layer_norm,
          .pool = pool};
}
