#include "plan/layer_split.h"

#include <algorithm>
#include <utility>

#include "backend/trace/trace_device.h"
#include "base/check.h"
#include "plan/cost_model.h"
#include "plan/device_plan.h"
#include "plan/tier_cost.h"

namespace moeflux {
namespace {

// A request of 2048 tokens that gets 512. Its prompt takes as long as reading the weights of a
// token some 200 times with 18.4 multiply-adds for each byte that the memory gives and four bits a
// weight (see kAssumedMultiplyAdds in cli/commands/plan.cc).
constexpr double kTextTokens = 512.0;
constexpr double kPromptReads = 200.0;
// A card of the middle class behind PCIe 4 x16, where nobody knows better.
constexpr double kUsualBytesPerSecond = 400e9;
constexpr double kBusBytesPerSecond = 25e9;
constexpr int64_t kUsualContext = 4096;
constexpr int kRoundsMax = 32;
// All devices are taken where text is about as fast and something gains.
constexpr double kTextLoss = 1.03;
constexpr double kTextGain = 0.95;
constexpr double kPromptGain = 0.9;

/// Bytes of a device's layers.
struct Sum {
  double dense = 0.0;
  double head = 0.0;
  double state = 0.0;
  double experts = 0.0;
  double token_experts = 0.0;

  Sum& operator+=(const Sum& more) {
    dense += more.dense;
    head += more.head;
    state += more.state;
    experts += more.experts;
    token_experts += more.token_experts;
    return *this;
  }
};

Sum operator-(const Sum& a, const Sum& b) {
  return {a.dense - b.dense, a.head - b.head, a.state - b.state, a.experts - b.experts,
          a.token_experts - b.token_experts};
}

struct RequestCost {
  double token_seconds = 0.0;
  double prompt_seconds = 0.0;
};

RequestCost cost_of(const Sum& sum, const CardMemory& card) {
  const double speed = card.bytes_per_second > 0.0 ? card.bytes_per_second : kUsualBytesPerSecond;
  // A device without memory of its own has the host's.
  const double left = static_cast<double>(card.free_bytes) - static_cast<double>(card.taken_bytes);
  const double room = card.free_bytes == 0 ? sum.experts : left - sum.dense - sum.state;
  const double far_dense = std::max(0.0, -room);
  const double near = sum.experts > 0.0 ? std::clamp(room / sum.experts, 0.0, 1.0) : 1.0;
  const HitRange hits = natural_hit_rates(near);
  const double hit = near == 1.0 ? 1.0 : (hits.low + hits.high) / 2.0;
  const double far = far_dense + sum.token_experts * (1.0 - hit);
  const double active = sum.dense + sum.token_experts;
  RequestCost cost;
  cost.token_seconds = (active + sum.state - far) / speed + far / kBusBytesPerSecond;
  cost.prompt_seconds = std::max(kPromptReads * (active - sum.head) / speed,
                                 (far_dense + sum.experts * (1.0 - near)) / kBusBytesPerSecond);
  return cost;
}

/// Where each device's layers end, for sums of all layers before each.
class Division {
 public:
  Division(std::vector<Sum> before, std::span<const CardMemory> cards)
      : before_(std::move(before)), cards_(cards), ends_(cards.size(), before_.size() - 1) {}

  // Begins with shares of the memory; then each end moves to where the request costs least.
  const std::vector<size_t>& find() {
    start();
    double least = weighed();
    for (int round = 0; round < kRoundsMax; ++round) {
      bool is_better = false;
      for (size_t c = 0; c + 1 < ends_.size(); ++c) {
        size_t best = ends_[c];
        const size_t first = c == 0 ? 0 : ends_[c - 1];
        for (size_t at = first; at <= ends_[c + 1]; ++at) {
          ends_[c] = at;
          const double now = weighed();
          if (now >= least * (1.0 - 1e-9)) continue;
          least = now;
          best = at;
          is_better = true;
        }
        ends_[c] = best;
      }
      if (!is_better) break;
    }
    return ends_;
  }

