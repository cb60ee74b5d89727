#include "backend/reference/reference_encoder.h"

#include <cstring>

#include "backend/reference/cells.h"
#include "backend/weight_operands.h"

namespace moeflux {

void ReferenceEncoder::write(Tensor to, std::span<const std::byte> from) {
  MF_CHECK(to.is_contiguous() && to.size_bytes() == from.size());
  if (!from.empty()) std::memcpy(host_ptr<std::byte>(to), from.data(), from.size());
}

Status ReferenceEncoder::read(std::span<std::byte> to, Tensor from) {
  MF_CHECK(from.is_contiguous() && from.size_bytes() == to.size());
  MF_RETURN_IF_ERROR(status_);
  if (!to.empty()) std::memcpy(to.data(), host_ptr<std::byte>(from), to.size());
  return {};
}

void ReferenceEncoder::execute(const ops::AnyOp& any) {
  if (status_.ok()) status_ = supported_by_reference(any);
  if (!status_.ok()) return;
  const auto cell = reference::kCells[any.kind];
  if (cell == nullptr) return compose(any);
  cell(shared_, any.op);
}

Status supported_by_reference(const ops::AnyOp& any) {
  if (reference::kCells[any.kind] == nullptr && !ops::is_composed(any)) {
    return ops::missing_cell(any, "reference");
  }
  return ops::visit(any, [](const auto& op) { return ops::check_formats(op, can_decode); });
}

}  // namespace moeflux
