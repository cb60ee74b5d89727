// Weight rows as streams of f32 vectors, one codec per storage layout.
// Included inside the namespace of one ISA; see kernels-inl.h.
//
// A row is read in runs of up to kRun elements. begin_run() prepares one (scales to f32, odd code
// widths to bytes), group() prepares a group of it, chunk() yields 32 decoded weights in the
// codec's own order, which activations share.

constexpr int kChunk = 32;
constexpr int kChunkVecs = kChunk / kLanes;
constexpr int kRun = 2048;
constexpr int kRunGroupsMax = kRun / 32;

MF_INLINE Vec vload_element(const uint8_t* p, ElementType type) {
  if (type == ElementType::kBf16) return vload_bf16(p);
  if (type == ElementType::kF16) return vload_f16(p);
  return vload(reinterpret_cast<const float*>(p));
}
MF_INLINE int64_t element_bytes(ElementType type) { return type == ElementType::kF32 ? 4 : 2; }

MF_INLINE Vec vload_element_partial(const uint8_t* p, ElementType type, int64_t count) {
  if (type == ElementType::kBf16) return vload_bf16_partial(p, count);
  if (type == ElementType::kF16) return vload_f16_partial(p, count);
  return vload_partial(reinterpret_cast<const float*>(p), count);
}

/// `count` values of any type to f32; reads nothing behind them.
MF_INLINE void convert_elements(const uint8_t* from, ElementType type, int64_t count, float* to) {
  const int64_t size = element_bytes(type);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) vstore(to + i, vload_element(from + i * size, type));
  if (i < count) {
    vstore_partial(to + i, vload_element_partial(from + i * size, type, count - i), count - i);
  }
}

template <ElementType kType>
struct PlainRow {
  using Params = int;
  static constexpr bool kHasTail = true;
  static constexpr int kChunkBytes = kChunk * (kType == ElementType::kF32 ? 4 : 2);
  const uint8_t* row;
  const uint8_t* run;

  MF_INLINE void open(const MatrixArgs& w, int64_t r) {
    row = w.data + r * w.cols * element_bytes(kType);
  }
  MF_INLINE void begin_run(const MatrixArgs&, int64_t k0, int64_t) {
    run = row + k0 * element_bytes(kType);
  }
  MF_INLINE Params group(int64_t) const { return 0; }
  MF_INLINE void chunk(const Params&, int64_t c, Vec* out) const {
    const uint8_t* p = run + c * kChunk * element_bytes(kType);
    for (int v = 0; v < kChunkVecs; ++v) {
      out[v] = vload_element(p + v * kLanes * element_bytes(kType), kType);
    }
  }
  /// The last `count` < 32 elements of the row, zero-padded.
  MF_INLINE void tail(int64_t k0, int64_t count, float* out) const {
    for (int i = 0; i < kChunk; ++i) out[i] = 0.0f;
    convert_elements(row + k0 * element_bytes(kType), kType, count, out);
  }
};

/// The common part of all affine layouts: a run's scales and biases in f32.
struct AffineRow {
  static constexpr bool kHasTail = false;
  const uint8_t* scales;
  const uint8_t* biases;
  float run_scales[kRunGroupsMax];
  float run_biases[kRunGroupsMax];

  MF_INLINE void open_groups(const MatrixArgs& w, int64_t r) {
    const int64_t offset = r * (w.cols / w.group_size) * element_bytes(w.type);
    scales = w.scales + offset;
    biases = w.biases + offset;
  }
  MF_INLINE void convert_groups(const MatrixArgs& w, int64_t k0, int64_t count) {
    const int shift = __builtin_ctz(static_cast<unsigned>(w.group_size));
    const int64_t offset = (k0 >> shift) * element_bytes(w.type);
    const int64_t groups = count >> shift;
    convert_elements(scales + offset, w.type, groups, run_scales);
    convert_elements(biases + offset, w.type, groups, run_biases);
  }
  MF_INLINE void tail(int64_t, int64_t, float*) const {}
};

struct Affine4Row : AffineRow {
  using Params = NibbleTable;
  static constexpr int kChunkBytes = kChunk / 2;
  const uint8_t* row;
  const uint8_t* run;

  MF_INLINE void open(const MatrixArgs& w, int64_t r) {
    row = w.data + r * (w.cols / 2);
    open_groups(w, r);
  }
  MF_INLINE void begin_run(const MatrixArgs& w, int64_t k0, int64_t count) {
    run = row + k0 / 2;
    convert_groups(w, k0, count);
  }
  MF_INLINE Params group(int64_t g) const {
    return make_nibble_table(vset(run_scales[g]), vset(run_biases[g]));
  }
  MF_INLINE void chunk(const Params& params, int64_t c, Vec* out) const {
    vdecode_nibbles(params, run + c * (kChunk / 2), out);
  }
};

