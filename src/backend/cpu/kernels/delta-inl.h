// The recurrences of gated DeltaNet: the state update and the short convolution before it.
// Included inside the namespace of one ISA; see kernels-inl.h.

/// out = x / sqrt(sum x^2 + 1e-6) * scale.
static void l2_normalize(float* out, const float* x, int64_t n, float scale) {
  const Vec factor = vset(scale / scalar_sqrt(sum_of_squares(x, n) + 1e-6f));
  for (int64_t i = 0; i < n; i += kLanes) {
    vstore_some(out + i, vmul(vload_some(x + i, n - i), factor), n - i);
  }
}

/// One token, kVecs vectors of state columns from column `d`: two passes over them.
template <int kVecs>
static void delta_columns(const GatedDeltaArgs& args, const float* q, const float* k, int64_t token,
                          int64_t d) {
  const int64_t stride = args.value_dim;
  const int64_t left = args.value_dim - d;
  const Vec decay = vset(args.decay[token]);
  const float* v = args.v + token * args.qkv_stride + d;
  float* state = args.state + d;
  Vec memory[kVecs];
  for (int i = 0; i < kVecs; ++i) memory[i] = vset(0.0f);
  for (int64_t row = 0; row < args.key_dim; ++row) {
    const Vec key = vset(k[row]);
    for (int i = 0; i < kVecs; ++i) {
      const Vec cells = vload_some(state + row * stride + i * kLanes, left - i * kLanes);
      memory[i] = vfma(key, cells, memory[i]);
    }
  }
  Vec delta[kVecs];
  Vec sum[kVecs];
  for (int i = 0; i < kVecs; ++i) {
    const Vec value = vload_some(v + i * kLanes, left - i * kLanes);
    delta[i] = vmul(vset(args.beta[token]), vsub(value, vmul(decay, memory[i])));
    sum[i] = vset(0.0f);
  }
  for (int64_t row = 0; row < args.key_dim; ++row) {
    const Vec key = vset(k[row]);
    const Vec query = vset(q[row]);
    for (int i = 0; i < kVecs; ++i) {
      float* cells = state + row * stride + i * kLanes;
      const Vec old = vload_some(cells, left - i * kLanes);
      const Vec updated = vfma(key, delta[i], vmul(decay, old));
      vstore_some(cells, updated, left - i * kLanes);
      sum[i] = vfma(query, updated, sum[i]);
    }
  }
  float* out = args.out + token * args.out_stride + d;
  for (int i = 0; i < kVecs; ++i) vstore_some(out + i * kLanes, sum[i], left - i * kLanes);
}

static void gated_delta(const GatedDeltaArgs& args) {
  constexpr int kVecs = 4;
  float* q = args.workspace;
  float* k = args.workspace + args.key_dim;
  const float q_scale = 1.0f / scalar_sqrt(static_cast<float>(args.key_dim));
  for (int64_t t = 0; t < args.n; ++t) {
    l2_normalize(q, args.q + t * args.qkv_stride, args.key_dim, q_scale);
    l2_normalize(k, args.k + t * args.qkv_stride, args.key_dim, 1.0f);
    int64_t d = 0;
    for (; d + kVecs * kLanes <= args.value_dim; d += kVecs * kLanes) {
      delta_columns<kVecs>(args, q, k, t, d);
    }
    for (; d < args.value_dim; d += kLanes) delta_columns<1>(args, q, k, t, d);
  }
}

constexpr int kTapsMax = 8;

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

static void causal_conv(const CausalConvArgs& args) {
  const int64_t past = args.taps - 1;
  for (int64_t c = args.begin; c < args.end; c += kLanes) {
    const int64_t left = args.end - c;
    Vec taps[kTapsMax];
    load_taps(args, c, left < kLanes ? left : kLanes, taps);
    Vec window[kTapsMax];  // the inputs under the taps, oldest first
    for (int64_t j = 0; j < past; ++j) {
      window[j] = vload_some(args.state + j * args.channels + c, left);
    }
    for (int64_t t = 0; t < args.n; ++t) {
      window[past] = vload_some(args.x + t * args.x_stride + c, left);
      Vec sum = vset(0.0f);
      for (int64_t j = 0; j <= past; ++j) sum = vfma(taps[j], window[j], sum);
      vstore_some(args.out + t * args.out_stride + c, vactivate(sum, ActivationKind::kSilu), left);
      for (int64_t j = 0; j < past; ++j) window[j] = window[j + 1];
    }
    for (int64_t j = 0; j < past; ++j) {
      vstore_some(args.state + j * args.channels + c, window[j], left);
    }
  }
}
