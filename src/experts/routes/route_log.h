// Records the routers' choices for a host that does not wait for them: ids stay in the device's
// memory for a step, come to the host with the next one and are read with the one after.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/device.h"
#include "backend/encoder.h"
#include "base/ids.h"
#include "base/step_rows.h"
#include "experts/expert_table.h"

namespace moeflux {

/// Thread-compatible.
class RouteLog {
 public:
  /// Rows of one sequence in one layer; every id is an expert of the layer.
  struct Visit {
    LayerId layer{};
    StepPhase phase = StepPhase::kDecode;
    int64_t tokens = 0;
    std::span<const int32_t> ids;  // [tokens, top_k], without those that are no expert's
  };

  /// For steps of up to so many tokens, with so many experts each. The table must outlive the log.
  static Result<RouteLog> create(Device& device, const ExpertTable& table, int64_t tokens_max,
                                 int64_t top_k_max);

  /// Where this step's ids [tokens, top_k] of the layer are to be written.
  Tensor ids(LayerId layer, int64_t tokens, int64_t top_k);
  /// A step of these rows begins. Returns what the last but one chose, until the next call; only of
  /// layers that it reached. Where its work has not been run, ids may be any expert's.
  std::span<const Visit> next(Encoder& encoder, std::span<const StepRows> rows);
  /// Rows of decode in what next() returned.
  int64_t tokens_of_decode() const { return tokens_of_decode_; }

 private:
  struct Layer {
    LayerId layer{};
    int64_t top_k = 0;
  };
  struct Step {
    std::vector<StepRows> rows;
    std::vector<Layer> layers;
    int64_t tokens = 0;
    EventId arrives{};  // of the copy to the host
  };

  explicit RouteLog(const ExpertTable& table) : table_(&table) {}
  int64_t layer_ids(const Step& step) const { return step.tokens * top_k_max_; }
  void read(const Step& step);

  const ExpertTable* table_;
  int64_t top_k_max_ = 0;
  std::unique_ptr<Buffer> device_;
  std::unique_ptr<Buffer> host_;
  Step recorded_;  // the last step
  Step copied_;    // the one before it
  std::vector<int32_t> ids_;
  std::vector<Visit> visits_;
  int64_t tokens_of_decode_ = 0;
};

}  // namespace moeflux
