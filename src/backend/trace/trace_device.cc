#include "backend/trace/trace_device.h"

#include "backend/trace/trace_encoder.h"

namespace moeflux {
namespace {

class UnbackedBuffer : public Buffer {
 public:
  explicit UnbackedBuffer(size_t bytes) : bytes_(bytes) {}
  size_t size_bytes() const override { return bytes_; }
  std::byte* host_data() const override { return nullptr; }

 private:
  size_t bytes_;
};

class TraceDevice : public Device {
 public:
  std::string_view name() const override { return "trace"; }
  std::string_view description() const override { return "trace (computes nothing)"; }
  Result<std::unique_ptr<Buffer>> allocate(size_t bytes, MemoryKind) override {
    return make_unbacked_buffer(bytes);
  }
  Result<std::unique_ptr<Encoder>> create_encoder(size_t) override {
    return std::unique_ptr<Encoder>(std::make_unique<TraceEncoder>());
  }
};

}  // namespace

std::unique_ptr<Buffer> make_unbacked_buffer(size_t bytes) {
  return std::make_unique<UnbackedBuffer>(bytes);
}

std::unique_ptr<Device> make_trace_device() { return std::make_unique<TraceDevice>(); }

}  // namespace moeflux
