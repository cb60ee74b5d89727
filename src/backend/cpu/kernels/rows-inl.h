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

static float dot(const float* a, const float* b, int64_t n) { return vdot(a, b, n); }

MF_INLINE float sum_of_squares(const float* x, int64_t n) { return vdot(x, x, n); }

static void exp_array(float* out, const float* x, int64_t n) {
  for (int64_t i = 0; i < n; i += kLanes) {
    vstore_some(out + i, vexp(vload_some(x + i, n - i)), n - i);
  }
}

static void rms_norm(float* out, const float* x, const float* weight, int64_t n, float eps) {
  const float mean = sum_of_squares(x, n) / static_cast<float>(n);
  const Vec scale = vset(1.0f / scalar_sqrt(mean + eps));
  for (int64_t i = 0; i < n; i += kLanes) {
    const Vec value = vmul(vload_some(x + i, n - i), scale);
    const Vec factor = weight == nullptr ? vset(1.0f) : vload_some(weight + i, n - i);
    vstore_some(out + i, vmul(value, factor), n - i);
  }
}

static void add(float* out, const float* a, const float* b, int64_t n) {
  for (int64_t i = 0; i < n; i += kLanes) {
    vstore_some(out + i, vadd(vload_some(a + i, n - i), vload_some(b + i, n - i)), n - i);
  }
}

static void scale(float* out, const float* x, float factor, int64_t n) {
  for (int64_t i = 0; i < n; i += kLanes) {
    vstore_some(out + i, vmul(vload_some(x + i, n - i), vset(factor)), n - i);
  }
}

static void to_f16(uint8_t* out, const float* x, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) vstore_f16(out + 2 * i, vload(x + i));
  if (i == n) return;
  uint8_t last[2 * kLanes];
  vstore_f16(last, vload_partial(x + i, n - i));
  __builtin_memcpy(out + 2 * i, last, static_cast<uint64_t>(2 * (n - i)));
}

/// The scale of a block of 32, as quant/q8_rows.h has it; 0 where all codes are.
static float quantize_scale(uint8_t* to, const float* x) {
  uint32_t largest = 0;
  for (int i = 0; i < 32; ++i) {
    uint32_t bits;
    __builtin_memcpy(&bits, x + i, sizeof(bits));
    bits &= 0x7fffffffu;
    largest = bits > largest ? bits : largest;
  }
  float most;
  __builtin_memcpy(&most, &largest, sizeof(most));
  uint8_t halves[2 * kLanes];
  vstore_f16(halves, vset(most * (1.0f / 127.0f)));
  uint16_t half;
  __builtin_memcpy(&half, halves, sizeof(half));
  if (half >= 0x7c00u) half = 0x7e00u;
  __builtin_memcpy(to, &half, sizeof(half));
  float scale[kLanes];
  vstore(scale, vset_f16(to));
  return half == 0x7e00u ? 0.0f : scale[0];
}

static void to_q8(uint8_t* row, const float* x, int64_t n) {
  // n + n / 32 * 2 rounded up to 16, but for the zeros behind it.
  const int64_t end = n + n / 32 * 2;
  for (int64_t i = end; i < (end + 15) / 16 * 16; ++i) row[i] = 0;
  for (int64_t begin = 0; begin < n; begin += 32) {
    const float scale = quantize_scale(row + n + begin / 32 * 2, x + begin);
    if (scale == 0.0f) {
      for (int i = 0; i < 32; ++i) row[begin + i] = 0;
      continue;
    }
    const Vec inverse = vset(1.0f / scale);
    alignas(64) float codes[32];
    for (int i = 0; i < 32; i += kLanes) {
      const Vec code = vround(vmul(vload(x + begin + i), inverse));
      vstore(codes + i, vmin(vset(127.0f), vmax(vset(-127.0f), code)));
    }
    for (int i = 0; i < 32; ++i) {
      row[begin + i] = static_cast<uint8_t>(static_cast<int32_t>(codes[i]));
    }
  }
}

static void soft_cap(float* x, float cap, int64_t n) {
  // tanh(y) = (e^2y - 1) / (e^2y + 1): exact to a few roundings of 1, and 1 beyond 10.
  const Vec most = vset(10.0f);
  const Vec least = vset(-10.0f);
  const Vec one = vset(1.0f);
  for (int64_t i = 0; i < n; i += kLanes) {
    const Vec y = vmin(most, vmax(least, vdiv(vload_some(x + i, n - i), vset(cap))));
    const Vec e = vexp(vadd(y, y));
    vstore_some(x + i, vmul(vset(cap), vdiv(vsub(e, one), vadd(e, one))), n - i);
  }
}

