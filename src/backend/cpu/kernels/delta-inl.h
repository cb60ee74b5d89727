// Recurrences: the states of delta rules and of scans, and the short convolution before them.
// Included inside the namespace of one ISA; see kernels-inl.h.

static void l2_normalize(float* out, const float* x, int64_t n, float scale) {
  const Vec factor = vset(scale / scalar_sqrt(sum_of_squares(x, n) + 1e-6f));
  for (int64_t i = 0; i < n; i += kLanes) {
    vstore_some(out + i, vmul(vload_some(x + i, n - i), factor), n - i);
  }
}

// The state's columns do not know of each other. A strip of columns goes through all tokens of the
// call, and one pass over it both writes what token t leaves and reads what token t + 1 remembers.
// Sums go over key rows in order, each a chain of its own, so bits depend neither on the strip's
// width nor on where a call ends.
//
// Between its first and its last token a strip lives in a dense copy: in place its rows would share
// half of L1's sets, and their neighbours would belong to another thread.

/// Columns of a strip, in vectors: chains enough to fill the multiply-adders, and registers for
/// three values a vector.
constexpr int kStripVecs = kRegisters >= 32 ? 4 : 2;
/// A single token passes by the whole state once: wide strips read it in the order of memory.
constexpr int kWideStripVecs = kRegisters >= 32 ? 8 : 4;
static_assert(kStripVecs * kLanes <= kDeltaColumns);

/// Where a strip's rows are.
struct StripRows {
  float* data;
  int64_t stride;
};

template <int kVecs>
MF_INLINE Vec load_cells(const float* cells, int64_t left) {
  return kVecs == 1 ? vload_some(cells, left) : vload(cells);
}
template <int kVecs>
MF_INLINE void store_cells(float* cells, Vec v, int64_t left) {
  if (kVecs == 1) {
    vstore_some(cells, v, left);
  } else {
    vstore(cells, v);
  }
}

/// memory = S^T k, or S^T of the decayed key; copies S if the two places differ.
template <int kVecs>
static void recall(const RecurrenceArgs& args, const float* k, StripRows from, StripRows to,
                   int64_t left, Vec* memory) {
  const bool copies = from.data != to.data;
  for (int i = 0; i < kVecs; ++i) memory[i] = vset(0.0f);
  for (int64_t row = 0; row < args.key_dim; ++row) {
    const Vec key = vset(k[row]);
    for (int i = 0; i < kVecs; ++i) {
      const Vec cells = load_cells<kVecs>(from.data + row * from.stride + i * kLanes, left);
      if (copies) store_cells<kVecs>(to.data + row * to.stride + i * kLanes, cells, left);
      memory[i] = vfma(key, cells, memory[i]);
    }
  }
}

/// S = decay * S + k delta^T; sum = S^T q; then, if kNext, what the next token recalls.
template <int kVecs, StateRule kRule, bool kNext>
static void update(const RecurrenceArgs& args, int64_t token, StripRows from, StripRows to,
                   int64_t left, const Vec* delta_in, Vec* memory_out, Vec* sum_out) {
  constexpr bool kRows = kRule == StateRule::kRowDelta;
  const float* q = args.q + token * args.key_stride;
  const float* k = args.k + token * args.key_stride;
  const float* next_k = (kRows ? args.recall : args.k) + (token + 1) * args.key_stride;
  const float* decays = kRows ? args.decays + token * args.key_stride : nullptr;
  const Vec whole_decay = kRows ? vset(0.0f) : vset(args.decay[token]);
  Vec delta[kVecs];
  Vec memory[kVecs];
  Vec sum[kVecs];
  for (int i = 0; i < kVecs; ++i) {
    delta[i] = delta_in[i];
    memory[i] = vset(0.0f);
    sum[i] = vset(0.0f);
  }
  for (int64_t row = 0; row < args.key_dim; ++row) {
    const Vec key = vset(k[row]);
    const Vec query = vset(q[row]);
    const Vec decay = kRows ? vset(decays[row]) : whole_decay;
    const Vec next_key = kNext ? vset(next_k[row]) : key;
    for (int i = 0; i < kVecs; ++i) {
      const Vec old = load_cells<kVecs>(from.data + row * from.stride + i * kLanes, left);
      const Vec updated = vfma(key, delta[i], vmul(decay, old));
      store_cells<kVecs>(to.data + row * to.stride + i * kLanes, updated, left);
      sum[i] = vfma(query, updated, sum[i]);
      if (kNext) memory[i] = vfma(next_key, updated, memory[i]);
    }
  }
  for (int i = 0; i < kVecs; ++i) {
    memory_out[i] = memory[i];
    sum_out[i] = sum[i];
  }
}

