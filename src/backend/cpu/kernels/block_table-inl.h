// The kernels of all kinds of blocks. Included inside a namespace, after block_rows-inl.h and
// kOneToken<Rows> and kOneTokenUnits<Rows>, which are functions of BlockKernel or null.

template <class Rows>
constexpr BlockKernel block_kernel() {
  return {Rows::kElements,
          Rows::kBytes,
          Rows::kGroup,
          Rows::kCodeBits,
          fill_rows<Rows>,
          kOneToken<Rows>,
          /*one_token_units=*/nullptr};
}
/// The kernel of what is multiplied by 16-bit activations too.
template <class Rows>
constexpr BlockKernel unit_kernel() {
  BlockKernel kernel = block_kernel<Rows>();
  kernel.one_token_units = kOneTokenUnits<Rows>;
  return kernel;
}
template <class Fill>
constexpr BlockKernel kKernelOf = block_kernel<BlockRows<Fill>>();
template <class Fill>
constexpr BlockKernel kUnitKernelOf = unit_kernel<BlockRows<Fill>>();
template <int kBits, int kGroup>
constexpr BlockKernel kAffineKernelOf = block_kernel<AffineRows<kBits, kGroup>>();
template <int kBits, int kGroup>
constexpr BlockKernel kAffineUnitKernelOf = unit_kernel<AffineRows<kBits, kGroup>>();

/// By BlockKind.
constexpr BlockKernels kBlockKernels = {{
    kUnitKernelOf<FillQ4_0>,    kUnitKernelOf<FillQ4_1>,     kUnitKernelOf<FillQ5_0>,
    kUnitKernelOf<FillQ5_1>,    kUnitKernelOf<FillQ8_0>,     kUnitKernelOf<FillQ2K>,
    kUnitKernelOf<FillQ3K>,     kUnitKernelOf<FillQ4K>,      kUnitKernelOf<FillQ5K>,
    kUnitKernelOf<FillQ6K>,     kUnitKernelOf<FillIq4Nl>,    kUnitKernelOf<FillIq4Xs>,
    kUnitKernelOf<FillIq2Xxs>,  kUnitKernelOf<FillIq2Xs>,    kUnitKernelOf<FillIq2S>,
    kUnitKernelOf<FillIq3Xxs>,  kUnitKernelOf<FillIq3S>,     kUnitKernelOf<FillIq1S>,
    kUnitKernelOf<FillIq1M>,    kUnitKernelOf<FillMxfp4>,    kUnitKernelOf<FillNvfp4>,
    kUnitKernelOf<FillQ1_0>,    kUnitKernelOf<FillQ2<64>>,   kUnitKernelOf<FillQ2<128>>,
    kUnitKernelOf<FillTq1_0>,   kUnitKernelOf<FillTq2_0>,    kAffineKernelOf<4, 32>,
    kAffineUnitKernelOf<4, 64>, kAffineUnitKernelOf<4, 128>, kAffineKernelOf<8, 32>,
    kAffineUnitKernelOf<8, 64>, kAffineUnitKernelOf<8, 128>,
}};
