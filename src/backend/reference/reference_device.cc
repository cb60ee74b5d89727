#include "backend/reference/reference_device.h"

#include "backend/host_buffer.h"
#include "backend/reference/reference_encoder.h"

namespace moeflux {
namespace {

class ReferenceDevice : public Device {
 public:
  std::string_view name() const override { return "reference"; }
  std::string_view description() const override { return "reference (scalar, f64 sums)"; }
  Result<std::unique_ptr<Buffer>> allocate(size_t bytes, MemoryKind) override {
    return allocate_host_buffer(bytes);
  }
  Status supports(const ops::AnyOp& op) const override { return supported_by_reference(op); }
  bool takes_narrow_cache() const override { return true; }
  Result<std::unique_ptr<Encoder>> create_encoder(size_t scratch_bytes) override {
    MF_ASSIGN_OR_RETURN(ScratchArena arena, ScratchArena::create(scratch_bytes));
    return std::unique_ptr<Encoder>(std::make_unique<ReferenceEncoder>(std::move(arena)));
  }
};

}  // namespace

std::unique_ptr<Device> make_reference_device() { return std::make_unique<ReferenceDevice>(); }

}  // namespace moeflux
