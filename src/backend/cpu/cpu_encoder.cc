#include "backend/cpu/cpu_encoder.h"

#include <cstring>

#include "backend/cpu/cells.h"
#include "backend/weight_operands.h"
#include "base/format.h"

namespace moeflux::cpu {
namespace {

/// Formats that have kernels or a decoder.
bool is_multiplied(const Weight& weight) {
  const bool is_known = has_kernels(weight) || find_decoder(weight.format) != nullptr;
  return is_known && is_valid(weight.format, weight.cols);
}

// Conditions of this device: on the weights of any operation, and on the sizes of one.
template <typename Op>
Status supports(const Op& op) {
  return ops::check_formats(op, is_multiplied);
}
Status supports(const ops::CausalConv& op) {
  constexpr int64_t kTapsMax = 16;  // of the kernels
  if (op.weight.dim(1) <= kTapsMax) return {};
  return make_error(ErrorCode::kUnsupported, "causal_conv: weight has {} taps, expected 1 to {}",
                    op.weight.dim(1), kTapsMax);
}

}  // namespace

Status supported_by_cpu(const ops::AnyOp& any) {
  if (kCells[any.kind] == nullptr && !ops::is_composed(any)) return ops::missing_cell(any, "cpu");
  return ops::visit(any, [](const auto& op) { return supports(op); });
}

void CpuEncoder::execute(const ops::AnyOp& any) {
  const auto cell = kCells[any.kind];
  // Products run together across an operation that is made of them.
  if (cell == nullptr && ops::is_composed(any)) return compose(any);
  if (any.kind != ops::kind_of<ops::Linear>()) context_.pending.flush();
  if (status_.ok()) status_ = supported_by_cpu(any);
  if (status_.ok()) cell(context_, any.op);
}

void CpuEncoder::write(Tensor to, std::span<const std::byte> from) {
  context_.pending.flush();
  MF_CHECK(to.is_contiguous() && to.size_bytes() == from.size());
  if (!from.empty()) std::memcpy(host_ptr<std::byte>(to), from.data(), from.size());
}

Status CpuEncoder::read(std::span<std::byte> to, Tensor from) {
  context_.pending.flush();
  MF_CHECK(from.is_contiguous() && from.size_bytes() == to.size());
  MF_RETURN_IF_ERROR(status_);
  if (!to.empty()) std::memcpy(to.data(), host_ptr<std::byte>(from), to.size());
  return {};
}

}  // namespace moeflux::cpu
