#include "backend/encoder.h"

#include "backend/device.h"
#include "base/format.h"

namespace moeflux {

Status Device::reach(const Device& other) {
  return make_error(ErrorCode::kUnsupported, "device {} does not reach the memory of {}", name(),
                    other.name());
}

// Nobody asks but for GPUs (devices/open_device.cc).
void Encoder::take(Tensor /*to*/, Encoder& /*other*/, Tensor /*from*/) { MF_CHECK(false); }
void Encoder::await(Encoder& /*other*/) { MF_CHECK(false); }
// Nobody asks unless the device says that it copies beside.
CopyId Encoder::copy_beside(std::span<const BufferCopy> /*copies*/, EventId /*after*/) {
  MF_CHECK(false);
  return {};
}
void Encoder::await_copies(CopyId /*last*/) { MF_CHECK(false); }
bool Encoder::has_copied(CopyId /*last*/) {
  MF_CHECK(false);
  return true;
}

void Encoder::compose(const ops::AnyOp& any) {
  ops::visit(any, [&]<typename Op>(const Op& op) {
    if constexpr (requires { op.compose(*this); }) {
      op.compose(*this);
    } else {
      require(ops::missing_cell(any, "the encoder"));
    }
  });
}

void Encoder::require(const Status& status) {
  if (!status.ok()) [[unlikely]] {
    check_failed(status.error().message().c_str(), __FILE__, __LINE__);
  }
}

Status ops::missing_cell(const AnyOp& any, std::string_view backend) {
  return make_error(ErrorCode::kUnsupported, "{}: {} does not compute it", name_of(any), backend);
}

}  // namespace moeflux
