#include "cli/packing.h"

#include <algorithm>
#include <chrono>

#include "base/format.h"
#include "base/units.h"
#include "cli/terminal.h"

namespace moeflux {

std::string describe_rate(uint64_t bytes, double seconds) {
  return formatted("{} in {:.1f} s, {:.2f} GB/s", format_bytes(bytes), seconds,
                   static_cast<double>(bytes) / 1e9 / seconds);
}

Status run_packer(const ModelPacker& packer, PackRun run) {
  if (!run.replace && packer.is_packed(run.directory)) {
    MF_RETURN_IF_ERROR(packer.pack(run));
    return print_out(formatted("{}: is packed already\n", run.directory));
  }
  const auto start = std::chrono::steady_clock::now();
  uint64_t before = packer.total_bytes();  // what an earlier run has left, once it is known
  {
    ProgressBar progress("pack", packer.total_bytes());
    run.progress = [&](uint64_t done) {
      before = std::min(before, done);
      progress.update(done);
    };
    const Status packed = packer.pack(run);
    if (!packed.ok() && packed.error().code() == ErrorCode::kCancelled) {
      return make_error(ErrorCode::kFailedPrecondition,
                        "{}: stopped; the same command goes on from here", run.directory);
    }
    MF_RETURN_IF_ERROR(packed);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const std::string kept = before > 0 ? formatted(" ({} were there)", format_bytes(before)) : "";
  return print_out(formatted("{}: {}{}\n", run.directory,
                             describe_rate(packer.total_bytes() - before, seconds.count()), kept));
}

}  // namespace moeflux
