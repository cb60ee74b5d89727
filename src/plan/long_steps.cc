#include "plan/long_steps.h"

#include <algorithm>

#include "plan/dry_run.h"

namespace moeflux {
namespace {

// Experts of the 35B shape are 17 GiB. With 10 GiB of memory a step of 512 tokens brings 20 MiB a
// token, one of 2048 5, and its activations are a thirtieth of what the cache had. Text pays for
// them: an eighth of a cache costs gpt-oss-20b on 16 GB a seventh of its tokens/s by forecast.
constexpr uint64_t kCacheShareOfStep = 16;
// Near experts are those used most: of gpt-oss-120b on 32 GB a step of 8192 takes 3 % of their
// memory and, by forecast, 7 % of the speed of text.
constexpr uint64_t kNearShareOfStep = 40;
// Bytes for each multiply-add of a token, below which they arrive before arithmetic is done. An
// H200 multiplies some 57e12 times a second in prompts of the 35B and its bus brings 55 GB/s.
// Smaller GPUs have more bus for their arithmetic, and processors more drive: 2 GB/s for 1e12 or
// less.
constexpr double kBytesEnough = 1.0 / 1024;
// Ctrl-C and requests that arrive wait for the end of a step. A device prefers steps of some
// seconds at most, and these have so many times their tokens, fewer on a processor: 512 tokens
// of the 35B take two cores and a drive 7 s.
constexpr int64_t kLongTimesOfHost = 4;
constexpr int64_t kLongTimesMax = 8;
constexpr int64_t kLongTokensMax = 16384;

// Activations, logits, and the state with its rings of windows, in whichever memory.
Result<uint64_t> step_bytes(const LoadedModel& model, int64_t context, int64_t tokens) {
  MF_ASSIGN_OR_RETURN(const DryRun needs,
                      dry_run(*model.model, tokens, logits_rows_max(model.spec(), tokens)));
  return needs.scratch_bytes + step_buffers_bytes(model.spec(), tokens) +
         state_bytes(model, context, tokens);
}

uint64_t without(uint64_t bytes, uint64_t taken) { return bytes - std::min(bytes, taken); }

// A longer step may take so much of the `left` memory of experts, of which `asked` were asked for.
uint64_t room_of(uint64_t left, uint64_t asked, uint64_t share) {
  return std::min(left / share, without(left, asked));
}

// A token of a prompt needs no logits.
Result<double> multiply_adds(const LoadedModel& model) {
  MF_ASSIGN_OR_RETURN(const DryRun token, dry_run(*model.model, 1, 0));
  auto all = static_cast<double>(token.multiply_adds);
  for (size_t i = 0; i < model.experts.layers.size(); ++i) {
    const ExpertLayer& layer = model.experts.layers[i];
    if (layer.num_experts == 0) continue;
    all += static_cast<double>(model.spec().layers[i].moe.experts_per_token) *
           static_cast<double>(layer.parameters_per_expert());
  }
  return all;
}

struct Brought {
  uint64_t bytes = 0;       // to a step, at most
  uint64_t room_bytes = 0;  // for a longer one
};

Brought from_drive(const LongStepRequest& request) {
  const MemoryPlan& memory = request.memory;
  return {without(memory.experts_bytes, memory.expert_cache_bytes),
          room_of(without(memory.available_bytes, memory.taken_bytes()),
                  request.experts.expert_cache_bytes.value_or(0), kCacheShareOfStep)};
}

// Products read experts in place once for each tile of tokens, and those of a ring once for a step.
Brought over_bus(const LoadedModel& counted, const LongStepRequest& request) {
  const ExpertPlan plan =
      plan_experts(counted.experts, request.memory, request.devices, request.experts);
  if (plan.home != ExpertHome::kHostAndDevice || plan.ring_bytes == 0) return {};
  // The host goes on holding all of them, wherever a step's memory is counted.
  const MemoryPlan& memory = request.memory;
  uint64_t room = without(memory.available_bytes, memory.taken_bytes() + plan.far_bytes);
  for (size_t i = 0; i < request.devices.size(); ++i) {
    const DeviceMemory& device = request.devices[i];
    const PartExperts& part = plan.parts[i];
    const bool is_fixed = request.experts.near_cache_bytes || part.holds_all;
    const uint64_t fixed = is_fixed ? part.near_bytes + part.ring_bytes : 0;
    const uint64_t left = without(device.free_bytes, device.taken_bytes);
    room = std::min(room, room_of(left, fixed, kNearShareOfStep));
  }
  return {without(memory.experts_bytes, plan.near_bytes), room};
}

}  // namespace

Result<int64_t> lengthen_step(const LoadedModel& counted, const LongStepRequest& request) {
  int64_t tokens = request.step_tokens;
  if (counted.experts.num_experts_total() == 0) return tokens;
  const Brought brought =
      request.devices.empty() ? from_drive(request) : over_bus(counted, request);
  const int64_t times = request.devices.empty() ? kLongTimesOfHost : kLongTimesMax;
  const int64_t longest = std::min({request.tokens_max, kLongTokensMax, times * tokens});
  if (brought.room_bytes == 0 || longest <= tokens) return tokens;
  MF_ASSIGN_OR_RETURN(const double work, multiply_adds(counted));
  MF_ASSIGN_OR_RETURN(const uint64_t before, step_bytes(counted, request.context_length, tokens));
  while (tokens < longest) {
    const double enough = kBytesEnough * work * static_cast<double>(tokens);
    if (static_cast<double>(brought.bytes) <= enough) break;
    const int64_t next = std::min(2 * tokens, longest);
    MF_ASSIGN_OR_RETURN(const uint64_t bytes, step_bytes(counted, request.context_length, next));
    if (bytes > before + brought.room_bytes) break;
    tokens = next;
  }
  return tokens;
}

std::vector<DeviceMemory> memory_beside(const DevicePlan& plan,
                                        std::span<const uint64_t> free_bytes,
                                        std::span<const ExpertTable> tables, bool copies_beside) {
  std::vector<DeviceMemory> devices;
  for (size_t i = 0; i < plan.parts.size(); ++i) {
    const PartPlan& own = plan.parts[i];
    devices.push_back({.free_bytes = without(free_bytes[i], own.dense_bytes + own.scratch_bytes),
                       .taken_bytes = own.state_bytes + own.reserve_bytes,
                       .copies_beside = copies_beside,
                       .experts = tables.empty() ? nullptr : &tables[i]});
  }
  return devices;
}

}  // namespace moeflux
