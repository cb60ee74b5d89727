// Stands in for metal_gpu.mm where there is no Metal.
#include "backend/metal/metal_gpu.h"
#include "base/format.h"

namespace moeflux::gpu {

Result<std::unique_ptr<MetalGpu>> open_metal_gpu() {
  return make_error(ErrorCode::kUnsupported, "metal: this build has no Metal (it needs macOS)");
}

}  // namespace moeflux::gpu