static void glu(float* out, const float* gate, const float* up, int64_t n, const GluArgs& args) {
  for (int64_t i = 0; i < n; i += kLanes) {
    vstore_some(out + i, vglu(vload_some(gate + i, n - i), vload_some(up + i, n - i), args), n - i);
  }
}

static void glu_fused(float* out, const float* gate, const float* up, int64_t n,
                      const GluArgs& args) {
  for (int64_t i = 0; i < n; i += kLanes) {
    vstore_some(out + i, vglu_fused(vload_some(gate + i, n - i), vload_some(up + i, n - i), args),
                n - i);
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

/// The streams that most residuals have.
constexpr int kUsualStreams = 4;

/// expand_streams() of that many streams, two vectors of each at once, so that what is read of them
/// and the gates serve several sums; the columns that are done.
template <bool kMixes>
static int64_t expand_usual(const ExpandArgs& args) {
  constexpr int kVecs = 2;
  constexpr int kGates = kMixes ? kUsualStreams * kUsualStreams : 1;
  float write[kUsualStreams];  // which no store can change
  float mix[kGates];
  for (int j = 0; j < kUsualStreams; ++j) write[j] = args.write[j];
  for (int j = 0; kMixes && j < kGates; ++j) mix[j] = args.mix[j];
  const float* const branch = args.branch;
  const float* const x = args.x;
  float* const out = args.out;
  const int64_t n = args.n;
  int64_t i = 0;
  for (; i + kVecs * kLanes <= n; i += kVecs * kLanes) {
    Vec added[kVecs];
    Vec from[kUsualStreams][kVecs];
    for (int v = 0; v < kVecs; ++v) added[v] = vload(branch + i + v * kLanes);
    for (int s = 0; s < kUsualStreams; ++s) {
      for (int v = 0; v < kVecs; ++v) from[s][v] = vload(x + s * n + i + v * kLanes);
    }
    for (int j = 0; j < kUsualStreams; ++j) {
      Vec sums[kVecs];
      for (int v = 0; v < kVecs; ++v) {
        sums[v] = vmul(vset(write[j]), added[v]);
        if (!kMixes) sums[v] = vadd(sums[v], from[j][v]);
      }
      for (int s = 0; kMixes && s < kUsualStreams; ++s) {
        const Vec gate = vset(mix[s * kUsualStreams + j]);
        for (int v = 0; v < kVecs; ++v) sums[v] = vfma(gate, from[s][v], sums[v]);
      }
      for (int v = 0; v < kVecs; ++v) vstore(out + j * n + i + v * kLanes, sums[v]);
    }
  }
  return i;
}

static void expand_streams(const ExpandArgs& args) {
  int64_t i = 0;
  if (args.streams == kUsualStreams) {
    i = args.mix == nullptr ? expand_usual<false>(args) : expand_usual<true>(args);
  }
  for (; i < args.n; i += kLanes) {
    const int64_t left = args.n - i;
    const Vec branch = vload_some(args.branch + i, left);
    for (int64_t j = 0; j < args.streams; ++j) {
      Vec sum = vmul(vset(args.write[j]), branch);
      if (args.mix == nullptr) {
        sum = vadd(sum, vload_some(args.x + j * args.n + i, left));
      } else {
        for (int64_t s = 0; s < args.streams; ++s) {
          sum = vfma(vset(args.mix[s * args.streams + j]),
                     vload_some(args.x + s * args.n + i, left), sum);
        }
      }
      vstore_some(args.out + j * args.n + i, sum, left);
    }
  }
}

static void sum_gated(float* out, const float* x, const float* gates, int64_t count, int64_t n) {
  for (int64_t i = 0; i < n; i += kLanes) {
    Vec sum = vset(0.0f);
    for (int64_t r = 0; r < count; ++r) {
      const Vec gate = vactivate(vload_some(gates + r * n + i, n - i), ActivationKind::kSigmoid);
      sum = vfma(vload_some(x + r * n + i, n - i), gate, sum);
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
