#include "experts/stores/split_expert_store.h"

#include <algorithm>
#include <utility>

#include "experts/stores/resident_expert_store.h"
#include "experts/tiers/near_slots.h"
#include "experts/tiers/usage_profile.h"

namespace moeflux {
namespace {

class SplitExpertStore : public ExpertStore {
 public:
  SplitExpertStore(const ExpertTable& table, std::span<const ExpertTable> tables,
                   const Device& device, HelpedSteps help)
      : ExpertStore(std::move(help)), table_(table), tables_(tables) {
    for (size_t l = 0; l < table.layers.size(); ++l) {
      parts_.push_back(device.part_of(LayerId{static_cast<int32_t>(l)}));
    }
  }
  void add(std::unique_ptr<ExpertStore> store) {
    store->follow(*this);
    stores_.push_back(std::move(store));
  }

  Result<std::unique_ptr<ExpertLease>> lease(LayerId layer, Encoder& encoder,
                                             const Routes& routes) override {
    return of(layer).lease(layer, encoder.on_part(part_of(layer)), routes);
  }
  void begin_step(std::span<const StepRows> rows, Encoder& encoder) override {
    ExpertStore::begin_step(rows, encoder);
    for (size_t i = 0; i < stores_.size(); ++i) stores_[i]->begin_step(rows, encoder.on_part(i));
  }
  Tensor ids_memory(LayerId layer, int64_t tokens, int64_t top_k) override {
    return of(layer).ids_memory(layer, tokens, top_k);
  }
  ExpertStats stats() const override {
    ExpertStats all{.helped_steps = helped_steps()};
    for (const auto& store : stores_) all += store->stats();
    return all;
  }
  uint64_t capacity_bytes() const override {
    uint64_t bytes = 0;
    for (const auto& store : stores_) bytes += store->capacity_bytes();
    return bytes;
  }
  bool add_uses(UsageProfile& profile) const override;
  void describe(ExpertMap& map) const override;

 private:
  size_t part_of(LayerId layer) const { return parts_[static_cast<size_t>(index(layer))]; }
  ExpertStore& of(LayerId layer) { return *stores_[part_of(layer)]; }

  const ExpertTable& table_;
  std::span<const ExpertTable> tables_;  // by part
  std::vector<size_t> parts_;            // by layer
  std::vector<std::unique_ptr<ExpertStore>> stores_;
};

// All of them have seen the same tokens.
bool SplitExpertStore::add_uses(UsageProfile& profile) const {
  uint64_t tokens = 0;
  const ExpertShape shape = shape_of(table_);
  profile.layers.resize(std::max(profile.layers.size(), static_cast<size_t>(shape.num_layers)));
  for (const auto& store : stores_) {
    UsageProfile own;
    if (!store->add_uses(own)) continue;
    tokens = std::max(tokens, own.tokens);
    for (size_t l = 0; l < own.layers.size(); ++l) {
      std::vector<uint64_t>& layer = profile.layers[l];
      layer.resize(
          std::max({layer.size(), own.layers[l].size(), static_cast<size_t>(shape.num_experts)}));
      for (size_t e = 0; e < own.layers[l].size(); ++e) layer[e] += own.layers[l][e];
    }
  }
  profile.tokens += tokens;
  return tokens > 0;
}

// A part's map has the shape of its table, whose widest layer may be another.
void SplitExpertStore::describe(ExpertMap& map) const {
  for (size_t p = 0; p < stores_.size(); ++p) {
    const ExpertShape shape = shape_of(tables_[p]);
    ExpertMap own{.num_layers = shape.num_layers, .num_experts = shape.num_experts};
    const auto copy = [&](const auto& from, auto& to) {
      for (size_t l = 0; l < parts_.size(); ++l) {
        if (parts_[l] != p) continue;
        const auto width = static_cast<size_t>(shape.num_experts);
        std::copy_n(
            from.begin() + static_cast<std::ptrdiff_t>(l * width), width,
            to.begin() + static_cast<std::ptrdiff_t>(l * static_cast<size_t>(map.num_experts)));
      }
    };
    own.places.resize(shape.size());
    for (size_t l = 0; l < parts_.size(); ++l) {
      for (int32_t e = 0; e < shape.num_experts; ++e) {
        const ExpertKey key{LayerId{static_cast<int32_t>(l)}, ExpertId{e}};
        own.places[shape.index_of(key)] =
            map.places[l * static_cast<size_t>(map.num_experts) + static_cast<size_t>(e)];
      }
    }
    stores_[p]->describe(own);
    copy(own.places, map.places);
    if (own.uses.empty()) continue;
    if (map.uses.empty()) map.uses.resize(map.places.size());
    copy(own.uses, map.uses);
  }
}

}  // namespace

std::vector<ExpertTable> tables_by_part(const ExpertTable& table,
                                        std::span<const size_t> part_of_layer, size_t parts) {
  std::vector<ExpertTable> tables(parts);
  for (ExpertTable& own : tables) own.layers.resize(table.layers.size());
  for (size_t l = 0; l < table.layers.size(); ++l) {
    tables[part_of_layer[l]].layers[l] = table.layers[l];
  }
  return tables;
}

std::vector<ExpertTable> tables_by_share(const ExpertTable& table, std::span<const double> shares) {
  std::vector<ExpertTable> tables(shares.size());
  for (const ExpertLayer& layer : table.layers) {
    int32_t begin = 0;
    const std::vector<int32_t> ends = share_ends(layer.num_experts, shares);
    for (size_t p = 0; p < tables.size(); ++p) {
      ExpertLayer& own = tables[p].layers.emplace_back();
      own.num_experts = ends[p] - std::exchange(begin, ends[p]);
      own.slot_bytes = layer.slot_bytes;
    }
  }
  return tables;
}

std::vector<double> expert_shares(std::span<const ExpertTable> by_part) {
  std::vector<double> shares;
  double all = 0.0;
  for (const ExpertTable& own : by_part) {
    shares.push_back(static_cast<double>(resident_experts_bytes(own)));
    all += shares.back();
  }
  for (double& share : shares) share /= std::max(1.0, all);
  return shares;
}

Result<std::unique_ptr<ExpertStore>> make_split_expert_store(const ExpertTable& table,
                                                             std::span<const ExpertTable> tables,
                                                             const Device& device, HelpedSteps help,
                                                             const MakePartStore& make) {
  auto all = std::make_unique<SplitExpertStore>(table, tables, device, std::move(help));
  for (size_t part = 0; part < tables.size(); ++part) {
    MF_ASSIGN_OR_RETURN(std::unique_ptr<ExpertStore> store, make(part));
    all->add(std::move(store));
  }
  return std::unique_ptr<ExpertStore>(std::move(all));
}

}  // namespace moeflux
