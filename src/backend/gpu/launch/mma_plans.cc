#include "backend/gpu/launch/mma_plans.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "backend/gpu/kernels/matmul/ggml_params.h"
#include "backend/gpu/launch/plan_building.h"
#include "base/check.h"
#include "quant/formats/tensor_formats.h"

namespace moeflux::gpu {
namespace {

struct GgmlType {
  uint32_t number;
  uint32_t split_bytes;
  uint32_t row_words;
  uint32_t place_words;
};
constexpr std::array kGgmlTypes = {
#define MF_GGML_TYPE(name)                                                                \
  GgmlType{kGgml_##name, kSplitBytes_##name, MmaGgmlPlace<kSplitBytes_##name>::kRowWords, \
           MmaGgmlPlace<kSplitBytes_##name>::kWords},
    MF_GGML_MMA_TYPES(MF_GGML_TYPE)
#undef MF_GGML_TYPE
        GgmlType{kMmaFp8, kSplitBytes_fp8, MmaGgmlPlace<kSplitBytes_fp8>::kRowWords,
                 MmaGgmlPlace<kSplitBytes_fp8>::kWords},
#define MF_AFFINE_TYPE(name, bits, scale_bytes)                                  \
  GgmlType{kGgml_##name, AffineSplit<bits, scale_bytes>::kCodeBytes,             \
           MmaGgmlPlace<AffineSplit<bits, scale_bytes>::kPlaceBytes>::kRowWords, \
           MmaGgmlPlace<AffineSplit<bits, scale_bytes>::kPlaceBytes>::kWords},
    MF_AFFINE_MMA_TYPES(MF_AFFINE_TYPE)
#undef MF_AFFINE_TYPE
};

const GgmlType* find_ggml(uint32_t number) {
  const auto* const found = std::find_if(kGgmlTypes.begin(), kGgmlTypes.end(),
                                         [&](const GgmlType& t) { return t.number == number; });
  return found == kGgmlTypes.end() ? nullptr : found;
}

// Whole numbers whose groups in order are those of the kernels.
bool has_zeros_in_order(const QuantFormat& f) {
  const auto group = static_cast<uint32_t>(f.group_size);
  return f.kind == &grouped_int_format && !has_column_map(f) &&
         (group == 0 || (std::has_single_bit(group) && group >= kNarrowGroup));
}

// The number of a weight's type, as MmaMatrix::bits has it.
uint32_t type_of(const Weight& weight) {
  const MatrixLayout layout = matrix_layout(weight);
  if (has_zeros_in_order(weight.format)) return layout.code_bits == 4 ? kGgml_w4_32f : kGgml_w8_32f;
  if (layout.format == kCodedFp8) return kMmaFp8;
  const bool has_f32 = layout.scales == kFormatF32;
  // A scale in f32 takes the place of two blocks' scales.
  const bool is_narrow = 1u << layout.group_shift < (has_f32 ? 2u : 1u) * kMmaBlock;
  if (layout.format == 4 && is_narrow) return has_f32 ? kGgml_w4_32f : kGgml_w4_32;
  if (layout.format == 8 && is_narrow) return has_f32 ? kGgml_w8_32f : kGgml_w8_32;
  return layout.format;
}

// Words of a place of many tokens.
uint32_t many_place_words(uint32_t bits) {
  return bits == kMmaFp8 ? uint32_t{MmaFp8Place::kWords} : mma_place_words(bits);
}

}  // namespace

uint32_t mma_place_words(uint32_t bits) {
  if (bits < kFormatGgml) return kMmaRows * (bits * kMmaBitWords + kMmaScaleWords);
  const GgmlType* const type = find_ggml(bits);
  MF_CHECK(type != nullptr);
  return type->place_words;
}

uint32_t ggml_place_words(const MmaMatrix& matrix) {
  return is_ggml(matrix) ? many_place_words(matrix.bits) : 0;
}

bool is_ggml(const Weight& weight) {
  const QuantFormat& f = weight.format;
  if (f.is_plain()) return false;
  const uint32_t type = type_of(weight);
  return find_ggml(type) != nullptr && (!f.outer_scale || type == kGgml_nvfp4_gguf);
}

bool fits_mma(const Weight& weight) {
  if (is_ggml(weight)) return weight.cols % int64_t{kMmaBlock} == 0;
  const QuantFormat& f = weight.format;
  return f.is_affine() && (f.bits == 4 || f.bits == 8) &&
         weight.rows * (weight.cols / 32 * f.bits) <= int64_t{std::numeric_limits<u32>::max()};
}

bool uses_mma(const Platform& platform, const Weight& weight) {
  if (!platform.has_matrix_units() || !fits_mma(weight)) return false;
  const uint32_t most = platform.shared_bytes_max();
  const uint32_t bits = type_of(weight);
  const uint32_t many = is_ggml(weight) ? 0 : mma_many_bytes(kMmaStages);
  return std::max(mma_one_bytes_min(bits, weight.cols), many) <= most;
}

bool takes_many(const Platform& platform, const Weight& weight) {
  return !is_ggml(weight) ||
         mma_many_ggml_bytes(kMmaTokens, 1, many_place_words(type_of(weight))) <=
             platform.shared_bytes_max();
}

uint32_t ggml_stage_blocks(const Platform& platform, uint32_t tile, uint32_t place_words) {
  const uint32_t most = platform.shared_bytes_max();
  uint32_t blocks = kGgmlStageBlocksMax;
  while (blocks > 1 && mma_many_ggml_bytes(tile, blocks, place_words) > most) blocks /= 2;
  return blocks;
}

uint32_t ggml_tile(const Platform& platform, uint32_t place_words) {
  const bool fits = mma_many_ggml_bytes(kGgmlTokens, 1, place_words) <= platform.shared_bytes_max();
  return fits ? uint32_t{kGgmlTokens} : uint32_t{kMmaTokens};
}

uint32_t grid_words(uint32_t bits) {
  switch (bits) {
    case kGgml_iq1_s:
    case kGgml_iq1_m:
      return kGgmlWideGridWords;
    case kGgml_iq2_xxs:
    case kGgml_iq2_xs:
    case kGgml_iq2_s:
    case kGgml_iq3_xxs:
    case kGgml_iq3_s:
      return kGgmlGridWords;
    default:
      return 0;
  }
}

bool knows_few(uint32_t bits) {
  switch (bits) {
    case kGgml_q1_0:  // a scale has 64 columns or more
    case kGgml_q2_0:
    case kGgml_q2_0_128:
    case kGgml_tq1_0:
    case kGgml_tq2_0:
    case kMmaFp8:  // a number has several bytes
      return false;
    default:
      return grid_words(bits) == 0;
  }
}

const KnownType* find_known(const MmaMatrix& matrix) {
  static constexpr KnownType kTypes[] = {
      {kGgml_q4_0, true, kRowsByNibbles, KernelId::mma_gate_up_q4_0_t4, KernelId::mma_down_q4_0_t4,
       KernelId::mma_linear_q4_0_t8},
      {kGgml_q4_k, true, kRowsByLanesOfHalves, KernelId::mma_gate_up_q4_k_t4,
       KernelId::mma_down_q4_k_t4, KernelId::mma_linear_q4_k_t8},
      {kGgml_q6_k, false, kRowsByLanesOfHalves, KernelId::mma_gate_up_q6_k_t4,
       KernelId::mma_down_q6_k_t4, KernelId::mma_linear_q6_k_t8},
      {kGgml_mxfp4_gguf, false, kRowsByNibbles, KernelId::mma_gate_up_mxfp4_t4,
       KernelId::mma_down_mxfp4_t4, std::nullopt},
  };
  const bool is_wide = matrix.wide != 0 && matrix.row_bytes % 16 == 0;
  for (const KnownType& type : kTypes) {
    if (matrix.bits == type.bits && (is_wide || !type.wide)) return &type;
  }
  return nullptr;
}

const OneKernels& one_kernels(uint32_t bits) {
  static constexpr OneKernels kOneKernels[] = {
      {4, KernelId::mma_linear_w4_t1, KernelId::mma_normed_linear_w4_t1,
       KernelId::mma_gate_up_w4_t1, KernelId::mma_gate_up_list_w4_t1, KernelId::mma_down_w4_t1,
       KernelId::mma_down_sum_w4_t1, false},
      // A list of wide codes would take too many registers.
      {8, KernelId::mma_linear_t1, KernelId::mma_normed_linear_t1, KernelId::mma_gate_up_w8_t1,
       KernelId::mma_gate_up_w8_t1, KernelId::mma_down_w8_t1, KernelId::mma_down_sum_w8_t1, false},
#define MF_ONE_KERNELS(X, type)             \
  {kGgml_##type,                            \
   KernelId::mma_linear_##type##_t1,        \
   KernelId::mma_normed_linear_##type##_t1, \
   KernelId::mma_gate_up_##type##_t1,       \
   KernelId::mma_gate_up_list_##type##_t1,  \
   KernelId::mma_down_##type##_t1,          \
   KernelId::mma_down_sum_##type##_t1,      \
   true},
      MF_GGML_ONE_TYPES(MF_ONE_KERNELS, )
#undef MF_ONE_KERNELS
  };
  static constexpr OneKernels kAny = {kMmaGgml,
                                      KernelId::mma_linear_ggml_t1,
                                      KernelId::mma_normed_linear_ggml_t1,
                                      KernelId::mma_gate_up_ggml_t1,
                                      KernelId::mma_gate_up_list_ggml_t1,
                                      KernelId::mma_down_ggml_t1,
                                      KernelId::mma_down_sum_ggml_t1,
                                      false};
  const auto* const found = std::find_if(std::begin(kOneKernels), std::end(kOneKernels),
                                         [&](const OneKernels& own) { return own.bits == bits; });
  return found == std::end(kOneKernels) ? kAny : *found;
}

bool has_wide_scales(const Weight& weight) {
  const QuantFormat& f = weight.format;
  if (!f.is_affine()) return false;
  // Rows of narrow groups need not be whole splits.
  const bool is_wide =
      is_ggml(weight) ? f.group_size == int{kNarrowGroup} &&
                            weight.cols / int64_t{kNarrowGroup} * dtype_bits(f.dtype) % 128 == 0
                      : f.group_size == int64_t{kMmaBlock} && weight.cols % kMmaSplit == 0;
  return is_wide && weight.parts.scales.offset_bytes % 16 == 0 &&
         weight.parts.offsets.offset_bytes % 16 == 0;
}

MmaMatrix mma_matrix(const Weight& weight) {
  const MatrixLayout layout = matrix_layout(weight);
  MmaMatrix m{};
  m.rows = layout.rows;
  m.bits = type_of(weight);
  m.group_shift = static_cast<u16>(layout.group_shift);
  m.row_shift = static_cast<u16>(layout.row_shift);
  m.scales = layout.scales;
  if (has_zeros_in_order(weight.format)) {
    const auto group = static_cast<uint32_t>(weight.format.group_size);
    m.group_shift = static_cast<u16>(group == 0 ? 31 : std::countr_zero(group));
    m.scales = kScalesAndZeros;
  }
  m.wide = layout.wide;
  m.wide_scales = has_wide_scales(weight) ? 1 : 0;
  if (const GgmlType* const type = find_ggml(m.bits)) {
    m.skew = weight.parts.codes.offset_bytes % 32;
    m.row_bytes = static_cast<u32>(weight.cols * type->split_bytes / int64_t{kMmaSplit});
    m.split_bytes = type->split_bytes;
    m.row_words = type->row_words;
  }
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

Plan make_mma_many_plan(KernelId kernel, const Extent3& groups, uint32_t tile, uint32_t stages,
                        uint32_t place_words) {
  // The least that GPUs with fast enough matrix units offer; with an H200's two groups fit.
  constexpr uint32_t kMost = mma_many_bytes(kMmaStagesOfFew);
  static_assert(kMost <= 99 * 1024 && 2 * (kMost + 1024) <= 228 * 1024);
  Plan plan = make_plan(kernel, groups, kMmaThreads);
  plan.shared_bytes =
      place_words == 0 ? mma_many_bytes(stages) : mma_many_ggml_bytes(tile, stages, place_words);
  return plan;
}

Binding part_of(const Binding& whole, size_t begin, size_t bytes, Access access) {
  return {whole.buffer, whole.offset_bytes + begin, bytes, access};
}

}  // namespace moeflux::gpu
