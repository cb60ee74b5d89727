// Tables of experts in device memory, by which kernels find them. The tables of experts that stay
// are made once, written to where one of them moves, and never used after the experts are gone.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "backend/expert_memory.h"
#include "backend/gpu/launch/expert_launch.h"
#include "backend/gpu/launch/recorder.h"

namespace moeflux::gpu {

class ExpertTables {
 public:
  /// The recorder must outlive this.
  explicit ExpertTables(Recorder& recorder) : recorder_(recorder) {}

  /// As Encoder::experts_stay().
  void stay(const std::shared_ptr<const std::vector<ExpertWeights>>& experts,
            const ExpertMemory& memory);
  /// As Encoder::experts_moved(); what waits has been recorded.
  void move(std::span<const ExpertWeights> experts, std::span<const size_t> which);

  /// Begins with experts that are ready, which run in as many launches as they need kernels.
  void begin(std::span<const ExpertWeights> ready);
  bool has_next() const;
  /// The next of these launches, its table placed; false if the recorder fails.
  bool next(ExpertLaunch& launch);

 private:
  /// Experts that stay as long as the owner lives. Their table is not looked at after that.
  struct Staying {
    std::weak_ptr<const std::vector<ExpertWeights>> owner;
    const ExpertWeights* data = nullptr;
    size_t count = 0;
    ExpertMemory memory;
    bool is_known = false;  // all run in the same kernels, launch and table are made
    ExpertLaunch launch;
    std::unique_ptr<Buffer> table;
    std::unique_ptr<Buffer> fetched;  // entries as fetch_experts leaves them
  };

  /// Null unless the span is all of some experts that stay.
  Staying* find(std::span<const ExpertWeights> experts);
  void forget_absent();
  ExpertEntry entry_of(const ExpertWeights& expert) const;
  bool place(size_t like, ExpertLaunch& launch);
  void fill_table(size_t like, size_t map_bytes, ExpertLaunch& launch);
  Result<Binding> keep_table(Staying& stay);
  bool keep_fetched(Staying& stay, std::span<const std::byte> entries, ExpertLaunch& launch);

  Recorder& recorder_;
  std::vector<Staying> staying_;
  std::span<const ExpertWeights> ready_;
  Staying* stay_ = nullptr;    // if these are all that stay of an owner's
  bool is_known_ = false;      // and their launch is made
  size_t next_ = 0;            // among them
  std::vector<uint8_t> done_;  // by expert of ready_
  std::vector<std::byte> bytes_;
};

/// kUnsupported when no kernel reads the matrices as they lie.
Status check_expert(const ExpertWeights& expert);

/// Device addresses of a matrix and of what is added to its products.
ExpertMatrix expert_addresses(const Recorder& recorder, const Weight& weight, const Tensor& bias);

}  // namespace moeflux::gpu
