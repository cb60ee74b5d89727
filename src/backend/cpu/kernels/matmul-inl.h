// Weight rows times token vectors, for every storage format and any number of tokens.
// Included inside the namespace of one ISA; see kernels-inl.h.
//
// The bits of one (row, token) result are defined without reference to the number of tokens: one
// accumulator vector, fused multiply-adds of decoded weights in stream order, one reduction at the
// end. Few tokens multiply weights as they are decoded (direct); many share a panel of decoded
// weights in the L1 cache. Both walk the same order.

constexpr int kPanelRows = 8;
constexpr int kPanelRun = 512;  // 16 KiB of decoded weights
constexpr int kTokenBlock = 64;
constexpr int kDirectTokensMax = 4;
// Rows x tokens whose accumulators stay in registers. One token wants four rows, as four chains of
// dependent additions hide their latency.
constexpr int kMicroRows = kRegisters >= 32 ? 4 : 2;
constexpr int kMicroTokens = 6;
constexpr int direct_rows_max(int tokens) { return kRegisters >= 32 || tokens == 1 ? 4 : 2; }

/// Row ends that do not fill a chunk, zero-padded for up to kTokenBlock tokens.
struct TailTokens {
  alignas(64) float values[kTokenBlock][kChunk];

  void gather(const float* const* x, int64_t tokens, int64_t k0, int64_t count) {
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t i = 0; i < kChunk; ++i) values[t][i] = i < count ? x[t][k0 + i] : 0.0f;
    }
  }
};

/// Results of one panel: [row][token].
using PanelResults = float[kPanelRows][kTokenBlock];

// The hardware prefetcher needs longer rows than many are to find its pace, and stops at page
// borders. So the rows after the next ones are asked for explicitly: on one core from memory, 2048
// columns of 4 bits, 6 to 11 GB/s, where plain reads reach 15.
template <class Row>
MF_INLINE bool starts_cache_line(int64_t chunk) {
  return Row::kChunkBytes >= 64 || chunk * Row::kChunkBytes % 64 < Row::kChunkBytes;
}
template <class Row>
MF_INLINE void prefetch_chunk(const uint8_t* run, int64_t chunk, int64_t ahead) {
  for (int i = 0; i < Row::kChunkBytes; i += 64) {
    __builtin_prefetch(run + chunk * Row::kChunkBytes + ahead + i);
  }
}

