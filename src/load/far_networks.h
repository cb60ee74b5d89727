// FarNetworks: networks of layers without experts that lie in the host's memory, beside a device
// with memory of its own. In a step, each is computed by a helper where it lies, or by the device
// from a copy that was made ahead of the layer. Both give the same bits.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/expert_helper.h"
#include "experts/tiers/helped_steps.h"
#include "model/layer_source.h"
#include "model/weights/weight_store.h"

namespace moeflux {

/// Bytes of one of the places into which networks are copied.
uint64_t network_slot_bytes(const GluWeights& weights);
/// How many places there are: while one is computed with, another is copied into.
constexpr size_t kNetworkSlots = 2;
/// Longer steps are the device's: a processor would compute longer than the bus takes.
constexpr int64_t kHelpedNetworkRows = 16;

/// Thread-compatible: the engine's thread only.
class FarNetworks : public LayerSource {
 public:
  struct Options {
    /// Computes networks in the host's memory with the device's bits; null: the device does.
    Device* helper = nullptr;
    HelpMode mode = HelpMode::kFastest;
    int64_t rows_max = 0;  // of a step
    bool copies = true;    // else the device reads networks where they lie
  };

  /// The networks are in the order of layers. Devices and weights must outlive the result. Fails
  /// with kResourceExhausted where the helper gets no memory; where the device has none for copies,
  /// it reads in place.
  static Result<std::unique_ptr<FarNetworks>> create(std::span<const FarNetwork> networks,
                                                     Device& device, const Options& options);

  /// From the next step on.
  void set_mode(HelpMode mode) { steps_.set_mode(mode); }
  /// The first copies start.
  void begin_step(std::span<const StepRows> rows, Encoder& encoder);
  void end_step() { steps_.end_step(); }
  bool has_helper() const { return helper_ != nullptr; }
  /// Steps that the helper took part in.
  uint64_t helped_steps() const { return steps_.count(); }
  uint64_t bytes_copied() const { return bytes_copied_; }

  Status begin_layer(LayerId /*layer*/, Encoder& /*encoder*/) override { return {}; }
  /// Fails as the helper does.
  Status network(LayerId layer, const ops::GatedFfn& op, Encoder& encoder) override;

 private:
  struct Slot {
    EventId free_after{};  // when it may be written to
    CopyId arrives{};
  };

  struct Memory {
    uint64_t slot_bytes = 0;
    std::unique_ptr<Buffer> slots;  // or null
  };

  FarNetworks(std::span<const FarNetwork> networks, std::unique_ptr<ExpertHelper> helper,
              HelpMode mode, Memory memory);
  Status help(const ops::GatedFfn& op, Encoder& encoder);
  void start_copies(Encoder& encoder);
  void free_used(Encoder& encoder);
  GluWeights in_slot(const GluWeights& weights, size_t slot) const;

  std::vector<FarNetwork> networks_;
  std::unique_ptr<ExpertHelper> helper_;  // or null
  HelpedSteps steps_;
  Memory memory_;
  std::array<Slot, kNetworkSlots> slots_;
  // These belong to the step at hand.
  std::vector<size_t> copied_;  // networks, in the order of layers
  size_t started_ = 0;          // of these, whose copies have been asked for,
  size_t given_ = 0;            // that computing has been recorded for,
  size_t used_ = 0;             // and before whose end nothing else is recorded
  std::vector<BufferCopy> copies_;
  uint64_t bytes_copied_ = 0;
};

}  // namespace moeflux
