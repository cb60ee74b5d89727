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
  explicit TraceDevice(const Device* like) : like_(like) {}
  std::string_view name() const override { return "trace"; }
  std::string_view description() const override { return "trace (computes nothing)"; }
  Result<std::unique_ptr<Buffer>> allocate(size_t bytes, MemoryKind) override {
    return make_unbacked_buffer(bytes);
  }
  Result<std::unique_ptr<Encoder>> create_encoder(size_t) override {
    return std::unique_ptr<Encoder>(std::make_unique<TraceEncoder>());
  }
  int64_t preferred_prefill_chunk() const override {
    return like_ == nullptr ? Device::preferred_prefill_chunk() : like_->preferred_prefill_chunk();
  }
  bool takes_unaligned_experts() const override {
    return like_ != nullptr && like_->takes_unaligned_experts();
  }
  bool multiplies_rows_as_tiles(const QuantFormat& stored) const override {
    return like_ != nullptr && like_->multiplies_rows_as_tiles(stored);
  }
  WeightOrder preferred_order(const QuantFormat& stored, int64_t rows,
                              int64_t cols) const override {
    return like_ == nullptr ? Device::preferred_order(stored, rows, cols)
                            : like_->preferred_order(stored, rows, cols);
  }

 private:
  const Device* like_;
};

}  // namespace

std::unique_ptr<Buffer> make_unbacked_buffer(size_t bytes) {
  return std::make_unique<UnbackedBuffer>(bytes);
}

std::unique_ptr<Device> make_trace_device(const Device* like) {
  return std::make_unique<TraceDevice>(like);
}

}  // namespace moeflux
