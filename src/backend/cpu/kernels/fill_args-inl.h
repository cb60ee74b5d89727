// The arguments of a BlockKernel that fills columns [col, col + cols) of the panel whose rows begin
// at `panel`. Included inside a namespace, after inline_macros-inl.h.

MF_INLINE BlockFillArgs fill_args(const TileMatrix& w, const uint8_t* panel, int64_t col,
                                  int64_t cols, uint8_t* lines, float* scales, float* biases,
                                  int64_t stride) {
  const BlockKernel& block = *w.block;
  const int64_t row_bytes = w.cols / block.elements * block.bytes;
  BlockFillArgs args{panel + col / block.elements * block.bytes,
                     row_bytes,
                     cols / block.elements,
                     lines,
                     scales,
                     biases,
                     stride};
  if (w.scale_rows == nullptr) return args;
  const int64_t element = w.type == ElementType::kF32 ? 4 : 2;
  const int64_t row = (panel - w.tiles) / row_bytes;
  args.param_row_bytes = w.cols / block.group_size * element;
  args.param_type = w.type;
  const int64_t at = row * args.param_row_bytes + col / block.group_size * element;
  args.scale_rows = w.scale_rows + at;
  args.bias_rows = w.bias_rows + at;
  return args;
}
