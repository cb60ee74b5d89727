// Standard input, read to its end.
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/format.h"
#include "base/units.h"
#include "io/file.h"
#include "io/posix/errno_text.h"

namespace moeflux {

Result<std::string> read_standard_input(uint64_t bytes_max) {
  std::string text;
  std::array<char, 65536> piece;
  while (true) {
    const ssize_t got = read(STDIN_FILENO, piece.data(), piece.size());
    if (got == 0) return text;
    if (got < 0) {
      if (errno == EINTR) continue;
      return errno_error(errno, "standard input", "cannot read");
    }
    text.append(piece.data(), static_cast<size_t>(got));
    if (text.size() > bytes_max) {
      return make_error(ErrorCode::kResourceExhausted, "standard input is longer than {}",
                        format_bytes(bytes_max));
    }
  }
}

}  // namespace moeflux
