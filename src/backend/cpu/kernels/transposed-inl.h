// Token vectors times weight rows as stored: out = x W, for every format and any number of tokens.
// Included inside the namespace of one ISA; see kernels-inl.h.
//
// A result is one chain of fused multiply-adds over the rows in order, however many tokens there
// are and however columns were cut.

constexpr int kTransposedRows = 8;
constexpr int kTransposedTokens = 32;

/// Decoded weights of some rows, and the sums of a block of tokens, both in the codec's order.
struct TransposedPanel {
  alignas(64) float weights[kTransposedRows][kTransposedColumns];
  alignas(64) float sums[kTransposedTokens][kTransposedColumns];
};

template <int kTokens, int kVecs>
static void transposed_tile(TransposedPanel& panel, int rows, const float* const* x, int64_t row0,
                            int64_t token, int64_t c) {
  Vec acc[kTokens][kVecs];
  for (int t = 0; t < kTokens; ++t) {
    for (int v = 0; v < kVecs; ++v) acc[t][v] = vload(panel.sums[token + t] + c + v * kLanes);
  }
  for (int r = 0; r < rows; ++r) {
    Vec weights[kVecs];
    for (int v = 0; v < kVecs; ++v) weights[v] = vload(panel.weights[r] + c + v * kLanes);
    for (int t = 0; t < kTokens; ++t) {
      const Vec factor = vset(x[token + t][row0 + r]);
      for (int v = 0; v < kVecs; ++v) acc[t][v] = vfma(factor, weights[v], acc[t][v]);
    }
  }
  for (int t = 0; t < kTokens; ++t) {
    for (int v = 0; v < kVecs; ++v) vstore(panel.sums[token + t] + c + v * kLanes, acc[t][v]);
  }
}

template <int kTokens>
static void add_tokens(TransposedPanel& panel, int rows, const float* const* x, int64_t row0,
                       int64_t token, int64_t width) {
  int64_t c = 0;
  for (; c + 4 * kLanes <= width; c += 4 * kLanes) {
    transposed_tile<kTokens, 4>(panel, rows, x, row0, token, c);
  }
  for (; c < width; c += kLanes) transposed_tile<kTokens, 1>(panel, rows, x, row0, token, c);
}

static void add_transposed(TransposedPanel& panel, int rows, const float* const* x, int64_t row0,
                           int64_t tokens, int64_t width) {
  int64_t t = 0;
  for (; t + 2 <= tokens; t += 2) add_tokens<2>(panel, rows, x, row0, t, width);
  for (; t < tokens; ++t) add_tokens<1>(panel, rows, x, row0, t, width);
}

template <class Row>
static void decode_columns(Row& row, const MatrixArgs& w, int64_t r, int64_t begin, int64_t end,
                           float* out) {
  const int64_t whole = (end - begin) / kChunk * kChunk;
  const int64_t chunks = whole / kChunk;
  const int64_t group_chunks = group_chunks_of(w);
  row.open(w, r);
  row.begin_run(w, begin, whole);
  for (int64_t c0 = 0, g = 0; c0 < chunks; c0 += group_chunks, ++g) {
    const typename Row::Params params = row.group(g);
    const int64_t c1 = c0 + group_chunks < chunks ? c0 + group_chunks : chunks;
    for (int64_t c = c0; c < c1; ++c) {
      Vec weights[kChunkVecs];
      row.chunk(params, c, weights);
      for (int v = 0; v < kChunkVecs; ++v) vstore(out + c * kChunk + v * kLanes, weights[v]);
    }
  }
  if (Row::kHasTail && begin + whole != end) {
    row.tail(begin + whole, end - begin - whole, out + whole);
  }
}

/// Undoes the order of 4-bit codes while storing.
static void store_transposed(const float* sums, int64_t count, bool is_permuted, float* out) {
  if (!is_permuted) {
    for (int64_t c = 0; c < count; c += kLanes) {
      vstore_some(out + c, vload(sums + c), count - c);
    }
    return;
  }
  float natural[kChunk];
  float order[kChunk];
  for (int i = 0; i < kChunk; ++i) natural[i] = static_cast<float>(i);
  permute_chunk(natural, order);
  for (int64_t c = 0; c < count; c += kChunk) {
    for (int i = 0; i < kChunk; ++i) out[c + static_cast<int>(order[i])] = sums[c + i];
  }
}

template <class Row>
static void transposed_of(const TransposedMatmulArgs& args) {
  TransposedPanel panel;
  Row row;
  const int64_t count = args.col_end - args.col_begin;
  const int64_t width = (count + kChunk - 1) / kChunk * kChunk;
  for (int64_t t0 = 0; t0 < args.tokens; t0 += kTransposedTokens) {
    const int64_t left = args.tokens - t0;
    const int64_t tokens = left < kTransposedTokens ? left : kTransposedTokens;
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t c = 0; c < width; c += kLanes) vstore(panel.sums[t] + c, vset(0.0f));
    }
    for (int64_t r0 = 0; r0 < args.rows; r0 += kTransposedRows) {
      const int64_t rows_left = args.rows - r0;
      const int rows = static_cast<int>(rows_left < kTransposedRows ? rows_left : kTransposedRows);
      for (int r = 0; r < rows; ++r) {
        decode_columns(row, args.w, args.first_row + r0 + r, args.col_begin, args.col_end,
                       panel.weights[r]);
      }
      add_transposed(panel, rows, args.x + t0, r0, tokens, width);
    }
    for (int64_t t = 0; t < tokens; ++t) {
      store_transposed(panel.sums[t], count, is_permuted(args.w),
                       args.out[t0 + t] + args.col_begin);
    }
  }
}

static void transposed_affine(const TransposedMatmulArgs& args) {
  switch (args.w.bits) {
    case 2:
      return transposed_of<AffinePackedRow<2>>(args);
    case 3:
      return transposed_of<AffinePackedRow<3>>(args);
    case 4:
      return transposed_of<Affine4Row>(args);
    case 5:
      return transposed_of<AffinePackedRow<5>>(args);
    case 6:
      return transposed_of<AffinePackedRow<6>>(args);
    case 8:
      return transposed_of<Affine8Row>(args);
    default:
      __builtin_trap();  // has_kernels() lets nothing else through
  }
}

static void transposed_matmul(const TransposedMatmulArgs& args) {
  switch (args.w.kind) {
    case CodeKind::kPlain:
      break;
    case CodeKind::kAffine:
      return transposed_affine(args);
    case CodeKind::kFp8:
      return transposed_of<Fp8Row>(args);
    case CodeKind::kMxfp4:
      return transposed_of<Fp4Row<32>>(args);
    case CodeKind::kNvfp4:
      return transposed_of<Fp4Row<16>>(args);
  }
  if (args.w.type == ElementType::kBf16) return transposed_of<PlainRow<ElementType::kBf16>>(args);
  if (args.w.type == ElementType::kF16) return transposed_of<PlainRow<ElementType::kF16>>(args);
  return transposed_of<PlainRow<ElementType::kF32>>(args);
}
