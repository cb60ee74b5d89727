#include "backend/host_buffer.h"

#include <sys/mman.h>

#include <cstdint>

#include "base/format.h"
#include "base/units.h"

namespace moeflux {
namespace {

class HostBuffer : public Buffer {
 public:
  HostBuffer(std::byte* data, size_t bytes) : data_(data), bytes_(bytes) {}
  ~HostBuffer() override {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  size_t size_bytes() const override { return bytes_; }
  std::byte* host_data() const override { return data_; }

 private:
  std::byte* data_;
  size_t bytes_;
};

}  // namespace

Result<std::unique_ptr<Buffer>> allocate_host_buffer(size_t bytes) {
  // An anonymous mapping: zeroed, page-aligned, and pages that are never touched cost nothing.
  const size_t mapped = bytes == 0 ? 1 : bytes;
  void* data =
      mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, 0);
  if (data == MAP_FAILED) {
    return make_error(ErrorCode::kResourceExhausted, "cannot allocate {} of memory",
                      format_bytes(bytes));
  }
  return std::unique_ptr<Buffer>(
      std::make_unique<HostBuffer>(static_cast<std::byte*>(data), mapped));
}

ScratchExtent next_scratch_extent(size_t used, size_t bytes) {
  const size_t begin = round_up(used, 64);
  return {begin, begin + bytes};
}

Result<ScratchArena> ScratchArena::create(size_t bytes) {
  MF_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer, allocate_host_buffer(bytes));
  return ScratchArena(std::move(buffer));
}

Tensor ScratchArena::take(const Shape& shape, DType dtype) {
  const size_t bytes =
      static_cast<size_t>(shape.num_elements()) * static_cast<size_t>(dtype_bits(dtype)) / 8;
  const ScratchExtent extent = next_scratch_extent(used_, bytes);
  used_ = extent.end;
  return Tensor::view(*buffer_, extent.begin, shape, dtype);
}

}  // namespace moeflux
