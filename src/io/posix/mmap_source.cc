// Reads that copy out of mapped files, as an engine that maps its weights would take them in.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "io/blocking_source.h"
#include "io/posix/errno_text.h"

namespace moeflux {
namespace {

class MmapSource final : public BlockingSource {
 public:
  MmapSource() = default;
  MmapSource(const MmapSource&) = delete;
  MmapSource& operator=(const MmapSource&) = delete;
  ~MmapSource() override {
    for (const auto& [key, bytes] : mappings_) {
      ::munmap(const_cast<std::byte*>(bytes.data()), bytes.size());
    }
  }

  Status read(const ReadChunk& chunk, BounceBuffer&) override {
    const int fd = chunk.file->descriptors().buffered;
    // The end of a file is a Status from read_at and a SIGBUS from a mapping.
    if (fd < 0 || !lies_inside(chunk)) return chunk.file->read_at(chunk.offset, chunk.into);
    MF_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, mapping(fd, chunk.file->path()));
    if (chunk.offset + chunk.into.size() > bytes.size()) {
      return chunk.file->read_at(chunk.offset, chunk.into);
    }
    std::memcpy(chunk.into.data(), bytes.data() + chunk.offset, chunk.into.size());
    return {};
  }

 private:
  // By what the descriptor refers to: File objects come and go, and with them descriptors.
  using Key = std::pair<dev_t, ino_t>;

  Result<std::span<const std::byte>> mapping(int fd, const std::string& path) {
    struct stat info = {};
    if (::fstat(fd, &info) != 0) return errno_error(errno, path, "cannot stat");
    const std::lock_guard lock(mutex_);
    const auto known = mappings_.find({info.st_dev, info.st_ino});
    if (known != mappings_.end()) return known->second;
    const auto size = static_cast<size_t>(info.st_size);
    void* address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
    if (address == MAP_FAILED) return errno_error(errno, path, "cannot map");
    const std::span<const std::byte> bytes(static_cast<const std::byte*>(address), size);
    mappings_.emplace(Key{info.st_dev, info.st_ino}, bytes);
    return bytes;
  }

  std::mutex mutex_;
  std::map<Key, std::span<const std::byte>> mappings_;  // guarded by mutex_
};

}  // namespace

std::unique_ptr<BlockingSource> make_mmap_source() { return std::make_unique<MmapSource>(); }

}  // namespace moeflux
