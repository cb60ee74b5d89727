// Stands in for the folder's other sources when MOEFLUX_CUDA is OFF.
#include "backend/cuda/cuda_device.h"
#include "base/format.h"

namespace moeflux {

Result<std::unique_ptr<gpu::Platform>> make_cuda_platform(const CudaOptions& options) {
  return make_error(ErrorCode::kUnsupported,
                    "cuda:{}: this build has no CUDA (configure with -DMOEFLUX_CUDA=ON)",
                    options.device);
}

Result<std::unique_ptr<Device>> make_cuda_device(const CudaOptions& options) {
  return make_cuda_platform(options).error();
}

}  // namespace moeflux