struct ByteParams {
  Vec scale;
  Vec bias;
};

struct Affine8Row : AffineRow {
  using Params = ByteParams;
  static constexpr int kChunkBytes = kChunk;
  const uint8_t* row;
  const uint8_t* run;

  MF_INLINE void open(const MatrixArgs& w, int64_t r) {
    row = w.data + r * w.cols;
    open_groups(w, r);
  }
  MF_INLINE void begin_run(const MatrixArgs& w, int64_t k0, int64_t count) {
    run = row + k0;
    convert_groups(w, k0, count);
  }
  MF_INLINE Params group(int64_t g) const { return {vset(run_scales[g]), vset(run_biases[g])}; }
  MF_INLINE void chunk(const Params& params, int64_t c, Vec* out) const {
    for (int v = 0; v < kChunkVecs; ++v) {
      out[v] = vfma(vload_u8(run + c * kChunk + v * kLanes), params.scale, params.bias);
    }
  }
};

/// Splits each 2 * kWidth-bit field of `x`, which start every 2 * kSpacing bits, into two fields
/// that start every kSpacing bits.
template <int kWidth, int kSpacing>
MF_INLINE uint64_t split_fields(uint64_t x) {
  uint64_t low = (uint64_t{1} << kWidth) - 1;
  for (int at = 2 * kSpacing; at < 64; at *= 2) low |= low << at;
  return (x & low) | ((x >> kWidth) & low) << kSpacing;
}

/// Packed codes of kBits bits to bytes; `count` is a multiple of 32.
template <int kBits>
MF_INLINE void unpack_codes(const uint8_t* from, int64_t count, uint8_t* to) {
  const int64_t bytes = count / 8 * kBits;
  for (int64_t at = 0; at < bytes; at += kBits, to += 8) {
    uint64_t stream = 0;  // eight codes
    if (at + 8 <= bytes) {
      __builtin_memcpy(&stream, from + at, 8);
    } else {
      for (int i = 0; i < kBits; ++i) stream |= static_cast<uint64_t>(from[at + i]) << (8 * i);
    }
    stream = split_fields<4 * kBits, 32>(stream);
    stream = split_fields<2 * kBits, 16>(stream);
    stream = split_fields<kBits, 8>(stream);
    __builtin_memcpy(to, &stream, 8);
  }
}

/// 2, 3, 5 and 6 bits: a run is unpacked to bytes first.
template <int kBits>
struct AffinePackedRow : AffineRow {
  using Params = ByteParams;
  static constexpr int kChunkBytes = kChunk / 8 * kBits;
  const uint8_t* row;
  const uint8_t* run;  // packed
  uint8_t codes[kRun];

  MF_INLINE void open(const MatrixArgs& w, int64_t r) {
    row = w.data + r * (w.cols / 8) * kBits;
    open_groups(w, r);
  }
  MF_INLINE void begin_run(const MatrixArgs& w, int64_t k0, int64_t count) {
    run = row + k0 / 8 * kBits;
    unpack_codes<kBits>(run, count, codes);
    convert_groups(w, k0, count);
  }
  MF_INLINE Params group(int64_t g) const { return {vset(run_scales[g]), vset(run_biases[g])}; }
  MF_INLINE void chunk(const Params& params, int64_t c, Vec* out) const {
    for (int v = 0; v < kChunkVecs; ++v) {
      out[v] = vfma(vload_u8(codes + c * kChunk + v * kLanes), params.scale, params.bias);
    }
  }
};

/// Whether a codec yields the order of permute_chunk().
MF_INLINE bool is_permuted(const MatrixArgs& w) {
  return w.kind == CodeKind::kMxfp4 || w.kind == CodeKind::kNvfp4 ||
         (w.kind == CodeKind::kAffine && w.bits == 4);
}

/// Chunks for which group() holds; the last group of a run may have fewer.
MF_INLINE int64_t group_chunks_of(const MatrixArgs& w) {
  if (w.kind == CodeKind::kAffine) return w.group_size / kChunk;
  if (w.kind != CodeKind::kFp8) return 1;
  return w.group_size == 0 ? kRun / kChunk : w.group_size / kChunk;
}

