#include "backend/gpu/supports.h"

#include "backend/gpu/cells.h"

namespace moeflux::gpu {

Status supports(const Platform& platform, const ops::AnyOp& any) {
  if (kCells[any.kind] == nullptr && !ops::is_composed(any)) {
    return ops::missing_cell(any, platform.name());
  }
  return ops::visit(any, [&](const auto& op) { return supports(platform, op); });
}

}  // namespace moeflux::gpu
