#include "tests/support/tiling_device.h"

#include <utility>

#include "backend/encoder.h"
#include "backend/reference/reference_device.h"
#include "quant/formats/tiled.h"

namespace moeflux::testing {
namespace {

class TilingDevice : public Device {
 public:
  explicit TilingDevice(std::unique_ptr<Device> inner) : inner_(std::move(inner)) {}
  std::string_view name() const override { return "tiling reference"; }
  std::string_view description() const override { return inner_->description(); }
  Result<std::unique_ptr<Buffer>> allocate(size_t bytes, MemoryKind kind) override {
    return inner_->allocate(bytes, kind);
  }
  Result<std::unique_ptr<Encoder>> create_encoder(size_t scratch_bytes) override {
    return inner_->create_encoder(scratch_bytes);
  }
  WeightOrder preferred_order(const QuantFormat& stored, int64_t rows, int64_t) const override {
    return tiled::is_tileable(stored, rows) ? WeightOrder::kTiled : WeightOrder::kRowMajor;
  }

 private:
  std::unique_ptr<Device> inner_;
};

}  // namespace

std::unique_ptr<Device> make_tiling_device() {
  return std::make_unique<TilingDevice>(make_reference_device());
}

}  // namespace moeflux::testing
