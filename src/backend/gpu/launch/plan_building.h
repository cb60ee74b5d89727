// From tensors and weights to the bindings and layouts of plans.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "backend/activation.h"
#include "backend/gpu/launch/executor.h"
#include "backend/gpu/launch/plan.h"
#include "base/result.h"
#include "quant/weight.h"
#include "tensor/tensor.h"

namespace moeflux::gpu {

/// A plan without bindings or parameters.
Plan make_plan(KernelId kernel, const Extent3& groups, uint32_t group_size,
               uint32_t shared_bytes = 0);

/// The bytes between a tensor's first element and its last. A null tensor gives a null binding.
Binding range_of(const Tensor& tensor, Access access);
/// The same of a state, which lies elsewhere in a step of another sequence.
Binding range_of_state(const Tensor& state, Access access);
/// For a tensor that the kernel writes whole: kOverwrite when it is contiguous and shares no byte
/// with what is already bound, kReadWrite otherwise. Bind inputs first. A null tensor gives a null
/// binding.
void bind_output(Plan& plan, const Tensor& tensor);

/// As kernels number them: activate() of kernels/rows/elements.h.
uint32_t activation_code(Activation activation);

RowsLayout rows_layout(const Tensor& tensor);
/// Elements in all but the innermost dimension.
uint32_t rows_of(const Tensor& tensor);
/// Strides of a [tokens, heads, width] tensor.
HeadsLayout heads_layout(const Tensor& tensor);
/// Elements from one row of a tensor of evenly spaced rows to the next; aborts on uneven ones.
uint64_t row_stride(const Tensor& tensor);

/// True when both are the same elements in the same order.
bool are_same(const Tensor& a, const Tensor& b);
bool have_overlap(const Binding& a, const Binding& b);
/// True when a plan may write to a byte of the tensor.
bool writes(const Plan& plan, const Tensor& tensor);

/// Elements of 16 bytes.
int64_t wide_elements(DType type);
/// True when every row of a tensor begins on a 16-byte boundary.
bool is_wide(const Tensor& tensor);

/// kUnsupported, with the operation's name, when no kernel reads the weight as it lies.
Status check_weight(std::string_view op, const Weight& weight);
/// The same when pages of keys or values do not lie alike, or have a type that no kernel reads.
Status check_pages(std::string_view op, std::span<const Tensor> pages);
/// False for a format that no kernel reads.
bool has_kernels(const QuantFormat& format);
MatrixLayout matrix_layout(const Weight& weight);
/// MatrixLayout::format of FP8, by its place in coded_list.h.
constexpr uint32_t kCodedFp8 = kFormatCoded + 1;
/// The third part that kernels take: offsets, or the outer scale or column map of a format that has
/// one.
const Tensor& added_part(const Weight& weight);
/// Threads that sum over a row of so many columns in a norm: its bits depend on it.
uint32_t norm_threads(int64_t cols);

/// kFormatF32, kFormatF16 or kFormatBf16.
u32 float_format(DType dtype);
/// Where the format's variant for tiles of `tokens` (1, 4 or 8) stands among those of a kernel
/// whose first variant is `first`.
KernelId matrix_kernel(KernelId first, const QuantFormat& format, uint32_t tokens);
/// The same for kernels that look at MatrixLayout::format, the first of which is `first`.
KernelId any_format_kernel(KernelId first, uint32_t tokens);
/// Where kernels of large tiles, of which `first` is the one of f32, know the format and the rows:
/// the one of the format. `wide_x`: so do the rows of x, as is_wide() says. Its bits are those of
/// the kernels of smaller tiles.
std::optional<KernelId> large_tile_kernel(KernelId first, const Weight& weight, bool wide_x,
                                          const Platform& platform);
Plan make_large_tile_plan(KernelId kernel, const Weight& weight, const Extent3& groups);
/// Columns of x in shared memory at a time for tiles of `tokens` tokens.
uint32_t stage_cols(int64_t cols, uint32_t tokens);
uint32_t tile_tokens(int64_t n);

constexpr uint32_t groups_for(uint64_t items, uint64_t per_group) {
  return static_cast<uint32_t>((items + per_group - 1) / per_group);
}

}  // namespace moeflux::gpu