MF_INLINE float scalar_float(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}
/// 2^(scale - 127); 255 is NaN.
MF_INLINE float scalar_power(uint8_t scale) {
  if (scale == 0) return 0x1p-127f;
  return scalar_float(scale == 255 ? 0x7fc00000u : static_cast<uint32_t>(scale) << 23);
}

/// e4m3 codes with a scale for each rectangle of them.
struct Fp8Row {
  using Params = Vec;
  static constexpr bool kHasTail = true;
  static constexpr int kChunkBytes = kChunk;
  const uint8_t* row;
  const uint8_t* run;
  const uint8_t* scales;
  int64_t width;
  ElementType type;
  bool is_power;
  float run_scales[kRunGroupsMax];  // times 256: codes are so much too small

  MF_INLINE void open(const MatrixArgs& w, int64_t r) {
    row = w.data + r * w.cols;
    width = w.group_size == 0 ? w.cols : w.group_size;
    type = w.type;
    is_power = w.has_power_scales;
    const int64_t groups = (w.cols + width - 1) / width;
    const int64_t first = w.group_rows == 0 ? 0 : r / w.group_rows * groups;
    scales = w.scales + first * (is_power ? 1 : element_bytes(type));
  }
  MF_INLINE float scale_at(int64_t group) const {
    if (is_power) return 256.0f * scalar_power(scales[group]);
    float value;
    convert_elements(scales + group * element_bytes(type), type, 1, &value);
    return 256.0f * value;
  }
  MF_INLINE void begin_run(const MatrixArgs&, int64_t k0, int64_t count) {
    run = row + k0;
    for (int64_t k = k0, g = 0; k < k0 + count; k += width, ++g) {
      run_scales[g] = scale_at(k / width);
    }
  }
  MF_INLINE Params group(int64_t g) const { return vset(run_scales[g]); }
  MF_INLINE void chunk(const Params& scale, int64_t c, Vec* out) const {
    for (int v = 0; v < kChunkVecs; ++v) {
      out[v] = vmul(vload_e4m3(run + c * kChunk + v * kLanes), scale);
    }
  }
  MF_INLINE void tail(int64_t k0, int64_t count, float* out) const {
    uint8_t codes[kChunk] = {};
    __builtin_memcpy(codes, row + k0, static_cast<uint64_t>(count));
    const Vec scale = vset(scale_at(k0 / width));
    for (int v = 0; v < kChunkVecs; ++v) {
      vstore(out + v * kLanes, vmul(vload_e4m3(codes + v * kLanes), scale));
    }
  }
};

/// e2m1 codes, two a byte, with a scale of a byte for each group of 32 or 16.
template <int kGroup>
struct Fp4Row {
  using Params = int;
  static constexpr bool kHasTail = false;
  static constexpr int kChunkBytes = kChunk / 2;
  const uint8_t* row;
  const uint8_t* run;
  const uint8_t* scales;
  float outer;
  float run_scales[kRun / kGroup];

  MF_INLINE void open(const MatrixArgs& w, int64_t r) {
    row = w.data + r * (w.cols / 2);
    scales = w.scales + r * (w.cols / kGroup);
    outer = w.outer_scale;
  }
  MF_INLINE void begin_run(const MatrixArgs&, int64_t k0, int64_t count) {
    run = row + k0 / 2;
    const uint8_t* from = scales + k0 / kGroup;
    if (kGroup == 32) {
      for (int64_t g = 0; g < count / kGroup; ++g) run_scales[g] = scalar_power(from[g]);
      return;
    }
    // A chunk is two groups of 16, so that counts are even; a vector's lanes may be more.
    uint8_t codes[kLanes];
    const Vec factor = vset(256.0f * outer);
    for (int64_t g = 0; g < count / kGroup; g += kLanes) {
      const int64_t left = count / kGroup - g;
      const int64_t lanes = left < kLanes ? left : kLanes;
      __builtin_memset(codes, 0, sizeof(codes));
      __builtin_memcpy(codes, from + g, static_cast<uint64_t>(lanes));
      vstore_partial(run_scales + g, vmul(vload_e4m3(codes), factor), lanes);
    }
  }
  MF_INLINE Params group(int64_t) const { return 0; }
  MF_INLINE void chunk(const Params&, int64_t c, Vec* out) const {
    const Vec scale =
        kGroup == 32 ? vset(run_scales[c]) : vhalves(run_scales[2 * c], run_scales[2 * c + 1]);
    vdecode_e2m1(run + c * (kChunk / 2), scale, out);
  }
  MF_INLINE void tail(int64_t, int64_t, float*) const {}
};