  /// A token is on all devices in turn, and a prompt takes as long as on the slowest.
  RequestCost cost() const {
    RequestCost all;
    size_t first = 0;
    for (size_t c = 0; c < cards_.size(); ++c) {
      const RequestCost own = cost_of(before_[ends_[c]] - before_[first], cards_[c]);
      first = ends_[c];
      all.token_seconds += own.token_seconds;
      all.prompt_seconds = std::max(all.prompt_seconds, own.prompt_seconds);
    }
    return all;
  }

 private:
  void start() {
    double room = 0.0;
    for (const CardMemory& card : cards_) room += static_cast<double>(card.free_bytes);
    const auto bytes = [](const Sum& sum) { return sum.dense + sum.state + sum.experts; };
    double end = 0.0;
    for (size_t c = 0, at = 0; c + 1 < cards_.size(); ++c) {
      end += room > 0.0 ? static_cast<double>(cards_[c].free_bytes) / room
                        : 1.0 / static_cast<double>(cards_.size());
      // A layer goes where its middle lies.
      while (at + 1 < before_.size() &&
             (bytes(before_[at]) + bytes(before_[at + 1])) / 2 <= end * bytes(before_.back())) {
        ++at;
      }
      ends_[c] = at;
    }
  }
  double weighed() const {
    const RequestCost now = cost();
    return kTextTokens * now.token_seconds + now.prompt_seconds;
  }

