#include "cli/text_input.h"

#include "base/units.h"
#include "io/file.h"

namespace moeflux {
namespace {

constexpr uint64_t kTextBytesMax = kGiB;

}  // namespace

Result<std::string> read_text_input(const std::string& path) {
  return path == "-" ? read_standard_input(kTextBytesMax) : read_text_file(path, kTextBytesMax);
}

}  // namespace moeflux
