#include "load/far_networks.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/units.h"
#include "model/weights/weight_reads.h"

namespace moeflux {
namespace {

// All networks are copied, none, or some beside the helper. Sixteen cores beside PCIe 5 multiply 61
// GB/s of Q4_K while it brings 55 (benchmarks/results, 2026-11-28-dense).
constexpr std::array<DeviceEighths, 5> kWays = {kDeviceAlone, 0, 2, 4, 6};
constexpr DeviceEighths kShared = 4;
// The first of them, where nothing is copied: what the device reads in place, the helper waits for.
constexpr size_t kWaysInPlace = 2;

template <typename Visit>
void for_parts(const GluWeights& weights, const Visit& visit) {
  uint64_t offset = 0;
  for (Weight GluWeights::*const matrix : {&GluWeights::gate, &GluWeights::up, &GluWeights::down}) {
    for (const PartRole role : kPartRoles) {
      if (!(weights.*matrix).has(role)) continue;
      visit(matrix, role, offset);
      offset = round_up(offset + (weights.*matrix).parts[role].size_bytes(),
                        WeightReads::kPlaceAlignment);
    }
  }
}

// Eighths of them, evenly among the others.
bool is_devices(size_t network, DeviceEighths eighths) {
  const auto share = static_cast<size_t>(eighths);
  return (network + 1) * share / kDeviceAlone > network * share / kDeviceAlone;
}

ExpertHelperShape helper_shape(std::span<const FarNetwork> networks, int64_t rows_max) {
  ExpertHelperShape shape{.rows_max = std::min(rows_max, kHelpedNetworkRows),
                          .experts_per_token_max = 1,
                          .hidden = networks.front().weights.down.rows};
  for (const FarNetwork& network : networks) {
    shape.intermediate_max = std::max(shape.intermediate_max, network.weights.up.rows);
  }
  return shape;
}

}  // namespace

uint64_t network_slot_bytes(const GluWeights& weights) {
  uint64_t bytes = 0;
  for_parts(weights, [&](Weight GluWeights::*matrix, PartRole role, uint64_t offset) {
    bytes =
        round_up(offset + (weights.*matrix).parts[role].size_bytes(), WeightReads::kPlaceAlignment);
  });
  return bytes;
}

FarNetworks::FarNetworks(std::span<const FarNetwork> networks, std::unique_ptr<ExpertHelper> helper,
                         HelpMode mode, Memory memory)
    : networks_(networks.begin(), networks.end()),
      helper_(std::move(helper)),
      steps_({.helper = helper_.get(), .mode = mode},
             std::span(kWays).first(memory.slots == nullptr ? kWaysInPlace : kWays.size()),
             kShared),
      memory_(std::move(memory)) {}

Result<std::unique_ptr<FarNetworks>> FarNetworks::create(std::span<const FarNetwork> networks,
                                                         Device& device, const Options& options) {
  MF_CHECK(!networks.empty() && options.rows_max > 0);
  std::unique_ptr<ExpertHelper> helper;
  if (options.helper != nullptr) {
    MF_ASSIGN_OR_RETURN(helper, ExpertHelper::create(device, *options.helper,
                                                     helper_shape(networks, options.rows_max)));
  }
  Memory memory;
  for (const FarNetwork& network : networks) {
    memory.slot_bytes = std::max(memory.slot_bytes, network_slot_bytes(network.weights));
  }
  if (options.copies) {
    auto slots = device.allocate(kNetworkSlots * memory.slot_bytes, MemoryKind::kDevice);
    if (slots.ok()) memory.slots = std::move(slots).value();
  }
  return std::unique_ptr<FarNetworks>(
      new FarNetworks(networks, std::move(helper), options.mode, std::move(memory)));
}

void FarNetworks::begin_step(std::span<const StepRows> rows, Encoder& encoder) {
  // A step may have ended before it took all that was on its way. Copies come after those of
  // earlier calls.
  if (given_ < started_) {
    encoder.await_copies(encoder.copy_beside({}, encoder.submit()));
  }
  steps_.begin_step(rows);
  copied_.clear();
  started_ = given_ = used_ = 0;
  if (memory_.slots == nullptr) return;
  for (size_t i = 0; i < networks_.size(); ++i) {
    if (is_devices(i, steps_.device_eighths())) copied_.push_back(i);
  }
  if (copied_.empty()) return;
  const EventId now = encoder.submit();
  for (Slot& slot : slots_) slot.free_after = now;
  start_copies(encoder);
}

GluWeights FarNetworks::in_slot(const GluWeights& weights, size_t slot) const {
  GluWeights moved = weights;
  for_parts(weights, [&](Weight GluWeights::*matrix, PartRole role, uint64_t offset) {
    Tensor& part = (moved.*matrix).parts[role];
    part = Tensor::view(*memory_.slots, slot * memory_.slot_bytes + offset, part.shape, part.dtype);
  });
  return moved;
}

void FarNetworks::start_copies(Encoder& encoder) {
  while (started_ < copied_.size() && started_ < used_ + kNetworkSlots) {
    const GluWeights& weights = networks_[copied_[started_]].weights;
    const size_t slot = started_ % kNetworkSlots;
    copies_.clear();
    for_parts(weights, [&](Weight GluWeights::*matrix, PartRole role, uint64_t offset) {
      const Tensor& part = (weights.*matrix).parts[role];
      copies_.push_back({.to = memory_.slots.get(),
                         .to_offset = slot * memory_.slot_bytes + offset,
                         .from = part.buffer,
                         .from_offset = part.offset_bytes,
                         .bytes = part.size_bytes()});
      bytes_copied_ += copies_.back().bytes;
    });
    slots_[slot].arrives = encoder.copy_beside(copies_, slots_[slot].free_after);
    ++started_;
  }
}

// All that reads the slots given so far has been recorded.
void FarNetworks::free_used(Encoder& encoder) {
  if (used_ == given_) return;
  const EventId now = encoder.submit();
  for (; used_ < given_; ++used_) slots_[used_ % kNetworkSlots].free_after = now;
  start_copies(encoder);
}

Status FarNetworks::network(LayerId layer, const ops::GatedFfn& op, Encoder& encoder) {
  free_used(encoder);
  const auto found = std::ranges::find(networks_, layer, &FarNetwork::layer);
  const auto network = static_cast<size_t>(found - networks_.begin());
  if (given_ < copied_.size() && copied_[given_] == network) {
    const size_t slot = given_ % kNetworkSlots;
    encoder.await_copies(slots_[slot].arrives);
    ops::GatedFfn here = op;
    here.weights = in_slot(op.weights, slot);
    encoder.run(here);
    ++given_;
    return {};
  }
  const bool is_helped = found != networks_.end() && steps_.helper() != nullptr &&
                         !is_devices(network, steps_.device_eighths());
  if (is_helped) return help(op, encoder);
  encoder.run(op);
  return {};
}

// To the helper, a network is the one expert of every token. Its ids are zeros from the beginning.
Status FarNetworks::help(const ops::GatedFfn& op, Encoder& encoder) {
  MF_CHECK(op.out_gate.is_null());
  const int64_t rows = op.x.dim(0);
  const std::array<ExpertWeights, 1> network = {ExpertWeights{
      .expert = {}, .gate = op.weights.gate, .up = op.weights.up, .down = op.weights.down}};
  helper_->take(encoder, op.x);
  MF_RETURN_IF_ERROR(encoder.wait(encoder.submit()));
  MF_RETURN_IF_ERROR(helper_->compute(network, {helper_->ids(rows, 1), {}}, op.glu));
  encoder.run(ops::Copy{op.out, helper_->slots(rows, 1).reshape(op.out.shape)});
  return {};
}

}  // namespace moeflux