/// The addition of token t to the state for a key of 1.
template <StateRule kRule>
MF_INLINE Vec delta_of(const RecurrenceArgs& args, int64_t t, Vec value, Vec memory) {
  const Vec beta = vset(args.beta[t]);
  if (kRule == StateRule::kScan) return vmul(beta, value);
  if (kRule == StateRule::kRowDelta) return vmul(beta, vsub(value, memory));
  return vmul(beta, vsub(value, vmul(vset(args.decay[t]), memory)));
}

/// All tokens, kVecs vectors of state columns from column `d`.
template <int kVecs, StateRule kRule>
static void strip_of_columns(const RecurrenceArgs& args, int64_t d) {
  constexpr bool kRecalls = kRule != StateRule::kScan;
  const int64_t left = args.end - d;
  const StripRows state = {args.state + d, args.value_dim};
  const StripRows dense = args.n == 1 ? state : StripRows{args.workspace, kVecs * kLanes};
  Vec memory[kVecs];
  if (kRecalls) {
    const float* first = kRule == StateRule::kRowDelta ? args.recall : args.k;
    recall<kVecs>(args, first, state, dense, left, memory);
  } else {
    for (int i = 0; i < kVecs; ++i) memory[i] = vset(0.0f);
  }
  for (int64_t t = 0; t < args.n; ++t) {
    const bool has_next = t + 1 < args.n;
    const float* v = args.v + t * args.v_stride + d;
    Vec delta[kVecs];
    for (int i = 0; i < kVecs; ++i) {
      // Rows of v lie far apart: no hardware prefetcher follows.
      if (has_next) __builtin_prefetch(v + args.v_stride + i * kLanes);
      delta[i] = delta_of<kRule>(args, t, vload_some(v + i * kLanes, left - i * kLanes), memory[i]);
    }
    const StripRows from = kRecalls || t > 0 ? dense : state;
    Vec sum[kVecs];
    if (has_next) {
      update<kVecs, kRule, kRecalls>(args, t, from, dense, left, delta, memory, sum);
    } else {
      update<kVecs, kRule, false>(args, t, from, state, left, delta, memory, sum);
    }
    float* out = args.out + t * args.out_stride + d;
    for (int i = 0; i < kVecs; ++i) {
      if (!kRecalls) {
        sum[i] = vfma(vset(args.skip), vload_some(v + i * kLanes, left - i * kLanes), sum[i]);
      }
      vstore_some(out + i * kLanes, sum[i], left - i * kLanes);
    }
  }
}

template <StateRule kRule>
static void all_strips(const RecurrenceArgs& args) {
  int64_t d = args.begin;
  if (args.n == 1) {
    constexpr int64_t kWide = kWideStripVecs * kLanes;
    for (; d + kWide <= args.end; d += kWide) strip_of_columns<kWideStripVecs, kRule>(args, d);
  }
  constexpr int64_t kStrip = kStripVecs * kLanes;
  for (; d + kStrip <= args.end; d += kStrip) strip_of_columns<kStripVecs, kRule>(args, d);
  for (; d < args.end; d += kLanes) strip_of_columns<1, kRule>(args, d);
}

static void recurrence(const RecurrenceArgs& args) {
  switch (args.rule) {
    case StateRule::kDelta:
      return all_strips<StateRule::kDelta>(args);
    case StateRule::kRowDelta:
      return all_strips<StateRule::kRowDelta>(args);
    case StateRule::kScan:
      return all_strips<StateRule::kScan>(args);
  }
  __builtin_unreachable();
}

