#include "plan/forecast.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "experts/stores/tiered_expert_store.h"
#include "plan/dry_run.h"
#include "plan/model_sizes.h"
#include "quant/format_traits.h"

namespace moeflux {
namespace {

/// How many bits of affine groups take an H100 as long as one weight of GGML's types does in a
/// single token: blocks are unpacked meanwhile. The first six are from whole models of 40 layers
/// (benchmarks/results, 2026-11-27-files and -types): their tokens less what layers take to begin.
/// The others are from stored bytes read a second beside those of affine groups. Doubtful on other
/// GPUs: an H200 reads more, and unpacks no faster.
struct TokenBits {
  std::string_view format;
  double bits;
};
constexpr std::array kTokenBits = {
    TokenBits{"q4_0", 6.4},   TokenBits{"q4_k", 6.7},   TokenBits{"q2_0", 7.0},
    TokenBits{"iq2_xs", 7.7}, TokenBits{"iq4_xs", 9.7}, TokenBits{"iq3_s", 10.9},
    TokenBits{"iq1_m", 7.6},  TokenBits{"tq1_0", 8.0},  TokenBits{"q6_k", 8.8}};
/// Types that were not measured are taken for this, between the least and the most.
constexpr double kTokenBitsElse = 7.0;

/// Prompts of these types are multiplied at so much of the rate of affine groups, by which a
/// device's arithmetic is measured. Forecasts of 17,700 tokens/s came to 13,100 (IQ3_S, MXFP4) to
/// 14,800 (Q4_K) on one H100, and to 14,700 to 16,400 on another.
constexpr double kPromptShareOfBlocks = 0.8;
/// FP8 and plain numbers are not multiplied on matrix units: 0.20 and 0.26 of the prompts of affine
/// groups on an H200 (benchmarks/results, 2026-11-28-fp8).
constexpr double kPromptShareInF32 = 0.2;

/// Products read weights in place once for each tile of so many tokens.
constexpr double kTileTokens = 64.0;

bool has_blocks(const ExpertTable& experts) {
  return std::ranges::any_of(experts.layers, [](const ExpertLayer& layer) {
    return layer.num_experts > 0 && layer.down.format.kind->block.elements > 0;
  });
}

/// StepWork::arithmetic_share of a prompt.
double prompt_share(const ExpertTable& experts) {
  if (has_blocks(experts)) return kPromptShareOfBlocks;
  const bool is_affine = std::ranges::all_of(experts.layers, [](const ExpertLayer& layer) {
    return layer.num_experts == 0 || layer.down.format.is_affine();
  });
  return is_affine ? 1.0 : kPromptShareInF32;
}

double token_bits(const Weight& weight) {
  const auto* const found =
      std::ranges::find(kTokenBits, weight.format.kind->name, &TokenBits::format);
  return found == kTokenBits.end() ? kTokenBitsElse : found->bits;
}

/// The mean of an expert's weights; files mix types by layer and by matrix.
double mean_token_bits(const ExpertTable& experts) {
  double bits = 0.0;
  double matrices = 0.0;
  for (const ExpertLayer& layer : experts.layers) {
    if (layer.num_experts == 0) continue;
    bits += 2.0 * token_bits(layer.up) + token_bits(layer.down);
    matrices += 3.0;
  }
  return bits / matrices;
}

Result<StepWork> work_of_step(const LoadedModel& model, int64_t tokens, int64_t length) {
  MF_ASSIGN_OR_RETURN(const DryRun dry, dry_run(*model.model, tokens, 1));
  StepWork work{
      .dense_bytes = static_cast<double>(dry.weight_bytes) + state_bytes_seen(model, length),
      .expert_bytes = expected_expert_bytes(model, tokens),
      .multiply_adds = static_cast<double>(dry.multiply_adds),
      .layers = static_cast<double>(model.spec().layers.size())};
  for (size_t i = 0; i < model.experts.layers.size(); ++i) {
    const ExpertLayer& layer = model.experts.layers[i];
    if (layer.num_experts == 0) continue;
    const int64_t top_k = model.spec().layers[i].moe.experts_per_token;
    work.expert_multiply_adds +=
        static_cast<double>(tokens * top_k) * static_cast<double>(layer.parameters_per_expert());
  }
  work.multiply_adds += work.expert_multiply_adds;
  return work;
}

/// Dense weights that are not where they compute are to the cost model as experts that every token
/// uses and no cache holds.
void leave_on_drive(StepWork& work, uint64_t bytes) {
  work.dense_bytes -= static_cast<double>(bytes);
  work.expert_bytes += static_cast<double>(bytes);
}
/// The same of weights that a device reads in the host's memory.
TierShares leave_on_host(StepWork& work, uint64_t bytes) {
  work.expert_bytes = std::exchange(work.dense_bytes, 0.0);
  const double far = std::min(1.0, static_cast<double>(bytes) / work.expert_bytes);
  return {.near = 1.0 - far, .far = far, .drive = 0.0};
}

// Networks are copied ahead of their layers; where most is not of them, all is read in place.
void read_far_dense(TierStep& step, const FarDense& far, int64_t tokens) {
  step.found = leave_on_host(step.work, far.bytes);
  step.far_reads = 2 * far.network_bytes > far.bytes ? FarReads::kRing : FarReads::kInPlace;
  if (step.far_reads == FarReads::kRing) {
    step.work.expert_multiply_adds = step.work.multiply_adds;
  } else {
    step.passes = std::ceil(static_cast<double>(tokens) / kTileTokens);
  }
}

/// The least time of all ways to divide networks between the device and a processor.
TierCost least_cost(TierStep step, const FarDense& far, const TierSpeeds& speeds) {
  TierCost least = cost_on_tiers(step, speeds);
  if (!far.has_helper || step.far_reads != FarReads::kRing) return least;
  for (const DeviceEighths device : {0, 2, 4, 6}) {
    step.helped = 1.0 - static_cast<double>(device) / kDeviceAlone;
    const TierCost cost = cost_on_tiers(step, speeds);
    if (cost.total_seconds < least.total_seconds) least = cost;
  }
  return least;
}

double device_share_of(const LoadedModel& model, const StepWork& token) {
  if (!has_blocks(model.experts)) return 1.0;
  const double least = token.multiply_adds * mean_token_bits(model.experts) / 8;
  return std::min(1.0, (token.dense_bytes + token.expert_bytes) / least);
}

DecodeForecast decode_of(const StepWork& work, double hit_rate, const MachineSpeeds& speeds) {
  return {hit_rate, (1.0 - hit_rate) * work.expert_bytes, cost_of(work, hit_rate, speeds)};
}

/// How many experts each memory holds, of how many.
struct TierSlots {
  double near = 0.0;
  double far = 0.0;
};

TierSlots slots_of(const LoadedModel& model, const ExpertPlan& plan) {
  const auto all = static_cast<double>(model.experts.num_experts_total());
  const uint64_t slot_bytes = model.experts.slot_bytes_max();
  if (plan.home == ExpertHome::kDevice || slot_bytes == 0) return {1.0, 0.0};
  const auto share = [&](uint64_t bytes) { return static_cast<double>(bytes / slot_bytes) / all; };
  const double near = std::min(1.0, share(plan.near_bytes));
  return {near, std::min(1.0 - near, share(plan.far_bytes))};
}

// The device has the experts that are used most, and the host the most used of the others.
TierShares found_in(const TierSlots& slots, double (*hits)(double fraction)) {
  const double near = hits(slots.near);
  const double both = std::max(near, hits(std::min(1.0, slots.near + slots.far)));
  return {near, both - near, 1.0 - both};
}

// A prompt goes through the ring where its choices are twice a layer's experts; products read
// experts in place once for each tile of 64 tokens. Tiles that are part empty cost what tiles of 32
// would: 512 tokens of a model with 16 for an expert run at 0.63 of the rate of 4096.
TierStep prompt_step(const LoadedModel& model, const ExpertPlan& plan, const StepWork& work,
                     int64_t tokens) {
  constexpr double kFilledTokens = 32.0;
  TierStep step{.work = work};
  double choices = 0.0;  // of an expert
  for (size_t i = 0; i < model.experts.layers.size(); ++i) {
    const ExpertLayer& layer = model.experts.layers[i];
    if (layer.num_experts == 0) continue;
    choices = static_cast<double>(tokens * model.spec().layers[i].moe.experts_per_token) /
              static_cast<double>(layer.num_experts);
  }
  const bool in_ring =
      plan.home == ExpertHome::kDevice ||
      (plan.home == ExpertHome::kHostAndDevice && plan.ring_bytes > 0 && choices >= kRingChoices);
  if (choices > 0.0) {
    step.tiles_filled = choices / (std::ceil(choices / kFilledTokens) * kFilledTokens);
  }
  step.far_reads = in_ring ? FarReads::kRing : FarReads::kInPlace;
  if (!in_ring) step.passes = std::ceil(std::max(1.0, choices / kTileTokens));
  return step;
}

PromptForecast prompt_of(const StepWork& work, int64_t tokens, double hit_rate,
                         const MachineSpeeds& speeds) {
  return {tokens, (1.0 - hit_rate) * work.expert_bytes, cost_of(work, hit_rate, speeds)};
}

}  // namespace

Result<Forecast> forecast(const LoadedModel& model, const MemoryPlan& plan, int64_t context,
                          int64_t prompt_tokens, const MachineSpeeds& speeds) {
  MF_ASSIGN_OR_RETURN(StepWork token, work_of_step(model, 1, std::max<int64_t>(1, context / 2)));
  MF_ASSIGN_OR_RETURN(StepWork prompt, work_of_step(model, prompt_tokens, prompt_tokens));
  const bool streams = plan.streamed_bytes > 0;
  leave_on_drive(token, plan.streamed_bytes);
  leave_on_drive(prompt, plan.streamed_bytes);
  const uint64_t slots_bytes = plan.expert_slot_bytes * model.experts.num_experts_total();
  Forecast result;
  result.cached_share = slots_bytes == 0
                            ? (streams ? 0.0 : 1.0)
                            : std::min(1.0, static_cast<double>(plan.expert_cache_bytes) /
                                                static_cast<double>(slots_bytes));
  const HitRange natural = natural_hit_rates(result.cached_share);
  result.uniform = decode_of(token, result.cached_share, speeds);
  result.natural_low = decode_of(token, natural.low, speeds);
  result.natural_high = decode_of(token, natural.high, speeds);
  result.cold_prompt = prompt_of(prompt, prompt_tokens, 0.0, speeds);
  result.warm_prompt = prompt_of(prompt, prompt_tokens, result.cached_share, speeds);
  // Layers are read ahead whatever computes.
  for (DecodeForecast* decode : {&result.uniform, &result.natural_low, &result.natural_high}) {
    if (streams) decode->cost.in_layer_seconds = decode->cost.bound_seconds;
  }
  return result;
}

Result<TierForecast> forecast_tiers(const LoadedModel& model, const ExpertPlan& experts,
                                    int64_t context, std::span<const int64_t> prompts,
                                    const TierSpeeds& speeds, const FarDense& far) {
  MF_ASSIGN_OR_RETURN(StepWork token, work_of_step(model, 1, std::max<int64_t>(1, context / 2)));
  token.device_share = device_share_of(model, token);
  const TierSlots slots = slots_of(model, experts);
  const auto same = [](double fraction) { return fraction; };
  const auto decode = [&](double (*hits)(double fraction)) {
    const bool on_drive = experts.home == ExpertHome::kDrive;
    TierStep step{.work = token,
                  .found = found_in(slots, hits),
                  .far_reads = on_drive ? FarReads::kInPlace : FarReads::kFetched,
                  .experts_move = slots.near > 0.0 && far.bytes == 0};
    if (far.bytes > 0) read_far_dense(step, far, 1);
    return TierStepForecast{
        .tokens = 1, .found = step.found, .cost = least_cost(step, far, speeds)};
  };
  TierForecast result{.near_share = slots.near, .far_share = slots.far};
  result.uniform = decode(same);
  result.natural_low = decode([](double f) { return natural_hit_rates(f).low; });
  result.natural_high = decode([](double f) { return natural_hit_rates(f).high; });
  for (const int64_t tokens : prompts) {
    MF_ASSIGN_OR_RETURN(StepWork work, work_of_step(model, tokens, tokens));
    work.arithmetic_share = prompt_share(model.experts);
    TierStep step = prompt_step(model, experts, work, tokens);
    step.found = found_in(slots, same);
    if (far.bytes > 0) read_far_dense(step, far, tokens);
    result.prompts.push_back(
        {.tokens = tokens, .found = step.found, .cost = cost_on_tiers(step, speeds)});
  }
  return result;
}

std::string explain_limit(CostLimit limit) {
  switch (limit) {
    case CostLimit::kDrive:
      return "the drive: weights that are not in memory have to be read; a faster drive or more "
             "memory for them helps, a faster processor does not";
    case CostLimit::kMemory:
      return "memory bandwidth: every token reads the weights it uses once; faster memory or fewer "
             "bits a weight help, a faster drive does not";
    case CostLimit::kCompute:
      return "the processor: more or faster cores, or a GPU, help; a faster drive does not";
  }
  __builtin_unreachable();
}

std::string explain_limit(TierLimit limit) {
  switch (limit) {
    case TierLimit::kDevice:
      return "the device's memory: every token reads the weights it uses once";
    case TierLimit::kLaunches:
      return "launches: what begins and ends the work of a layer takes longer than the work";
    case TierLimit::kCompute:
      return "the device's arithmetic";
    case TierLimit::kBus:
      return "the bus: weights that are not in the device's memory come over it; more memory on "
             "the "
             "device or a wider bus help";
    case TierLimit::kMemory:
      return "the host's memory, which weights are read from";
    case TierLimit::kDrive:
      return explain_limit(CostLimit::kDrive);
  }
  __builtin_unreachable();
}

}  // namespace moeflux
