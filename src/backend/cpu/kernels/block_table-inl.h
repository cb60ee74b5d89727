// The kernels of all kinds of blocks. Included inside a namespace, after block_rows-inl.h and
// kOneToken<Rows>, which is BlockKernel::one_token or null.

template <class Rows>
constexpr BlockKernel block_kernel() {
  return {Rows::kElements, Rows::kBytes,    Rows::kGroup,
          Rows::kNarrow,   fill_rows<Rows>, kOneToken<Rows>};
}
template <class Fill>
constexpr BlockKernel kKernelOf = block_kernel<BlockRows<Fill>>();
template <int kBits, int kGroup>
constexpr BlockKernel kAffineKernelOf = block_kernel<AffineRows<kBits, kGroup>>();

/// By BlockKind.
constexpr BlockKernels kBlockKernels = {{
    kKernelOf<FillQ4_0>,    kKernelOf<FillQ4_1>,    kKernelOf<FillQ5_0>,
    kKernelOf<FillQ5_1>,    kKernelOf<FillQ8_0>,    kKernelOf<FillQ2K>,
    kKernelOf<FillQ3K>,     kKernelOf<FillQ4K>,     kKernelOf<FillQ5K>,
    kKernelOf<FillQ6K>,     kKernelOf<FillIq4Nl>,   kKernelOf<FillIq4Xs>,
    kKernelOf<FillIq2Xxs>,  kKernelOf<FillIq2Xs>,   kKernelOf<FillIq2S>,
    kKernelOf<FillIq3Xxs>,  kKernelOf<FillIq3S>,    kKernelOf<FillIq1S>,
    kKernelOf<FillIq1M>,    kKernelOf<FillMxfp4>,   kKernelOf<FillNvfp4>,
    kAffineKernelOf<4, 32>, kAffineKernelOf<4, 64>, kAffineKernelOf<4, 128>,
    kAffineKernelOf<8, 32>, kAffineKernelOf<8, 64>, kAffineKernelOf<8, 128>,
}};