static void row_decays(const RowDecayArgs& args) {
  const Vec rate = vset(args.rate);
  for (int64_t i = 0; i < args.n; i += kLanes) {
    const int64_t left = args.n - i;
    const Vec input = vadd(vload_some(args.a + i, left), vload_some(args.bias + i, left));
    const Vec log_decay =
        args.bound != 0.0f
            ? vmul(vset(args.bound), vactivate(vmul(rate, input), ActivationKind::kSigmoid))
            : vmul(-rate, vsoftplus(input));
    const Vec decay = vexp(log_decay);
    vstore_some(args.decays + i, decay, left);
    vstore_some(args.recall + i, vmul(decay, vload_some(args.k + i, left)), left);
  }
}

constexpr int kTapsMax = 16;
/// Channels that go through the tokens together: what they read of a token is worth a prefetch, and
/// their taps stay in L1.
constexpr int64_t kConvChannels = 256;

/// taps[j] = the j-th tap of kLanes channels from channel c.
MF_INLINE void load_taps(const CausalConvArgs& args, int64_t c, int64_t lanes, Vec* taps) {
  const float* w = args.weight + c * args.taps;
  if (args.taps == 4 && lanes == kLanes) {
    vload_deinterleaved4(w, taps);
    return;
  }
  for (int64_t j = 0; j < args.taps; ++j) {
    float column[kLanes] = {};
    for (int64_t i = 0; i < lanes; ++i) column[i] = w[i * args.taps + j];
    taps[j] = vload(column);
  }
}

/// The input `back` tokens before token t, from channel c.
MF_INLINE const float* conv_input(const CausalConvArgs& args, int64_t t, int64_t back, int64_t c) {
  if (t >= back) return args.x + (t - back) * args.x_stride + c;
  return args.state + (args.taps - 1 + t - back) * args.channels + c;
}

/// Channels [begin, end), at most kConvChannels of them, of all tokens. Sums begin with the oldest.
static void convolve(const CausalConvArgs& args, int64_t begin, int64_t end) {
  alignas(64) float taps[kTapsMax][kConvChannels];
  for (int64_t c = begin; c < end; c += kLanes) {
    Vec columns[kTapsMax];
    load_taps(args, c, end - c < kLanes ? end - c : kLanes, columns);
    for (int64_t j = 0; j < args.taps; ++j) vstore(taps[j] + (c - begin), columns[j]);
  }
  for (int64_t t = 0; t < args.n; ++t) {
    const float* inputs[kTapsMax];
    for (int64_t j = 0; j < args.taps; ++j) {
      inputs[j] = conv_input(args, t, args.taps - 1 - j, begin);
    }
    float* out = args.out + t * args.out_stride + begin;
    for (int64_t c = 0; c < end - begin; c += kLanes) {
      const int64_t left = end - begin - c;
      Vec sum = args.bias == nullptr ? vset(0.0f) : vload_some(args.bias + begin + c, left);
      for (int64_t j = 0; j < args.taps; ++j) {
        sum = vfma(vload(taps[j] + c), vload_some(inputs[j] + c, left), sum);
      }
      vstore_some(out + c, vactivate(sum, args.activation), left);
    }
  }
}

static void causal_conv(const CausalConvArgs& args) {
  for (int64_t c = args.begin; c < args.end; c += kConvChannels) {
    convolve(args, c, c + kConvChannels < args.end ? c + kConvChannels : args.end);
  }
  // The oldest first: a row is read before it is overwritten.
  for (int64_t j = 0; j + 1 < args.taps; ++j) {
    const float* from = conv_input(args, args.n, args.taps - 1 - j, 0);
    for (int64_t c = args.begin; c < args.end; c += kLanes) {
      vstore_some(args.state + j * args.channels + c, vload_some(from + c, args.end - c),
                  args.end - c);
    }
  }
}
