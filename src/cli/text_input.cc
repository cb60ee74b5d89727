#include "cli/text_input.h"

#include "base/units.h"
#include "io/file.h"
#include "io/pipe_text.h"

namespace moeflux {
namespace {

constexpr uint64_t kTextBytesMax = kGiB;

}  // namespace

Result<std::string> read_text_input(const std::string& path) {
  if (path == "-") return read_standard_input(kTextBytesMax);
  return read_text_file_or_pipe(path, kTextBytesMax);
}

}  // namespace moeflux
