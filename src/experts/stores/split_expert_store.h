// The store of a device made of several: each has a store of its own for the experts of its layers.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/device.h"
#include "experts/expert_store.h"
#include "experts/expert_table.h"

namespace moeflux {

/// The table of each of so many parts of a device: the layers that it has, others without experts.
std::vector<ExpertTable> tables_by_part(const ExpertTable& table,
                                        std::span<const size_t> part_of_layer, size_t parts);

/// The same of so many experts as each has by share_ends(), for their sizes alone.
std::vector<ExpertTable> tables_by_share(const ExpertTable& table, std::span<const double> shares);
/// The share of the experts' bytes that each part of a device has by its layers.
std::vector<double> expert_shares(std::span<const ExpertTable> by_part);

/// The store of a part, of its table, on Device::part().
using MakePartStore = std::function<Result<std::unique_ptr<ExpertStore>>(size_t part)>;

/// `tables` are tables_by_part(). Every store has the routes and the helper of the whole, which
/// come with `help`; `table` and `tables` must outlive it. Fails as `make` does.
Result<std::unique_ptr<ExpertStore>> make_split_expert_store(const ExpertTable& table,
                                                             std::span<const ExpertTable> tables,
                                                             const Device& device, HelpedSteps help,
                                                             const MakePartStore& make);

}  // namespace moeflux
