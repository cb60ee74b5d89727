#include "chat/tuning.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <vector>

#include "base/format.h"
#include "base/nearest.h"
#include "base/units.h"
#include "chat/drafts/mtp_drafts.h"

namespace moeflux {
namespace {

struct KnownKey {
  TuningKey shown;
  Status (*set)(std::string_view value, const TuningTarget& target);
};

Error unexpected(std::string_view value, std::string_view expected) {
  return make_error(ErrorCode::kInvalidArgument, "is '{}', expected {}", value, expected);
}

Status set_switch(std::string_view value, bool& into) {
  if (value != "on" && value != "off") return unexpected(value, "on or off");
  into = value == "on";
  return {};
}

Status set_count(std::string_view value, int64_t least, int64_t most, int64_t& into) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || number < least ||
      number > most) {
    return unexpected(value, formatted("{} to {}", least, most));
  }
  into = number;
  return {};
}

Status set_cache_policy(std::string_view value, const TuningTarget& target) {
  const std::optional<CachePolicy> policy = parse_cache_policy(value);
  if (!policy) return unexpected(value, "lfu or lru");
  target.engine.eviction.policy = *policy;
  return {};
}

Status set_cpu_isa(std::string_view value, const TuningTarget& target) {
  target.device.isa = value;  // which ones there are is the device's to say
  return {};
}

Status set_draft(std::string_view value, const TuningTarget& target) {
  if (value == "off") {
    target.drafts.mode = DraftMode::kOff;
  } else if (value == "auto") {
    target.drafts.mode = DraftMode::kAuto;
  } else if (value == "on") {
    target.drafts.mode = DraftMode::kOn;
  } else {
    return unexpected(value, "off, auto or on");
  }
  return {};
}

Status set_draft_model(std::string_view value, const TuningTarget& target) {
  target.drafts.model = value == "none" ? "" : value;
  return {};
}

Status set_draft_max(std::string_view value, const TuningTarget& target) {
  return set_count(value, 1, kDraftTokensMax, target.drafts.tokens_max);
}

Status set_draft_mtp(std::string_view value, const TuningTarget& target) {
  MF_RETURN_IF_ERROR(set_count(value, 0, kMtpTokensMax, target.drafts.mtp_tokens));
  target.engine.draft_layer = target.drafts.mtp_tokens > 0;
  return {};
}

Status set_expert_io(std::string_view value, const TuningTarget& target) {
  MF_ASSIGN_OR_RETURN(target.engine.expert_io, parse_io_mode(value));
  return {};
}

Status set_lookahead(std::string_view value, const TuningTarget& target) {
  const std::optional<LookaheadMode> mode = parse_lookahead_mode(value);
  if (!mode) return unexpected(value, "auto, on or off");
  target.engine.lookahead = *mode;
  return {};
}

Status set_near_cache(std::string_view value, const TuningTarget& target) {
  target.engine.near_cache_bytes.reset();
  if (value == "auto") return {};
  MF_ASSIGN_OR_RETURN(target.engine.near_cache_bytes, parse_bytes(value));
  return {};
}

Status set_numa(std::string_view value, const TuningTarget& target) {
  constexpr std::array<std::string_view, 5> kNames = {"auto", "off", "distribute", "isolate",
                                                      "numactl"};
  if (std::ranges::find(kNames, value) == kNames.end()) {
    return unexpected(value, "auto, off, distribute, isolate or numactl");
  }
  target.device.numa = value;
  return {};
}

Status set_pin(std::string_view value, const TuningTarget& target) {
  return set_switch(value, target.device.pin_threads);
}

Status set_plan(std::string_view value, const TuningTarget& target) {
  MF_ASSIGN_OR_RETURN(target.engine.plan, parse_plan_mode(value));
  return {};
}

Status set_precision(std::string_view value, const TuningTarget& target) {
  constexpr std::array<std::string_view, 4> kNames = {"auto", "f32", "int8", "q16"};
  if (std::ranges::find(kNames, value) == kNames.end()) {
    return unexpected(value, "auto, f32, int8 or q16");
  }
  target.device.precision = value;
  return {};
}

Status set_prefill_chunk(std::string_view value, const TuningTarget& target) {
  return set_count(value, 0, int64_t{1} << 20, target.engine.prefill_chunk);
}

Status set_reader_threads(std::string_view value, const TuningTarget& target) {
  int64_t threads = 0;
  MF_RETURN_IF_ERROR(set_count(value, 1, 1024, threads));
  target.engine.reader_threads = static_cast<int>(threads);
  return {};
}

