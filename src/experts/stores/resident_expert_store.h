// The store of a device whose own memory holds all experts: they are loaded once, and a lease
// delivers its layer whole. Nothing is read back, so the device's queue never waits for the host.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/device.h"
#include "checkpoint/tensor_index.h"
#include "experts/expert_store.h"
#include "experts/expert_table.h"
#include "io/async_reader.h"

namespace moeflux {

uint64_t resident_experts_bytes(const ExpertTable& table);

/// Where the experts of each device end, of so many, by shares whose sum is 1.
std::vector<int32_t> share_ends(int32_t num_experts, std::span<const double> shares);

struct ResidentExpertStoreOptions {
  /// Compare experts of a pack with their checksums.
  bool check_arrivals = true;
  /// The share of each layer's experts that each of several devices has, which reach each other's
  /// memory; empty: a layer's are where it is.
  std::vector<double> shares = {};
};

/// Reads every expert; the reader is free again afterwards. Table and device must outlive the
/// store. Fails with kResourceExhausted when the device's memory does not hold them, kIo when a
/// read fails, kCorruption when a checksum does not hold. Only while routes are observed does a
/// lease wait for the device.
Result<std::unique_ptr<ExpertStore>> make_resident_expert_store(
    const ExpertTable& table, const TensorIndex& index, AsyncReader& reader, Device& device,
    const ResidentExpertStoreOptions& options);

}  // namespace moeflux
