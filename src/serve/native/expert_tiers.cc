#include "serve/native/expert_tiers.h"

#include <array>
#include <cstdint>
#include <functional>

#include "text/encoding/base64.h"

namespace moeflux::serve {
namespace {

// With more changes than one expert in this many, all experts are sent: eight take a byte there,
// and a change some ten.
constexpr size_t kChangedShare = 16;

/// Calls `visit` with the index of each layer that has experts, in a map, and their number.
void for_layers(const ExpertTable& experts, const ExpertMap& map,
                const std::function<void(size_t layer, size_t first, size_t count)>& visit) {
  for (size_t l = 0; l < experts.layers.size(); ++l) {
    const auto count = static_cast<size_t>(experts.layers[l].num_experts);
    if (count > 0) visit(l, l * static_cast<size_t>(map.num_experts), count);
  }
}

/// Bit e % 8 of byte e / 8 for each of `count`; empty where no bit is set.
std::string bit_set(size_t count, const std::function<bool(size_t)>& is_set) {
  std::string bytes((count + 7) / 8, '\0');
  bool any = false;
  for (size_t e = 0; e < count; ++e) {
    if (!is_set(e)) continue;
    bytes[e / 8] = static_cast<char>(static_cast<unsigned char>(bytes[e / 8]) | (1u << (e % 8)));
    any = true;
  }
  return any ? encode_base64(bytes) : std::string();
}

Json whole_layers(const ExpertTable& experts, const ExpertMap& map) {
  Json layers = Json::array();
  for_layers(experts, map, [&](size_t layer, size_t first, size_t count) {
    Json one = {{"layer", layer}};
    const auto add = [&](const char* name, ExpertPlace place) {
      std::string bits = bit_set(count, [&](size_t e) { return map.places[first + e] == place; });
      if (!bits.empty()) one[name] = std::move(bits);
    };
    add("gpu", ExpertPlace::kDevice);
    add("memory", ExpertPlace::kHost);
    layers.push_back(std::move(one));
  });
  return layers;
}

Json changes(const ExpertTable& experts, const ExpertMap& before, const ExpertMap& map) {
  Json changed = Json::array();
  for_layers(experts, map, [&](size_t layer, size_t first, size_t count) {
    for (size_t e = 0; e < count; ++e) {
      const ExpertPlace place = map.places[first + e];
      if (place == before.places[first + e]) continue;
      changed.push_back({layer, e, static_cast<int>(place)});
    }
  });
  return changed;
}

}  // namespace

void ExpertTiers::add_residency(Json& frame, const ExpertTable& experts,
                                const ExpertMap& map) const {
  Json residency = {{"model", model_}, {"experts", map.num_experts}, {"whole", !last_}};
  if (last_) {
    Json changed = changes(experts, *last_, map);
    if (changed.empty()) return;
    const bool is_much = changed.size() > map.places.size() / kChangedShare;
    residency["whole"] = is_much;
    if (!is_much) residency["changed"] = std::move(changed);
  }
  if (residency["whole"] == true) residency["layers"] = whole_layers(experts, map);
  frame["residency"] = std::move(residency);
}

void ExpertTiers::add_used(Json& frame, const ExpertTable& experts, const ExpertMap& map) const {
  if (!last_ || map.uses.empty() || last_->uses.size() != map.uses.size()) return;
  Json used = Json::array();
  for_layers(experts, map, [&](size_t layer, size_t first, size_t count) {
    std::string bits =
        bit_set(count, [&](size_t e) { return map.uses[first + e] > last_->uses[first + e]; });
    if (!bits.empty()) used.push_back({layer, std::move(bits)});
  });
  if (!used.empty()) frame["used"] = std::move(used);
}

void ExpertTiers::add_none(Json& frame) {
  last_ = nullptr;
  frame["tiers"] = nullptr;
}

void ExpertTiers::add(Json& frame, const std::string& model, const ExpertTable& experts,
                      const std::shared_ptr<const ExpertMap>& map) {
  if (!map) return add_none(frame);
  // A model that came again begins to count anew.
  if (model != model_ || (last_ && last_->number > map->number)) last_ = nullptr;
  model_ = model;
  std::array<uint64_t, 3> counts{};
  for_layers(experts, *map, [&](size_t, size_t first, size_t count) {
    for (size_t e = 0; e < count; ++e) ++counts[static_cast<size_t>(map->places[first + e])];
  });
  frame["tiers"] = {
      {"model", model}, {"gpu", counts[2]}, {"memory", counts[1]}, {"drive", counts[0]}};
  if (!by_id_ || last_ == map) return;
  add_residency(frame, experts, *map);
  add_used(frame, experts, *map);
  last_ = map;
}

Json experts_json(const ExpertTable& experts, const ExpertMap& map) {
  Json layers = Json::array();
  for_layers(experts, map, [&](size_t layer, size_t first, size_t count) {
    Json one = {{"layer", layer},
                {"experts", count},
                {"expert_bytes", experts.layers[layer].bytes_per_expert()},
                {"uses", nullptr}};
    if (!map.uses.empty()) {
      const auto begin = map.uses.begin() + static_cast<std::ptrdiff_t>(first);
      one["uses"] = std::vector<uint64_t>(begin, begin + static_cast<std::ptrdiff_t>(count));
    }
    layers.push_back(std::move(one));
  });
  return layers;
}

}  // namespace moeflux::serve
