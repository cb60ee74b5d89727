// Standard input and named pipes, read to their end.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/format.h"
#include "base/units.h"
#include "io/file.h"
#include "io/pipe_text.h"
#include "io/posix/errno_text.h"
#include "io/posix/unique_fd.h"

namespace moeflux {
namespace {

Result<std::string> read_to_end(int fd, const std::string& name, uint64_t bytes_max) {
  std::string text;
  std::array<char, 65536> piece;
  while (true) {
    const ssize_t got = read(fd, piece.data(), piece.size());
    if (got == 0) return text;
    if (got < 0) {
      if (errno == EINTR) continue;
      return errno_error(errno, name, "cannot read");
    }
    text.append(piece.data(), static_cast<size_t>(got));
    if (text.size() > bytes_max) {
      return make_error(ErrorCode::kResourceExhausted, "{} is longer than {}", name,
                        format_bytes(bytes_max));
    }
  }
}

}  // namespace

Result<std::string> read_standard_input(uint64_t bytes_max) {
  return read_to_end(STDIN_FILENO, "standard input", bytes_max);
}

Result<std::string> read_text_file_or_pipe(const std::string& path, uint64_t bytes_max) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0 || !S_ISFIFO(info.st_mode)) {
    return read_text_file(path, bytes_max);
  }
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.is_open()) return errno_error(errno, path, "cannot open");
  return read_to_end(fd.get(), path, bytes_max);
}

}  // namespace moeflux