template <class Row, int kRows, int kTokens>
static void direct_rows(const MatrixArgs& w, int64_t row0, const float* const* x,
                        const TailTokens& tail, PanelResults& results, int result_row) {
  Row rows[kRows];
  Vec acc[kRows][kTokens];
  for (int r = 0; r < kRows; ++r) {
    rows[r].open(w, row0 + r);
    for (int t = 0; t < kTokens; ++t) acc[r][t] = vset(0.0f);
  }
  const float* tokens[kTokens];
  for (int t = 0; t < kTokens; ++t) tokens[t] = x[t];
  const int64_t main_cols = w.cols / kChunk * kChunk;
  const int64_t group_chunks = group_chunks_of(w);
  const int64_t ahead = main_cols / kChunk * Row::kChunkBytes * kRows;
  for (int64_t k0 = 0; k0 < main_cols; k0 += kRun) {
    const int64_t count = main_cols - k0 < kRun ? main_cols - k0 : kRun;
    for (int r = 0; r < kRows; ++r) rows[r].begin_run(w, k0, count);
    const int64_t chunks = count / kChunk;
    for (int64_t c0 = 0, g = 0; c0 < chunks; c0 += group_chunks, ++g) {
      typename Row::Params params[kRows];
      for (int r = 0; r < kRows; ++r) params[r] = rows[r].group(g);
      const int64_t c1 = c0 + group_chunks < chunks ? c0 + group_chunks : chunks;
      for (int64_t c = c0; c < c1; ++c) {
        const int64_t k = k0 + c * kChunk;
        if (starts_cache_line<Row>(c)) {
          for (int r = 0; r < kRows; ++r) prefetch_chunk<Row>(rows[r].run, c, ahead);
        }
        for (int r = 0; r < kRows; ++r) {
          Vec weights[kChunkVecs];
          rows[r].chunk(params[r], c, weights);
          for (int v = 0; v < kChunkVecs; ++v) {
            for (int t = 0; t < kTokens; ++t) {
              acc[r][t] = vfma(weights[v], vload(tokens[t] + k + v * kLanes), acc[r][t]);
            }
          }
        }
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    if (Row::kHasTail && main_cols != w.cols) {
      float padded[kChunk];
      rows[r].tail(main_cols, w.cols - main_cols, padded);
      for (int v = 0; v < kChunkVecs; ++v) {
        for (int t = 0; t < kTokens; ++t) {
          acc[r][t] =
              vfma(vload(padded + v * kLanes), vload(tail.values[t] + v * kLanes), acc[r][t]);
        }
      }
    }
    for (int t = 0; t < kTokens; ++t) results[result_row + r][t] = vreduce_add(acc[r][t]);
  }
}

template <class Row, int kTokens>
static void direct_panel(const MatrixArgs& w, int64_t row0, int rows, const float* const* x,
                         const TailTokens& tail, PanelResults& results) {
  constexpr int kRows = direct_rows_max(kTokens);
  int r = 0;
  for (; r + kRows <= rows; r += kRows) {
    direct_rows<Row, kRows, kTokens>(w, row0 + r, x, tail, results, r);
  }
  for (; r < rows; ++r) direct_rows<Row, 1, kTokens>(w, row0 + r, x, tail, results, r);
}

/// Decoded weights of one run and the accumulators of a token block.
struct Panel {
  alignas(64) float weights[kPanelRows][kPanelRun];
  alignas(64) float acc[kPanelRows][kTokenBlock][kLanes];
};

template <int kRows, int kTokens>
static void micro_tile(Panel& panel, int row, const float* const* x, int64_t k0, int64_t count,
                       int64_t token) {
  Vec acc[kRows][kTokens];
  const float* tokens[kTokens];
  for (int t = 0; t < kTokens; ++t) tokens[t] = x[token + t] + k0;
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTokens; ++t) acc[r][t] = vload(panel.acc[row + r][token + t]);
  }
  for (int64_t k = 0; k < count; k += kLanes) {
    Vec weights[kRows];
    for (int r = 0; r < kRows; ++r) weights[r] = vload(panel.weights[row + r] + k);
    for (int t = 0; t < kTokens; ++t) {
      const Vec value = vload(tokens[t] + k);
      for (int r = 0; r < kRows; ++r) acc[r][t] = vfma(weights[r], value, acc[r][t]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTokens; ++t) vstore(panel.acc[row + r][token + t], acc[r][t]);
  }
}

template <int kTokens>
static void multiply_tokens(Panel& panel, int rows, const float* const* x, int64_t k0,
                            int64_t count, int64_t token) {
  int r = 0;
  for (; r + kMicroRows <= rows; r += kMicroRows) {
    micro_tile<kMicroRows, kTokens>(panel, r, x, k0, count, token);
  }
  for (; r < rows; ++r) micro_tile<1, kTokens>(panel, r, x, k0, count, token);
}

/// Tokens outside, rows inside: a few tokens' run stays in the L1 cache for all rows.
static void multiply_panel(Panel& panel, int rows, const float* const* x, int64_t k0, int64_t count,
                           int64_t tokens) {
  int64_t t = 0;
  for (; t + kMicroTokens <= tokens; t += kMicroTokens) {
    multiply_tokens<kMicroTokens>(panel, rows, x, k0, count, t);
  }
  for (; t + 2 <= tokens; t += 2) multiply_tokens<2>(panel, rows, x, k0, count, t);
  for (; t < tokens; ++t) multiply_tokens<1>(panel, rows, x, k0, count, t);
}

template <class Row>
static void shared_panel(const MatrixArgs& w, int64_t row0, int rows, const float* const* x,
                         int64_t tokens, const TailTokens& tail, PanelResults& results) {
  Panel panel;
  for (int r = 0; r < rows; ++r) {
    for (int64_t t = 0; t < tokens; ++t) vstore(panel.acc[r][t], vset(0.0f));
  }
  const int64_t main_cols = w.cols / kChunk * kChunk;
  const int64_t group_chunks = group_chunks_of(w);
  Row row;
  for (int64_t k0 = 0; k0 < main_cols; k0 += kPanelRun) {
    const int64_t count = main_cols - k0 < kPanelRun ? main_cols - k0 : kPanelRun;
    for (int r = 0; r < rows; ++r) {
      row.open(w, row0 + r);
      row.begin_run(w, k0, count);
      const int64_t chunks = count / kChunk;
      for (int64_t c0 = 0, g = 0; c0 < chunks; c0 += group_chunks, ++g) {
        const typename Row::Params params = row.group(g);
        const int64_t c1 = c0 + group_chunks < chunks ? c0 + group_chunks : chunks;
        for (int64_t c = c0; c < c1; ++c) {
          Vec weights[kChunkVecs];
          row.chunk(params, c, weights);
          for (int v = 0; v < kChunkVecs; ++v) {
            vstore(panel.weights[r] + c * kChunk + v * kLanes, weights[v]);
          }
        }
      }
    }
    multiply_panel(panel, rows, x, k0, count, tokens);
  }
  if (Row::kHasTail && main_cols != w.cols) {
    for (int r = 0; r < rows; ++r) {
      row.open(w, row0 + r);
      row.tail(main_cols, w.cols - main_cols, panel.weights[r]);
    }
    const float* padded[kTokenBlock];
    for (int64_t t = 0; t < tokens; ++t) padded[t] = tail.values[t];
    multiply_panel(panel, rows, padded, 0, kChunk, tokens);
  }
  for (int r = 0; r < rows; ++r) {
    for (int64_t t = 0; t < tokens; ++t) results[r][t] = vreduce_add(vload(panel.acc[r][t]));
  }
}

template <class Row>
static void panel_of(const MatrixArgs& w, int64_t row0, int rows, const float* const* x,
                     int64_t tokens, const TailTokens& tail, PanelResults& results) {
  switch (tokens) {
    case 1:
      return direct_panel<Row, 1>(w, row0, rows, x, tail, results);
    case 2:
      return direct_panel<Row, 2>(w, row0, rows, x, tail, results);
    case 3:
      return direct_panel<Row, 3>(w, row0, rows, x, tail, results);
    case kDirectTokensMax:
      return direct_panel<Row, kDirectTokensMax>(w, row0, rows, x, tail, results);
    default:
      return shared_panel<Row>(w, row0, rows, x, tokens, tail, results);
  }
}

using PanelFn = void (*)(const MatrixArgs& w, int64_t row0, int rows, const float* const* x,
                         int64_t tokens, const TailTokens& tail, PanelResults& results);

static PanelFn affine_panel(const MatrixArgs& w) {
  switch (w.bits) {
    case 2:
      return panel_of<AffinePackedRow<2>>;
    case 3:
      return panel_of<AffinePackedRow<3>>;
    case 4:
      return panel_of<Affine4Row>;
    case 5:
      return panel_of<AffinePackedRow<5>>;
    case 6:
      return panel_of<AffinePackedRow<6>>;
    case 8:
      return panel_of<Affine8Row>;
    default:
      __builtin_trap();  // has_kernels() lets nothing else through
  }
}

static PanelFn panel_kernel(const MatrixArgs& w) {
  switch (w.kind) {
    case CodeKind::kPlain:
      break;
    case CodeKind::kAffine:
      return affine_panel(w);
    case CodeKind::kFp8:
      return panel_of<Fp8Row>;
    case CodeKind::kMxfp4:
      return panel_of<Fp4Row<32>>;
    case CodeKind::kNvfp4:
      return panel_of<Fp4Row<16>>;
  }
  if (w.type == ElementType::kBf16) return panel_of<PlainRow<ElementType::kBf16>>;
  if (w.type == ElementType::kF16) return panel_of<PlainRow<ElementType::kF16>>;
  return panel_of<PlainRow<ElementType::kF32>>;
}

/// results[r][t] += bias[row + r].
MF_INLINE void add_row_bias(const BiasArgs& bias, int64_t row, int rows, int64_t tokens,
                            PanelResults& results) {
  if (bias.data == nullptr) return;
  float values[kPanelRows];
  convert_elements(bias.data + row * element_bytes(bias.type), bias.type, rows, values);
  for (int r = 0; r < rows; ++r) {
    for (int64_t t = 0; t < tokens; ++t) results[r][t] += values[r];
  }
}

static void matmul(const MatmulArgs& args) {
  const PanelFn panel = panel_kernel(args.w);
  const int64_t main_cols = args.w.cols / kChunk * kChunk;
  TailTokens tail;
  PanelResults results;
  for (int64_t t0 = 0; t0 < args.tokens; t0 += kTokenBlock) {
    const int64_t tokens = args.tokens - t0 < kTokenBlock ? args.tokens - t0 : kTokenBlock;
    tail.gather(args.x + t0, main_cols == args.w.cols ? 0 : tokens, main_cols,
                args.w.cols - main_cols);
    for (int64_t row = args.row_begin; row < args.row_end; row += kPanelRows) {
      const int64_t left = args.row_end - row;
      const int rows = static_cast<int>(left < kPanelRows ? left : kPanelRows);
      panel(args.w, row, rows, args.x + t0, tokens, tail, results);
      add_row_bias(args.bias, row, rows, tokens, results);
      for (int64_t t = 0; t < tokens; ++t) {
        float* out = args.out[t0 + t] + (row - args.out_row);
        for (int r = 0; r < rows; ++r) out[r] = results[r][t];
      }
    }
  }
}

static void glu_matmul(const GluMatmulArgs& args) {
  const PanelFn gate_panel = panel_kernel(args.gate);
  const PanelFn up_panel = panel_kernel(args.up);
  const int64_t main_cols = args.gate.cols / kChunk * kChunk;
  const int64_t tail_cols = args.gate.cols - main_cols;
  TailTokens tail;
  PanelResults gates;
  PanelResults ups;
  for (int64_t t0 = 0; t0 < args.tokens; t0 += kTokenBlock) {
    const int64_t tokens = args.tokens - t0 < kTokenBlock ? args.tokens - t0 : kTokenBlock;
    // A tail exists only in plain formats and FP8, where both matrices see x in its natural order.
    tail.gather(args.x_gate + t0, tail_cols == 0 ? 0 : tokens, main_cols, tail_cols);
    for (int64_t row = args.row_begin; row < args.row_end; row += kPanelRows) {
      const int64_t left = args.row_end - row;
      const int rows = static_cast<int>(left < kPanelRows ? left : kPanelRows);
      gate_panel(args.gate, row, rows, args.x_gate + t0, tokens, tail, gates);
      up_panel(args.up, row, rows, args.x_up + t0, tokens, tail, ups);
      add_row_bias(args.gate_bias, row, rows, tokens, gates);
      add_row_bias(args.up_bias, row, rows, tokens, ups);
      for (int r = 0; r < rows; ++r) glu(ups[r], gates[r], ups[r], tokens, args.glu);
      for (int64_t t = 0; t < tokens; ++t) {
        for (int r = 0; r < rows; ++r) args.out[t0 + t][row + r] = ups[r][t];
      }
    }
  }
}

static void permute(const float* x, int64_t cols, float* out) {
  for (int64_t c = 0; c < cols; c += kChunk) permute_chunk(x + c, out + c);
}
