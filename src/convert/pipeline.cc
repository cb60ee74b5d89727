#include "convert/pipeline.h"

#include <algorithm>
#include <utility>

#include "base/units.h"

namespace moeflux {
namespace {

// Enough that handing over a window costs nothing beside filling it.
constexpr uint64_t kWindowBytes = 32 * kMiB;

}  // namespace

void Pipeline::skip(uint64_t bytes) {
  done_ += bytes;
  if (progress_) progress_(done_);
}

Status Pipeline::run(const PipelineRun& run) {
  const uint64_t tasks = std::max<uint64_t>(kWindowBytes / run.task_bytes, pool_.threads());
  const uint64_t window_bytes = std::min(tasks * run.task_bytes, run.total_bytes);
  for (std::vector<std::byte>& window : windows_) {
    if (window.size() < window_bytes) window.resize(window_bytes);
  }
  std::span<const std::byte> filled;  // but not yet written
  for (uint64_t offset = 0; offset < run.total_bytes || !filled.empty();) {
    if (stop_.stop_requested()) return Error(ErrorCode::kCancelled, "stopped");
    std::swap(windows_[0], windows_[1]);
    const std::span<std::byte> next =
        std::span(windows_[0]).first(std::min(window_bytes, run.total_bytes - offset));
    MF_RETURN_IF_ERROR(advance(run, filled, offset, next));
    skip(filled.size());
    offset += next.size();
    filled = next;
  }
  return {};
}

// The first task writes what is filled, the others fill what comes after it.
Status Pipeline::advance(const PipelineRun& run, std::span<const std::byte> filled, uint64_t offset,
                         std::span<std::byte> next) {
  const uint64_t tasks = (next.size() + run.task_bytes - 1) / run.task_bytes;
  outcomes_.assign(tasks + 1, Status());
  pool_.parallel_for(static_cast<int64_t>(tasks) + 1, [&](int64_t task) {
    Status& outcome = outcomes_[static_cast<size_t>(task)];
    if (task == 0) {
      if (!filled.empty()) outcome = run.write(filled);
      return;
    }
    const uint64_t begin = static_cast<uint64_t>(task - 1) * run.task_bytes;
    const uint64_t count = std::min<uint64_t>(run.task_bytes, next.size() - begin);
    outcome = run.make(offset + begin, next.subspan(begin, count));
  });
  for (const Status& outcome : outcomes_) MF_RETURN_IF_ERROR(outcome);
  return {};
}

}  // namespace moeflux
