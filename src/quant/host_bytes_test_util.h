// A buffer of given bytes, for tests.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "tensor/tensor.h"

namespace moeflux {

class HostBytes : public Buffer {
 public:
  explicit HostBytes(std::vector<uint8_t> bytes) : bytes_(std::move(bytes)) {}
  size_t size_bytes() const override { return bytes_.size(); }
  std::byte* host_data() const override {
    return reinterpret_cast<std::byte*>(const_cast<uint8_t*>(bytes_.data()));
  }

 private:
  std::vector<uint8_t> bytes_;
};

}  // namespace moeflux
