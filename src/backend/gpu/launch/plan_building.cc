#include "backend/gpu/launch/plan_building.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <span>
#include <string_view>

#include "backend/gpu/kernels/coded_list.h"
#include "base/format.h"
#include "base/units.h"
#include "quant/format_traits.h"
#include "quant/formats/tensor_formats.h"

namespace moeflux::gpu {
namespace {

constexpr uint32_t kTiles = 3;  // of 1, 4 and 8 tokens

// Names of the formats that kernels read number by number, in the order of their numbers.
constexpr std::string_view kCodedFormats[] = {"",
#define MF_CODED_NAME(name) #name,
                                              MF_CODED_FORMATS(MF_CODED_NAME)
#undef MF_CODED_NAME
};
constexpr std::string_view kGgmlFormats[] = {
#define MF_GGML_NAME(name, elements, bytes) #name,
    MF_GGML_FORMATS(MF_GGML_NAME)
#undef MF_GGML_NAME
};

/// kFormatCoded or kFormatGgml and up; 0 for a format that kernels do not read so.
uint32_t coded_number(const QuantFormat& format) {
  for (size_t i = 1; i < std::size(kCodedFormats); ++i) {
    if (kCodedFormats[i] == format.kind->name) return kFormatCoded + static_cast<uint32_t>(i) - 1;
  }
  for (size_t i = 0; i < std::size(kGgmlFormats); ++i) {
    if (kGgmlFormats[i] == format.kind->name) return kFormatGgml + static_cast<uint32_t>(i);
  }
  return 0;
}

static_assert(kCodedFormats[kCodedFp8 - kFormatCoded + 1] == "fp8");

uint32_t format_index(const QuantFormat& format) {
  constexpr uint32_t kAny = 10;
  if (format.is_plain()) {
    return format.dtype == DType::kF32 ? 0 : format.dtype == DType::kF16 ? 1 : 2;
  }
  if (!format.is_affine()) return coded_number(format) == kCodedFp8 ? kAny - 1 : kAny;
  return format.bits == 8 ? 8 : 3 + static_cast<uint32_t>(format.bits - 2);
}

static_assert(static_cast<int>(KernelId::linear_any_t8) -
                  static_cast<int>(KernelId::linear_f32_t1) ==
              10 * 3 + 2);
static_assert(static_cast<int>(KernelId::linear_fp8_t16) -
                  static_cast<int>(KernelId::linear_f32_t16) ==
              3);

// Shared memory of a group, for its rows of x and of a matrix.
uint32_t large_tile_bytes(uint64_t column_bytes) {
  constexpr uint64_t kRows = uint64_t{kLargeTileThreads} / kSimdLanes * kLargeTileRows;
  return static_cast<uint32_t>(uint64_t{kLargeTileStages} * kLargeTileCols *
                               (kLargeTileTokens * sizeof(float) + kRows * column_bytes));
}

uint64_t element_bytes(DType dtype) { return static_cast<uint64_t>(dtype_bits(dtype)) / 8; }

}  // namespace

Plan make_plan(KernelId kernel, const Extent3& groups, uint32_t group_size, uint32_t shared_bytes) {
  MF_CHECK(shared_bytes <= kSharedBytesMax);
  Plan plan;
  plan.kernel = kernel;
  plan.groups = groups;
  plan.group_size = group_size;
  plan.shared_bytes = shared_bytes;
  return plan;
}

Binding range_of(const Tensor& tensor, Access access) {
  if (tensor.is_null()) return {};
  uint64_t last = 0;
  for (int i = 0; i < tensor.shape.rank(); ++i) {
    if (tensor.shape[i] == 0) return {tensor.buffer, tensor.offset_bytes, 0, access};
    last += static_cast<uint64_t>((tensor.shape[i] - 1) * tensor.strides[static_cast<size_t>(i)]);
  }
  return {tensor.buffer, tensor.offset_bytes, (last + 1) * element_bytes(tensor.dtype), access};
}

Binding range_of_state(const Tensor& state, Access access) {
  Binding range = range_of(state, access);
  range.moves = !state.is_null();
  return range;
}

void bind_output(Plan& plan, const Tensor& tensor) {
  if (tensor.is_null()) return plan.bind({});
  Binding output = range_of(tensor, Access::kReadWrite);
  bool is_apart = tensor.is_contiguous();
  for (uint32_t i = 0; i < plan.num_bindings; ++i) {
    is_apart &= !have_overlap(plan.bindings[i], output);
  }
  if (is_apart) output.access = Access::kOverwrite;
  plan.bind(output);
}

static_assert(
    static_cast<int>(Activation::kSilu) == 0 && static_cast<int>(Activation::kSigmoid) == 1 &&
    static_cast<int>(Activation::kGeluTanh) == 2 && static_cast<int>(Activation::kIdentity) == 3 &&
    static_cast<int>(Activation::kRelu) == 4 && static_cast<int>(Activation::kCappedSilu) == 5 &&
    static_cast<int>(Activation::kSoftplus) == 6 &&
    static_cast<int>(Activation::kSoftCapped) == 7 && static_cast<int>(Activation::kGelu) == 8);
uint32_t activation_code(Activation activation) { return static_cast<uint32_t>(activation); }

RowsLayout rows_layout(const Tensor& tensor) {
  const int rank = tensor.shape.rank();
  MF_CHECK(tensor.dtype == DType::kF32 && rank >= 1 && rank <= 4);
  MF_CHECK(tensor.strides[static_cast<size_t>(rank - 1)] == 1 || tensor.shape.back() <= 1);
  RowsLayout layout{{0, 0, 0}, {1, 1, 1}, static_cast<u32>(tensor.shape.back())};
  for (int i = 0; i + 1 < rank; ++i) {
    const auto at = static_cast<size_t>(3 - (rank - 1) + i);
    layout.extents[at] = static_cast<u32>(tensor.shape[i]);
    layout.strides[at] = static_cast<u64>(tensor.strides[static_cast<size_t>(i)]);
  }
  return layout;
}

uint32_t rows_of(const Tensor& tensor) {
  uint32_t rows = 1;
  for (int i = 0; i + 1 < tensor.shape.rank(); ++i) rows *= static_cast<uint32_t>(tensor.shape[i]);
  return rows;
}

HeadsLayout heads_layout(const Tensor& tensor) {
  MF_CHECK(
      (tensor.dtype == DType::kF32 || tensor.dtype == DType::kF16 || tensor.dtype == DType::kI8) &&
      tensor.shape.rank() == 3);
  MF_CHECK(tensor.strides[2] == 1 || tensor.shape[2] <= 1);
  return {static_cast<u64>(tensor.strides[0]), static_cast<u64>(tensor.strides[1])};
}

uint64_t row_stride(const Tensor& tensor) {
  const int rank = tensor.shape.rank();
  MF_CHECK(tensor.dtype == DType::kF32 && rank >= 1);
  if (rank == 1) return 0;
  const int64_t stride = tensor.strides[static_cast<size_t>(rank - 2)];
  for (int i = rank - 2; i > 0; --i) {
    MF_CHECK(tensor.shape[i - 1] <= 1 ||
             tensor.strides[static_cast<size_t>(i - 1)] ==
                 tensor.shape[i] * tensor.strides[static_cast<size_t>(i)]);
  }
  return static_cast<uint64_t>(stride);
}

bool are_same(const Tensor& a, const Tensor& b) {
  if (a.buffer != b.buffer || a.offset_bytes != b.offset_bytes || a.shape != b.shape) return false;
  for (int i = 0; i < a.shape.rank(); ++i) {
    const auto at = static_cast<size_t>(i);
    if (a.shape[i] > 1 && a.strides[at] != b.strides[at]) return false;
  }
  return true;
}

bool have_overlap(const Binding& a, const Binding& b) {
  return a.buffer != nullptr && a.buffer == b.buffer &&
         a.offset_bytes < b.offset_bytes + b.size_bytes &&
         b.offset_bytes < a.offset_bytes + a.size_bytes;
}

bool writes(const Plan& plan, const Tensor& tensor) {
  if (tensor.is_null()) return false;
  const Binding range = range_of(tensor, Access::kRead);
  const auto bindings = std::span(plan.bindings).first(plan.num_bindings);
  return std::any_of(bindings.begin(), bindings.end(), [&](const Binding& binding) {
    return binding.access != Access::kRead && have_overlap(binding, range);
  });
}

int64_t wide_elements(DType type) { return 128 / dtype_bits(type); }

bool is_wide(const Tensor& tensor) {
  bool wide = tensor.offset_bytes % 16 == 0;
  for (int i = 0; i + 1 < tensor.shape.rank(); ++i) {
    wide = wide && tensor.strides[static_cast<size_t>(i)] % wide_elements(tensor.dtype) == 0;
  }
  return wide;
}

uint32_t norm_threads(int64_t cols) {
  if (cols <= int64_t{kNormNarrowCols}) return kSimdLanes;
  return cols <= int64_t{kNormMiddleCols} ? uint32_t{kNormThreads} : uint32_t{kNormLongThreads};
}

u32 float_format(DType dtype) {
  return dtype == DType::kF32 ? kFormatF32 : dtype == DType::kF16 ? kFormatF16 : kFormatBf16;
}

bool has_kernels(const QuantFormat& format) {
  return format.is_plain() || format.is_affine() || coded_number(format) != 0;
}

Status check_weight(std::string_view op, const Weight& weight) {
  const QuantFormat& format = weight.format;
  // Plain numbers and scales are read whole, affine codes in words, the parts of others in bytes.
  const auto element = static_cast<size_t>(dtype_bits(format.dtype)) / 8;
  const bool is_aligned =
      weight.parts.codes.offset_bytes % (format.is_affine() ? 4 : element) == 0 &&
      weight.parts.scales.offset_bytes % element == 0 &&
      weight.parts.offsets.offset_bytes % element == 0 &&
      weight.parts.outer_scale.offset_bytes % sizeof(float) == 0;
  if (has_kernels(format) && is_valid(format, weight.cols) &&
      format.order == WeightOrder::kRowMajor && is_aligned) {
    return {};
  }
  return make_error(ErrorCode::kUnsupported, "{}: a [{}, {}] weight in format {} of {}{}", op,
                    weight.rows, weight.cols, format.to_string(), dtype_name(format.dtype),
                    is_aligned ? "" : ", not aligned");
}

Status check_pages(std::string_view op, std::span<const Tensor> pages) {
  const Tensor& first = pages.front();
  const bool has_type =
      first.dtype == DType::kF32 || first.dtype == DType::kF16 || first.dtype == DType::kI8;
  const bool are_alike = std::all_of(pages.begin(), pages.end(), [&](const Tensor& page) {
    return page.strides == first.strides && page.dtype == first.dtype;
  });
  if (has_type && are_alike) return {};
  return make_error(ErrorCode::kUnsupported, "{}: pages of {}{}", op, dtype_name(first.dtype),
                    are_alike ? "" : " that lie in different ways");
}

// Without groups everything shares one scale.
static u32 shift_of(int group) {
  return group == 0 ? 31u : static_cast<u32>(std::countr_zero(static_cast<uint32_t>(group)));
}

const Tensor& added_part(const Weight& weight) {
  if (weight.has(PartRole::kColumnMap)) return weight.parts.column_map;
  return weight.has(PartRole::kOuterScale) ? weight.parts.outer_scale : weight.parts.offsets;
}

MatrixLayout matrix_layout(const Weight& weight) {
  const QuantFormat& format = weight.format;
  MatrixLayout layout{};
  layout.rows = static_cast<u32>(weight.rows);
  layout.cols = static_cast<u32>(weight.cols);
  layout.scales = float_format(format.dtype);
  uint64_t row_bytes = 0;
  if (format.is_plain()) {
    layout.format = layout.scales;
    row_bytes = static_cast<uint64_t>(weight.cols) * element_bytes(format.dtype);
  } else if (format.is_affine()) {
    layout.format = static_cast<u32>(format.bits);
    layout.group_shift =
        static_cast<u32>(std::countr_zero(static_cast<uint32_t>(format.group_size)));
    row_bytes = static_cast<uint64_t>(weight.cols * format.bits / 8);
  } else {
    layout.format = coded_number(format);
    layout.group_shift = shift_of(format.group_size);
    layout.row_shift = shift_of(format.group_rows);
    layout.variant = format.variant;
    if (format.kind == &grouped_int_format) {
      layout.groups = static_cast<u32>(weight.parts.scales.shape[1]);
      layout.code_bits = static_cast<u32>(format.bits);
    }
    if (layout.format == kCodedFp8) row_bytes = static_cast<uint64_t>(weight.cols);
    if (format.dtype == DType::kF8E8M0) layout.scales = kScalesE8m0;
    if (layout.format >= kFormatGgml && format.outer_scale) layout.scales = kFormatF32;
  }
  layout.wide = weight.parts.codes.offset_bytes % 16 == 0 && row_bytes % 16 == 0 ? 1 : 0;
  return layout;
}

KernelId any_format_kernel(KernelId first, uint32_t tokens) {
  const uint32_t tile = tokens == 1 ? 0 : tokens == 4 ? 1 : 2;
  return static_cast<KernelId>(static_cast<uint32_t>(first) + tile);
}

KernelId matrix_kernel(KernelId first, const QuantFormat& format, uint32_t tokens) {
  const auto of_format = static_cast<uint32_t>(first) + format_index(format) * kTiles;
  return any_format_kernel(static_cast<KernelId>(of_format), tokens);
}

std::optional<KernelId> large_tile_kernel(KernelId first, const Weight& weight, bool wide_x,
                                          const Platform& platform) {
  const MatrixLayout layout = matrix_layout(weight);
  const bool is_fp8 = layout.format == kCodedFp8;
  const uint64_t column_bytes = is_fp8 ? 1 : element_bytes(weight.format.dtype);
  if ((!is_fp8 && !weight.format.is_plain()) || !wide_x || layout.wide == 0 ||
      weight.cols % 8 != 0 || large_tile_bytes(column_bytes) > platform.shared_bytes_max()) {
    return std::nullopt;
  }
  const uint32_t index = is_fp8 ? 3 : format_index(weight.format);
  return static_cast<KernelId>(static_cast<uint32_t>(first) + index);
}

Plan make_large_tile_plan(KernelId kernel, const Weight& weight, const Extent3& groups) {
  const uint64_t column_bytes =
      weight.format.is_plain() ? element_bytes(weight.format.dtype) : uint64_t{1};
  Plan plan = make_plan(kernel, groups, kLargeTileThreads);
  plan.shared_bytes = large_tile_bytes(column_bytes);
  return plan;
}

uint32_t stage_cols(int64_t cols, uint32_t tokens) {
  const auto most = static_cast<uint32_t>(kSharedBytesMax / sizeof(float) / tokens);
  return std::min(most, static_cast<uint32_t>(round_up(static_cast<uint64_t>(cols), 32)));
}

uint32_t tile_tokens(int64_t n) { return n == 1 ? 1 : n <= 4 ? 4 : 8; }

}  // namespace moeflux::gpu
