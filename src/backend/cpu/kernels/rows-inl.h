// Element-wise kernels and reductions over single rows.
// Included inside the namespace of one ISA; see kernels-inl.h.

/// Sum of a[i] * b[i]: one accumulator vector, in order, then one reduction.
MF_INLINE float vdot(const float* a, const float* b, int64_t n) {
  Vec acc = vset(0.0f);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) acc = vfma(vload(a + i), vload(b + i), acc);
  if (i < n) acc = vfma(vload_partial(a + i, n - i), vload_partial(b + i, n - i), acc);
  return vreduce_add(acc);
}

MF_INLINE float sum_of_squares(const float* x, int64_t n) { return vdot(x, x, n); }

static void rms_norm(float* out, const float* x, const float* weight, int64_t n, float eps) {
  const float mean = sum_of_squares(x, n) / static_cast<float>(n);
  const Vec scale = vset(1.0f / scalar_sqrt(mean + eps));
  for (int64_t i = 0; i < n; i += kLanes) {
    const Vec value = vmul(vload_some(x + i, n - i), scale);
    vstore_some(out + i, vmul(value, vload_some(weight + i, n - i)), n - i);
  }
}

static void add(float* out, const float* a, const float* b, int64_t n) {
  for (int64_t i = 0; i < n; i += kLanes) {
    vstore_some(out + i, vadd(vload_some(a + i, n - i), vload_some(b + i, n - i)), n - i);
  }
}

static void mul_activated(float* out, const float* x, const float* gate, int64_t gate_step,
                          int64_t n, ActivationKind activation) {
  const Vec shared = vactivate(vset(n > 0 ? gate[0] : 0.0f), activation);
  for (int64_t i = 0; i < n; i += kLanes) {
    const Vec factor = gate_step == 0 ? shared : vactivate(vload_some(gate + i, n - i), activation);
    vstore_some(out + i, vmul(vload_some(x + i, n - i), factor), n - i);
  }
}

static void weighted_sum(float* out, const float* rows, int64_t stride, const float* weights,
                         int64_t count, int64_t n) {
  for (int64_t i = 0; i < n; i += kLanes) {
    Vec sum = vset(0.0f);
    for (int64_t r = 0; r < count; ++r) {
      sum = vfma(vset(weights[r]), vload_some(rows + r * stride + i, n - i), sum);
    }
    vstore_some(out + i, sum, n - i);
  }
}

static void rope(const RopeArgs& args) {
  const int64_t half = args.rotary_dim / 2;
  for (int64_t h = 0; h < args.heads; ++h) {
    float* head = args.x + h * args.head_stride;
    if (args.interleaved) {
      for (int64_t i = 0; i < half; ++i) {
        const float a = head[2 * i];
        const float b = head[2 * i + 1];
        head[2 * i] = a * args.cosines[i] - b * args.sines[i];
        head[2 * i + 1] = b * args.cosines[i] + a * args.sines[i];
      }
      continue;
    }
    for (int64_t i = 0; i < half; i += kLanes) {
      const int64_t left = half - i;
      const Vec a = vload_some(head + i, left);
      const Vec b = vload_some(head + half + i, left);
      const Vec cosine = vload_some(args.cosines + i, left);
      const Vec sine = vload_some(args.sines + i, left);
      vstore_some(head + i, vsub(vmul(a, cosine), vmul(b, sine)), left);
      vstore_some(head + half + i, vfma(a, sine, vmul(b, cosine)), left);
    }
  }
}

/// The best expert not yet taken; ties and NaN go to the lower id.
MF_INLINE int32_t best_expert(const float* scores, const RouteArgs& args, int64_t taken) {
  int32_t best = -1;
  for (int32_t e = 0; e < static_cast<int32_t>(args.experts); ++e) {
    if (best >= 0 && !(scores[e] > scores[best])) continue;
    bool is_taken = false;
    for (int64_t r = 0; r < taken; ++r) is_taken = is_taken || args.ids[r] == e;
    if (!is_taken) best = e;
  }
  return best;
}

static void route(const RouteArgs& args) {
  const int64_t n = args.experts;
  float largest = args.logits[0];
  for (int64_t e = 1; e < n; ++e) largest = args.logits[e] > largest ? args.logits[e] : largest;
  Vec sums = vset(0.0f);
  for (int64_t e = 0; e < n; e += kLanes) {
    const Vec p = vexp(vsub(vload_some(args.logits + e, n - e), vset(largest)));
    vstore(args.workspace + e, p);
    if (n - e < kLanes) {
      for (int64_t i = n; i < e + kLanes; ++i) args.workspace[i] = 0.0f;
    }
    sums = vadd(sums, vload(args.workspace + e));
  }
  const float total = vreduce_add(sums);
  float chosen = 0.0f;
  for (int64_t r = 0; r < args.top_k; ++r) {
    args.ids[r] = best_expert(args.logits, args, r);
    chosen += args.workspace[args.ids[r]];
  }
  const float divisor = args.normalize ? chosen : total;
  for (int64_t r = 0; r < args.top_k; ++r) {
    args.weights[r] = args.workspace[args.ids[r]] / divisor * args.scale;
  }
}