Status set_split(std::string_view value, const TuningTarget& target) {
  MF_ASSIGN_OR_RETURN(target.engine.split, parse_split_mode(value));
  return {};
}

Status set_stream_dense(std::string_view value, const TuningTarget& target) {
  return set_switch(value, target.engine.stream_dense);
}

Status set_trust_experts(std::string_view value, const TuningTarget& target) {
  bool trusted = false;
  MF_RETURN_IF_ERROR(set_switch(value, trusted));
  target.engine.check_experts = !trusted;
  return {};
}

constexpr std::array kKeys = std::to_array<KnownKey>({
    {{"cache-policy", "lfu, lru", "lfu",
      "Experts that stay cached: the most used or the last used"},
     set_cache_policy},
    {{"cpu-isa", "portable, generic, avx2, avx-vnni, avx512, avx512-vnni, avx512-amx, neon, ...",
      "the fastest", "CPU kernels; portable gives the same bits on every CPU"},
     set_cpu_isa},
    {{"draft", "off, auto, on", "auto",
      "Steps of several tokens where a text repeats itself; auto: where that pays"},
     set_draft},
    {{"draft-max", "N", "64", "Tokens of a draft at most"}, set_draft_max},
    {{"draft-model", "PATH", "none",
      "Folder or GGUF file of a small model with the same vocabulary, which drafts as well"},
     set_draft_model},
    {{"draft-mtp", "0 to 3", "0",
      "Tokens that the model's own MTP layer drafts where the text repeats nothing"},
     set_draft_mtp},
    {{"expert-io", "auto, uring, direct, pread", "auto", "How experts are read from the drive"},
     set_expert_io},
    {{"lookahead", "auto, on, off", "auto", "Reading experts before their router asks for them"},
     set_lookahead},
    {{"near-cache", "auto, SIZE", "auto", "GPU memory for experts"}, set_near_cache},
    {{"numa", "auto, off, distribute, isolate, numactl", "auto",
      "CPU threads and memory on nodes of memory; auto: distributed over all"},
     set_numa},
    {{"pin", "on, off", "off", "A core of its own for each compute thread of the CPU"}, set_pin},
    {{"plan", "auto, resident, near, helper, shared", "auto",
      "Where experts are computed with a GPU"},
     set_plan},
    {{"precision", "auto, f32, int8, q16", "auto",
      "CPU activations against quantised weights; q16 computes as GPUs do"},
     set_precision},
    {{"prefill-chunk", "N", "0", "Tokens of a prompt evaluated together; 0: as suits the device"},
     set_prefill_chunk},
    {{"reader-threads", "N", "8", "Threads that read experts, where expert-io has threads"},
     set_reader_threads},
    {{"split", "layers, experts, attention", "layers",
      "The parts that each of several GPUs has: layers, or a share of their experts or heads too"},
     set_split},
    {{"stream-dense", "on, off", "off",
      "Layers of dense models that do not fit memory are read from the drive for every step"},
     set_stream_dense},
    {{"trust-experts", "on, off", "off", "Skip the checksums of a pack's experts"},
     set_trust_experts},
});

constexpr auto kShown = [] {
  std::array<TuningKey, kKeys.size()> keys;
  std::ranges::transform(kKeys, keys.begin(), [](const KnownKey& key) { return key.shown; });
  return keys;
}();

}  // namespace

std::span<const TuningKey> tuning_keys() { return kShown; }

Status set_tuning(std::string_view key, std::string_view value, const TuningTarget& target) {
  std::string name(key);
  std::ranges::replace(name, '_', '-');
  for (const KnownKey& known : kKeys) {
    if (known.shown.name == name) return known.set(value, target);
  }
  std::vector<std::string_view> names;
  for (const TuningKey& known : kShown) names.push_back(known.name);
  return make_error(ErrorCode::kInvalidArgument, "no such key of tuning{}",
                    did_you_mean(name, names));
}

Status apply_tuning(std::string_view text, const TuningTarget& target) {
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    const std::string_view entry = text.substr(0, end);
    const size_t equals = entry.find('=');
    if (equals == std::string_view::npos) {
      return make_error(ErrorCode::kInvalidArgument, "'{}' is not key=value", entry);
    }
    const std::string_view key = entry.substr(0, equals);
    const Status set = set_tuning(key, entry.substr(equals + 1), target);
    if (!set.ok()) return set.error().with_context(key);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return {};
}

}  // namespace moeflux
