#include "backend/cuda/cuda_status.h"

#include "base/format.h"

namespace moeflux::gpu {
namespace {

ErrorCode error_code(cudaError_t code) {
  switch (code) {
    case cudaErrorMemoryAllocation:
      return ErrorCode::kResourceExhausted;
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorInsufficientDriver:
      return ErrorCode::kNotFound;
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorUnsupportedPtxVersion:
      return ErrorCode::kUnsupported;
    default:  // a hundred and more codes, all of them "it does not work any more"
      return ErrorCode::kFailedPrecondition;
  }
}

}  // namespace

Status cuda_status(cudaError_t code, std::string_view call) {
  if (code == cudaSuccess) return {};
  (void)cudaGetLastError();  // told here: later calls that ask for it are others
  return make_error(error_code(code), "{}: {} ({})", call, cudaGetErrorString(code),
                    cudaGetErrorName(code));
}

Status use_cuda_device(int device) { return cuda_status(cudaSetDevice(device), "cudaSetDevice"); }

}  // namespace moeflux::gpu
