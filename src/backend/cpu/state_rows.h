// Sequences with states: helpers of the operations over them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/cpu/cpu_context.h"
#include "backend/sequence_rows.h"

namespace moeflux::cpu {

/// The row at which each sequence begins, until the next call.
inline std::span<const int64_t> first_rows(CpuContext& context,
                                           std::span<const StateRows> sequences) {
  struct FirstRows {
    std::vector<int64_t> rows;
  };
  std::vector<int64_t>& rows = context.spaces.of<FirstRows>().rows;
  rows.clear();
  int64_t row = 0;
  for (const StateRows& s : sequences) {
    rows.push_back(row);
    row += s.rows;
  }
  return rows;
}

inline bool is_token_each(std::span<const StateRows> sequences) {
  return std::ranges::all_of(sequences, [](const StateRows& s) { return s.rows == 1; });
}

/// The states of all heads of all sequences, some columns of one of them a task.
struct StripTasks {
  int64_t heads;
  int64_t key_dim;
  int64_t value_dim;
  int64_t work;

  /// Floats of one thread's strip.
  int64_t strip_size() const { return key_dim * kDeltaColumns; }
};
/// run(sequence, head, begin, end, strip) for columns [begin, end) of every head's state; `strips`
/// has room for a strip of each thread.
template <typename Run>
void run_strips(CpuContext& context, const StripTasks& tasks, std::span<const StateRows> sequences,
                float* strips, const Run& run) {
  const int64_t blocks = (tasks.value_dim + kDeltaColumns - 1) / kDeltaColumns;
  const auto count = static_cast<int64_t>(sequences.size());
  context.workers.for_tasks(
      count * tasks.heads * blocks, tasks.work, [&](int64_t task, int64_t thread) {
        // Threads side by side take different heads: halves of one head share pairs of lines.
        const int64_t head = task % tasks.heads;
        const int64_t begin = task / tasks.heads % blocks * kDeltaColumns;
        const auto sequence = static_cast<size_t>(task / tasks.heads / blocks);
        if (sequences[sequence].rows == 0) return;
        run(sequence, head, begin, std::min(tasks.value_dim, begin + kDeltaColumns),
            strips + thread * tasks.strip_size());
      });
}

}  // namespace moeflux::cpu
