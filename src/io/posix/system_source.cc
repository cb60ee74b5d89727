// Blocking reads with preadv, direct or through the page cache.
#include <sys/uio.h>

#include <cerrno>

#include "io/blocking_source.h"
#include "io/page_cache.h"

namespace moeflux {
namespace {

class SystemSource final : public BlockingSource {
 public:
  explicit SystemSource(const SystemSourceOptions& options) : options_(options) {}

  Status read(const ReadChunk& chunk, BounceBuffer& bounce) override {
    const FileDescriptors files = chunk.file->descriptors();
    const bool direct = options_.direct && files.direct >= 0;
    const int fd = direct ? files.direct : files.buffered;
    if (fd < 0 || !lies_inside(chunk)) return chunk.file->read_at(chunk.offset, chunk.into);
    AlignedRead read(chunk, direct ? kDirectAlignment : 1, bounce);
    Status status = run(read, chunk, fd);
    if (!direct && options_.drop_cache) drop_from_page_cache(fd, chunk.offset, chunk.into.size());
    return status;
  }

 private:
  Status run(AlignedRead& read, const ReadChunk& chunk, int fd) {
    while (true) {
      const std::span<const iovec> pieces = read.pieces();
      const ssize_t count = ::preadv(fd, pieces.data(), static_cast<int>(pieces.size()),
                                     static_cast<off_t>(read.offset()));
      int64_t result = count < 0 ? -int64_t{errno} : int64_t{count};
      if (options_.filter != nullptr) result = options_.filter->filter(pieces, result);
      MF_ASSIGN_OR_RETURN(const AlignedRead::Step step, read.take(result));
      if (step == AlignedRead::Step::kDone) return {};
      if (step == AlignedRead::Step::kPlain) return chunk.file->read_at(chunk.offset, chunk.into);
    }
  }

  SystemSourceOptions options_;
};

}  // namespace

std::unique_ptr<BlockingSource> make_system_source(const SystemSourceOptions& options) {
  return std::make_unique<SystemSource>(options);
}

}  // namespace moeflux
