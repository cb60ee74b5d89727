#include "backend/host_buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "base/check.h"
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

// Weights are streamed: a page of 2 MiB saves 511 walks of the page table and as many faults.
// Buffers smaller than one huge page stay on small pages, of which only the touched ones are paid
// for. (The 2 MiB states of gated DeltaNet: 10 ms a layer of faults in a sequence's first step on
// small pages.)
constexpr size_t kHugePageBytes = 2 * kMiB;
constexpr size_t kHugePagesFrom = kHugePageBytes;

std::byte* map_pages(size_t bytes) {
  void* data =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, 0);
  return data == MAP_FAILED ? nullptr : static_cast<std::byte*>(data);
}

// Begins at a huge page and asks for more of them; null when there is no memory.
std::byte* map_huge_pages(size_t bytes) {
  if (bytes > SIZE_MAX - kHugePageBytes) return nullptr;
  std::byte* begin = map_pages(bytes + kHugePageBytes);
  if (begin == nullptr) return nullptr;
  const auto address = reinterpret_cast<uintptr_t>(begin);
  const size_t before = round_up(address, kHugePageBytes) - address;
  std::byte* data = begin + before;
  if (before > 0) munmap(begin, before);
  munmap(data + round_up(bytes, static_cast<size_t>(sysconf(_SC_PAGESIZE))),
         kHugePageBytes - before);
#ifdef MADV_HUGEPAGE
  madvise(data, bytes, MADV_HUGEPAGE);  // a wish: small pages do as well
#endif
  return data;
}

}  // namespace

Result<std::unique_ptr<Buffer>> allocate_host_buffer(size_t bytes,
                                                     std::span<const NumaNode> nodes) {
  // An anonymous mapping: zeroed, page-aligned, and pages that are never touched cost nothing.
  const size_t mapped = bytes == 0 ? 1 : bytes;
  std::byte* data = mapped < kHugePagesFrom ? map_pages(mapped) : map_huge_pages(mapped);
  if (data == nullptr) {
    return make_error(ErrorCode::kResourceExhausted, "cannot allocate {} of memory",
                      format_bytes(bytes));
  }
  if (!nodes.empty() && mapped >= kHugePagesFrom) interleave_pages(data, mapped, nodes);
  return std::unique_ptr<Buffer>(std::make_unique<HostBuffer>(data, mapped));
}

// macOS takes the call as a hint for when memory is short.
bool discard_host_memory(Buffer& buffer, size_t offset_bytes, size_t bytes) {
  MF_CHECK(offset_bytes <= buffer.size_bytes() && bytes <= buffer.size_bytes() - offset_bytes);
  if (dynamic_cast<HostBuffer*>(&buffer) == nullptr) return false;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t begin = round_up(offset_bytes, page);
  const size_t end = offset_bytes + bytes == buffer.size_bytes()
                         ? round_up(buffer.size_bytes(), page)
                         : (offset_bytes + bytes) / page * page;
  if (begin < end) madvise(buffer.host_data() + begin, end - begin, MADV_DONTNEED);
  return true;
}

Result<ScratchArena> ScratchArena::create(size_t bytes) {
  MF_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer, allocate_host_buffer(bytes));
  return ScratchArena(std::move(buffer));
}

Tensor ScratchArena::take(const Shape& shape, DType dtype) {
  const size_t bytes =
      static_cast<size_t>(shape.num_elements()) * static_cast<size_t>(dtype_bits(dtype)) / 8;
  const size_t begin = round_up(used_, 64);
  used_ = begin + bytes;
  max_ = std::max(max_, used_);
  return Tensor::view(*buffer_, begin, shape, dtype);
}

}  // namespace moeflux