  std::vector<Sum> before_;
  std::span<const CardMemory> cards_;
  std::vector<size_t> ends_;  // behind the last layer of each
};

struct Divided {
  std::vector<size_t> devices;
  RequestCost cost;
};

Divided divide(const ModelSpec& spec, std::span<const SplitLayer> layers,
               std::span<const CardMemory> cards) {
  MF_CHECK(layers.size() == spec.layers.size() && !cards.empty());
  // The earlier layer that it has to be with, or itself.
  const auto owner = [&](size_t layer) {
    while (true) {
      const LayerSpec& s = spec.layers[layer];
      const int64_t other = s.pass_over >= 0 ? s.pass_over
                            : s.mixer        ? s.mixer->reads_state_of()
                                             : -1;
      if (other < 0) return layer;
      layer = static_cast<size_t>(other);
    }
  };
  std::vector<Sum> sizes(layers.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    const SplitLayer& own = layers[i];
    sizes[owner(i)] += {static_cast<double>(own.dense), static_cast<double>(own.head),
                        static_cast<double>(own.state), static_cast<double>(own.experts),
                        static_cast<double>(own.token_experts)};
  }
  std::vector<Sum> before(1);
  for (const Sum& own : sizes) (before.emplace_back(before.back())) += own;
  Division division(std::move(before), cards);
  const std::vector<size_t>& ends = division.find();
  std::vector<size_t> devices(layers.size());
  for (size_t i = 0; i < devices.size(); ++i) {
    const auto end = std::ranges::upper_bound(ends, i);
    devices[i] = static_cast<size_t>(end - ends.begin());
  }
  for (size_t i = 0; i < devices.size(); ++i) devices[i] = devices[owner(i)];
  return {std::move(devices), division.cost()};
}

/// Each device's memory, and what of it is not for layers.
Result<std::vector<CardMemory>> cards_of(const LoadedModel& counted, const SplitSizes& sizes,
                                         const LayerSplitRequest& request) {
  uint64_t in_layers = sizes.table;
  for (const SplitLayer& layer : sizes.layers) in_layers += layer.dense;
  MF_ASSIGN_OR_RETURN(const uint64_t scratch,
                      part_scratch_bytes(counted, request.context_length, request.step_tokens));
  std::vector<CardMemory> cards;
  for (size_t i = 0; i < request.free_bytes.size(); ++i) {
    const uint64_t bytes = request.free_bytes[i];
    cards.push_back({.free_bytes = bytes,
                     .taken_bytes = scratch + (counted.dense.placed_bytes - in_layers) +
                                    device_reserve(bytes)});
    if (i == 0) cards.back().taken_bytes += sizes.table;
    if (i < request.bytes_per_second.size()) {
      cards.back().bytes_per_second = request.bytes_per_second[i];
    }
  }
  return cards;
}

}  // namespace

std::vector<size_t> split_layers(const ModelSpec& spec, std::span<const SplitLayer> layers,
                                 std::span<const CardMemory> cards) {
  return divide(spec, layers, cards).devices;
}

SplitSizes split_sizes(const LoadedModel& counted, int64_t context_length, int64_t step_tokens) {
  SplitSizes sizes;
  std::vector<SplitLayer>& layers = sizes.layers;
  for (const LayerStateSpec& state : counted.states()) {
    const size_t i = layers.size();
    SplitLayer& own = layers.emplace_back();
    own.state = SequenceState::bytes_held(state, context_length, step_tokens);
    if (i < counted.dense.layer_bytes.size()) own.dense = counted.dense.layer_bytes[i];
  }
  sizes.table = std::min(layers.front().dense, counted.dense.lookup_bytes);
  layers.front().dense -= sizes.table;
  for (const ClaimedModule& module : counted.modules) {
    if (module.canonical == "lm_head" && module.beside) layers.back().head = module.placed_bytes;
  }
  for (size_t i = 0; i < counted.experts.layers.size(); ++i) {
    const ExpertLayer& layer = counted.experts.layers[i];
    layers[i].experts = static_cast<uint64_t>(layer.num_experts) * layer.slot_bytes;
    if (layer.num_experts == 0) continue;
    layers[i].token_experts =
        static_cast<uint64_t>(counted.spec().layers[i].moe.experts_per_token) * layer.slot_bytes;
  }
  return sizes;
}

Result<std::vector<size_t>> split_layers(const LoadedModel& counted,
                                         const LayerSplitRequest& request) {
  const SplitSizes sizes = split_sizes(counted, request.context_length, request.step_tokens);
  MF_ASSIGN_OR_RETURN(const std::vector<CardMemory> cards, cards_of(counted, sizes, request));
  return split_layers(counted.spec(), sizes.layers, cards);
}

Result<bool> gains_from_all(const LoadedModel& counted, const LayerSplitRequest& request) {
  const SplitSizes sizes = split_sizes(counted, request.context_length, request.step_tokens);
  MF_ASSIGN_OR_RETURN(const std::vector<CardMemory> cards, cards_of(counted, sizes, request));
  RequestCost one = divide(counted.spec(), sizes.layers, std::span(cards).first(1)).cost;
  RequestCost all = divide(counted.spec(), sizes.layers, cards).cost;
  const double launches = kLayerSeconds * static_cast<double>(sizes.layers.size());
  one.token_seconds += launches;
  all.token_seconds += launches + kHandOverSeconds * static_cast<double>(cards.size() - 1);
  if (all.token_seconds > kTextLoss * one.token_seconds) return false;
  return all.token_seconds < kTextGain * one.token_seconds ||
         all.prompt_seconds < kPromptGain * one.prompt_seconds;
}

Result<bool> gains_from_all(const std::string& directory, Device& devices, const ModelUse& use) {
  const std::unique_ptr<Device> trace = make_trace_device(&devices);
  MF_ASSIGN_OR_RETURN(const std::unique_ptr<LoadedModel> counted,
                      load_model(directory, *trace, WeightLoading::kCheckOnly, {}, {}, use));
  LayerSplitRequest request{
      .free_bytes = devices.free_bytes_by_part(),
      .context_length = std::min(counted->spec().max_position_embeddings, kUsualContext)};
  request.step_tokens = std::min(request.context_length, devices.preferred_prefill_chunk());
  for (size_t i = 0; i < request.free_bytes.size(); ++i) {
    request.bytes_per_second.push_back(devices.part(i).memory_bytes_per_second());
  }
  return gains_from_all(*counted, request);
}

}  // namespace moeflux
