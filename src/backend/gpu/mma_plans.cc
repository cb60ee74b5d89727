#include "backend/gpu/mma_plans.h"

#include <algorithm>
#include <limits>

#include "backend/gpu/plan_building.h"

namespace moeflux::gpu {

bool fits_mma(const Weight& weight) {
  const QuantFormat& f = weight.format;
  return f.is_affine() && (f.bits == 4 || f.bits == 8) && f.dtype != DType::kF32 &&
         f.group_size >= int64_t{kMmaBlock} &&
         weight.rows * (weight.cols / 32 * f.bits) <= int64_t{std::numeric_limits<u32>::max()};
}

bool uses_mma(const Platform& platform, const Weight& weight) {
  if (!platform.has_matrix_units() || !fits_mma(weight)) return false;
  const uint32_t most = platform.shared_bytes_max();
  const auto bits = static_cast<uint32_t>(weight.format.bits);
  return std::max(mma_one_bytes_min(bits, weight.cols), mma_many_bytes(kMmaStages)) <= most;
}

bool has_wide_scales(const Weight& weight) {
  return weight.format.group_size == int64_t{kMmaBlock} && weight.cols % kMmaSplit == 0 &&
         weight.parts.scales.offset_bytes % 16 == 0 && weight.parts.offsets.offset_bytes % 16 == 0;
}

MmaMatrix mma_matrix(const Weight& weight) {
  const MatrixLayout layout = matrix_layout(weight);
  MmaMatrix m{};
  m.rows = layout.rows;
  m.bits = layout.format;
  m.group_shift = layout.group_shift;
  m.scales = layout.scales;
  m.wide = layout.wide;
  m.wide_scales = has_wide_scales(weight) ? 1 : 0;
  return m;
}

uint32_t list_matrices(MmaLinearParams& p, const Products& products, uint32_t rows_of_group) {
  p.count = static_cast<u32>(products.size());
  uint32_t groups = 0;
  for (size_t i = 0; i < products.size(); ++i) {
    p.matrices[i] = mma_matrix(products[i].weight);
    p.out_strides[i] = row_stride(products[i].out);
    p.first_group[i] = groups;
    groups += groups_for(p.matrices[i].rows, rows_of_group);
  }
  return groups;
}

void bind_weight(Plan& plan, const Weight& weight) {
  plan.bind(range_of(weight.parts.codes, Access::kRead));
  plan.bind(range_of(weight.parts.scales, Access::kRead));
  plan.bind(range_of(added_part(weight), Access::kRead));
}

Plan make_mma_many_plan(KernelId kernel, const Extent3& groups, uint32_t stages) {
  // The least that GPUs with fast enough matrix units offer; with an H200's two groups fit.
  constexpr uint32_t kMost = mma_many_bytes(kMmaStagesOfFew);
  static_assert(kMost <= 99 * 1024 && 2 * (kMost + 1024) <= 228 * 1024);
  Plan plan = make_plan(kernel, groups, kMmaThreads);
  plan.shared_bytes = mma_many_bytes(stages);
  return plan;
}

Binding part_of(const Binding& whole, size_t begin, size_t bytes, Access access) {
  return {whole.buffer, whole.offset_bytes + begin, bytes, access};
}

}  // namespace moeflux::gpu
