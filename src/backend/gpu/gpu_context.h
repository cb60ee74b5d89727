// The state that operations of ops/ share: operations that wait for each other (launch/fusion.h), a
// recorder that hands launches to a platform's executor, and the tables of experts.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/encoder.h"
#include "backend/gpu/launch/expert_tables.h"
#include "backend/gpu/launch/fusion.h"
#include "backend/gpu/launch/recorder.h"
#include "backend/gpu/launch/segments.h"
#include "backend/sequence_rows.h"

namespace moeflux::gpu {

/// Keys that were brought together for rows, each a sequence of its own.
struct GatheredRows {
  std::vector<Tensor> pages;  // of keys and of values of each
  std::vector<KvRows> sequences;
};

class GpuContext {
 public:
  /// The platform and the encoder, whose context this is, must outlive it.
  GpuContext(Platform& platform, std::unique_ptr<Executor> executor,
             std::unique_ptr<Buffer> scratch, Encoder& encoder)
      : encoder_(encoder),
        recorder_(platform, std::move(executor), std::move(scratch)),
        tables_(recorder_) {}
  ~GpuContext() { recorder_.finish(); }

  /// For operations that are made of others, and for scratch.
  Encoder& encoder() { return encoder_; }
  const Platform& platform() const { return recorder_.platform(); }
  /// To record a launch nothing that waits may be left.
  Recorder& recorder() { return recorder_; }
  const Recorder& recorder() const { return recorder_; }
  Waiting& waiting() { return waiting_; }
  ExpertTables& tables() { return tables_; }
  /// Pages with a row a pool, of the keys that were appended last.
  std::vector<Tensor>& pooled_pages() { return pooled_pages_; }
  GatheredRows& gathered_rows() { return gathered_rows_; }

  /// The action for an operation. If it joins or waits, it has been added to the waiting ones; if
  /// it waits alone, the others have been launched.
  template <class Op>
  Action fuse(const Op& op) {
    const Action action = action_of(waiting_, op, platform().has_matrix_units());
    if (action == Action::kLaunch || action == Action::kWait) flush();
    if constexpr (requires { gpu::add(waiting_, op); }) {
      if (action != Action::kLaunch) gpu::add(waiting_, op);
    }
    return action;
  }
  void flush();
  /// Launches what waits for a table that the next one may take the place of.
  void flush_tables();
  /// Launches what waits but a network for every token.
  void flush_routes();
  /// Launches what waits, then the plan.
  void record(const Plan& plan);
  /// The state of one sequence; those of several as tables, what waits is recorded before.
  bool place_states(std::span<const StateRows> sequences, StateTable& states);

 private:
  Encoder& encoder_;
  Recorder recorder_;
  Waiting waiting_;
  ExpertTables tables_;
  std::vector<Tensor> pooled_pages_;
  GatheredRows gathered_rows_;
  std::vector<Tensor> states_;  // whose table is placed
  std::vector<Segment> segments_;
};

/// Sequences whose rows an operation takes together: none, those behind one another that have a row
/// each, or all, as for_each_joined() has them.
enum class Joins { kNone, kSingle, kAll };

/// Calls visit(own, states) for parts of an operation along sequences.
template <class Op, class Visit>
void for_each_states(GpuContext& gpu, const Op& op, Joins joins, const Visit& visit) {
  const auto visit_run = [&](std::span<const StateRows> run, const auto& part) {
    Op own = op.part(static_cast<size_t>(run.data() - op.sequences.data()), part);
    own.sequences = run;
    StateTable states;
    if (own.rows() > 0 && gpu.place_states(run, states)) visit(own, states);
  };
  if (joins == Joins::kAll) return for_each_joined(op.sequences, op.rows(), visit_run);
  for_each_run(op.sequences, op.rows(), joins == Joins::kSingle, visit_run);
}

}  // namespace moeflux::gpu
