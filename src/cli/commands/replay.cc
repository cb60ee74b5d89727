// moeflux replay: what a cache of a given size would have hit on a recorded run, beside what an
// LRU and a cache that knows the future would have.
#include "lab/replay.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/format.h"
#include "base/json.h"
#include "base/units.h"
#include "cli/commands/command.h"
#include "cli/commands/replay_points.h"
#include "cli/terminal.h"

namespace moeflux {
namespace replay_command {
namespace {

struct Options {
  std::string trace;
  std::vector<std::string> caches;  // empty: usual ones, or all behind near slots
  std::vector<std::string> near;
  std::string policy = "lfu";
  double decay = EvictionPolicyOptions{}.decay;
  double prefill_weight = EvictionPolicyOptions{}.prefill_weight;
  bool token_by_token = false;
  bool staging = false;
  bool json = false;
};

/// Results for one cache size.
struct Line {
  double percent = 0.0;  // of the experts of all routed layers
  size_t slots = 0;
  ReplayResult chosen;
  ReplayResult lru;
  ReplayResult belady;
};

// "12%" of all experts, a number of slots, or bytes, "4GiB", where the trace says what experts
// take.
Result<size_t> parse_slots(std::string_view option, const std::string& text,
                           const RouteTrace& trace, uint64_t num_experts) {
  const bool percent = !text.empty() && text.back() == '%';
  const std::string number = percent ? text.substr(0, text.size() - 1) : text;
  char* end = nullptr;
  const double value = std::strtod(number.c_str(), &end);
  const bool valid = !number.empty() && *end == '\0' && value > 0.0 && value < 1e9;
  if (valid && !(percent && value > 100.0)) {
    const double slots = percent ? value / 100.0 * static_cast<double>(num_experts) : value;
    return std::clamp<size_t>(static_cast<size_t>(slots + 0.5), 1, num_experts);
  }
  const std::vector<uint64_t>& sizes = trace.header().expert_bytes;
  const uint64_t slot_bytes = sizes.empty() ? 0 : *std::max_element(sizes.begin(), sizes.end());
  const Result<uint64_t> bytes = parse_bytes(text);
  if (percent || !bytes.ok() || *bytes == 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{} {}: expected a share like 12%, a number of slots, or bytes like 4GiB",
                      option, text);
  }
  if (slot_bytes == 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{} {}: the trace does not say how many bytes an expert takes; give a share "
                      "like 12% or a number of slots",
                      option, text);
  }
  return std::clamp<size_t>(*bytes / slot_bytes, 1, num_experts);
}

Line measure(const RouteTrace& trace, const Options& options, size_t slots, uint64_t experts) {
  ReplayOptions replayed{
      .num_slots = slots,
      .eviction = {.decay = options.decay, .prefill_weight = options.prefill_weight},
      .staging = options.staging};
  if (options.token_by_token) replayed.prompt = PromptReplay::kTokenByToken;
  Line line{.percent = 100.0 * static_cast<double>(slots) / static_cast<double>(experts),
            .slots = slots};
  replayed.eviction.policy = CachePolicy::kLru;
  line.lru = replay(trace, replayed);
  line.belady = replay_belady(trace, replayed);
  if (const auto policy = parse_cache_policy(options.policy)) {
    replayed.eviction.policy = *policy;
    line.chosen = replay(trace, replayed);
  } else {
    line.chosen = replay_page_cache(trace, replayed);
  }
  return line;
}

double per_token(uint64_t count, uint64_t tokens) {
  return tokens == 0 ? 0.0 : static_cast<double>(count) / static_cast<double>(tokens);
}
double per_token(uint64_t count, const ReplayCounts& counts) {
  return per_token(count, counts.tokens);
}

Json to_json(const Line& line) {
  const ReplayCounts& decode = line.chosen.decode;
  return {{"cache_percent", line.percent},
          {"slots", line.slots},
          {"hits", decode.hits},
          {"misses", decode.misses},
          {"hit_rate", decode.hit_rate()},
          {"hit_rate_lru", line.lru.decode.hit_rate()},
          {"hit_rate_belady", line.belady.decode.hit_rate()},
          {"misses_per_token", per_token(decode.misses, decode)},
          {"bytes_per_token", per_token(decode.bytes_read, decode)},
          {"prefill_hits", line.chosen.prefill.hits},
          {"prefill_misses", line.chosen.prefill.misses},
          {"evictions", line.chosen.evictions},
          {"bypasses", line.chosen.bypasses}};
}

std::string render_json(const RouteTrace& trace, const Options& options,
                        const std::vector<Line>& lines) {
  const DistinctExperts distinct = distinct_experts(trace);
  Json out{{"model", trace.header().model},
           {"policy", options.policy},
           {"experts", distinct.of},
           {"distinct_experts", distinct.all},
           {"distinct_experts_decode", distinct.decode},
           {"experts_per_token", trace.demand().per_token},
           {"prompt_tokens", lines.front().chosen.prefill.tokens},
           {"decode_tokens", lines.front().chosen.decode.tokens},
           {"caches", Json::array()}};
  for (const Line& line : lines) out["caches"].push_back(to_json(line));
  return out.dump(2) + "\n";
}

std::string render_text(const RouteTrace& trace, const Options& options,
                        const std::vector<Line>& lines) {
  const DistinctExperts distinct = distinct_experts(trace);
  const ReplayResult& first = lines.front().chosen;
  std::string out = formatted(
      "{}: {} prompt and {} decode tokens, {} experts a token; {} of {} experts touched, {} by "
      "decode\n",
      trace.header().model, first.prefill.tokens, first.decode.tokens, trace.demand().per_token,
      distinct.all, distinct.of, distinct.decode);
  out += formatted("{:>7} {:>7} {:>7} {:>7} {:>7} {:>12} {:>11}\n", "cache", "slots",
                   options.policy, "lru", "belady", "misses/token", "read/token");
  for (const Line& line : lines) {
    const ReplayCounts& decode = line.chosen.decode;
    out += formatted(
        "{:>6.2f}% {:>7} {:>6.1f}% {:>6.1f}% {:>6.1f}% {:>12.1f} {:>11}{}\n", line.percent,
        line.slots, 100.0 * decode.hit_rate(), 100.0 * line.lru.decode.hit_rate(),
        100.0 * line.belady.decode.hit_rate(), per_token(decode.misses, decode),
        format_bytes(static_cast<uint64_t>(per_token(decode.bytes_read, decode))),
        static_cast<int64_t>(line.slots) < trace.demand().per_token ? "  below one token's experts"
                                                                    : "");
  }
  return out;
}

/// Near slots before a cache.
struct NearLine {
  size_t near_slots = 0;
  size_t cache_slots = 0;
  bool all_cached = false;
  ReplayResult result;

  // Choices that neither had; of what is read for a token, each expert counts once.
  uint64_t drive() const { return result.decode.misses; }
  uint64_t far() const { return result.near.far_hits - std::min(result.near.far_hits, drive()); }
};

NearLine measure_near(const RouteTrace& trace, const Options& options, size_t near, size_t slots,
                      uint64_t experts) {
  ReplayOptions replayed{
      .num_slots = slots,
      .eviction = {.decay = options.decay, .prefill_weight = options.prefill_weight},
      .staging = options.staging,
      .near_slots = near};
  if (options.token_by_token) replayed.prompt = PromptReplay::kTokenByToken;
  if (const auto policy = parse_cache_policy(options.policy)) replayed.eviction.policy = *policy;
  return {near, slots, slots >= experts, replay(trace, replayed)};
}

Json to_json(const NearLine& line) {
  const NearCounts& near = line.result.near;
  return {{"near_slots", line.near_slots},
          {"slots", line.cache_slots},
          {"tokens", near.tokens},
          {"near_hits", near.near_hits},
          {"far_hits", line.far()},
          {"misses", line.drive()},
          {"promotions", near.promotions},
          {"near_hits_per_token", per_token(near.near_hits, near.tokens)},
          {"far_hits_per_token", per_token(line.far(), near.tokens)},
          {"misses_per_token", per_token(line.drive(), near.tokens)},
          {"promotions_per_token", per_token(near.promotions, near.tokens)}};
}

std::string render_near(const RouteTrace& trace, const std::vector<NearLine>& lines, bool json) {
  if (json) {
    Json out{{"model", trace.header().model}, {"near", Json::array()}};
    for (const NearLine& line : lines) out["near"].push_back(to_json(line));
    return out.dump(2) + "\n";
  }
  std::string out = formatted(
      "{}: choices of a decoded token, and experts brought near beside them\n{:>7} {:>7} "
      "{:>11} {:>10} {:>13} {:>16}\n",
      trace.header().model, "near", "cache", "near/token", "far/token", "drive/token",
      "promotions/token");
  for (const NearLine& line : lines) {
    const NearCounts& near = line.result.near;
    out += formatted("{:>7} {:>7} {:>11.1f} {:>10.1f} {:>13.1f} {:>16.1f}\n", line.near_slots,
                     line.all_cached ? "all" : std::to_string(line.cache_slots),
                     per_token(near.near_hits, near.tokens), per_token(line.far(), near.tokens),
                     per_token(line.drive(), near.tokens), per_token(near.promotions, near.tokens));
  }
  return out;
}

Status run_near(const Options& options, const RouteTrace& trace, uint64_t experts) {
  if (!parse_cache_policy(options.policy)) {
    return make_error(ErrorCode::kInvalidArgument, "--near goes with --policy lfu or lru, not {}",
                      options.policy);
  }
  const std::vector<std::string> all = {"100%"};
  std::vector<NearLine> lines;
  for (const std::string& near : options.near) {
    MF_ASSIGN_OR_RETURN(const size_t near_slots, parse_slots("--near", near, trace, experts));
    for (const std::string& cache : options.caches.empty() ? all : options.caches) {
      MF_ASSIGN_OR_RETURN(const size_t slots, parse_slots("--cache", cache, trace, experts));
      lines.push_back(measure_near(trace, options, near_slots, slots, experts));
    }
  }
  return print_out(render_near(trace, lines, options.json));
}

Status run(const Options& options) {
  MF_ASSIGN_OR_RETURN(const RouteTrace trace, RouteTrace::read(options.trace));
  const uint64_t experts = distinct_experts(trace).of;
  if (!options.near.empty()) return run_near(options, trace, experts);
  const std::vector<std::string> usual = {"6%", "12%", "25%", "50%"};
  std::vector<Line> lines;
  for (const std::string& cache : options.caches.empty() ? usual : options.caches) {
    MF_ASSIGN_OR_RETURN(const size_t slots, parse_slots("--cache", cache, trace, experts));
    lines.push_back(measure(trace, options, slots, experts));
  }
  return print_out(options.json ? render_json(trace, options, lines)
                                : render_text(trace, options, lines));
}

Result<Json> replay_points(const RouteTrace& trace, int points) {
  const uint64_t experts = distinct_experts(trace).of;
  const std::vector<uint64_t>& sizes = trace.header().expert_bytes;
  const uint64_t slot_bytes = sizes.empty() ? 0 : *std::max_element(sizes.begin(), sizes.end());
  Json list = Json::array();
  for (int i = 1; i <= points; ++i) {
    const uint64_t slots = experts * static_cast<uint64_t>(i) / static_cast<uint64_t>(points);
    const Line line = measure(trace, {.staging = true}, std::max<size_t>(1, slots), experts);
    Json point = to_json(line);
    point["bytes"] = line.slots * slot_bytes;
    list.push_back(std::move(point));
  }
  return Json{{"model", trace.header().model}, {"slot_bytes", slot_bytes}, {"points", list}};
}

}  // namespace
}  // namespace replay_command

Result<Json> replay_text(const std::string& text, int points) {
  MF_ASSIGN_OR_RETURN(const RouteTrace trace, RouteTrace::parse(text));
  return replay_command::replay_points(trace, points);
}

Command make_replay_command(const CommandContext& /*context*/) {
  auto options = std::make_shared<replay_command::Options>();
  CommandOptions command(
      "replay", "Hit rates of expert caches on a recorded run (run or bench --route-trace).");
  command.example("moeflux replay routes.csv");
  command.example("moeflux replay routes.csv --cache 6%,25%,4GiB --policy lru");
  command.example("moeflux replay routes.csv --near 2G,4G --json");
  command.group("Replay");
  command.add("trace", options->trace, "Route trace, as --route-trace writes it")
      .value("TRACE")
      .required()
      .not_empty();
  command.add_list("--cache", options->caches,
                   "Cache sizes, as shares of all experts, slots or bytes: 6%,25%,900,4GiB "
                   "(default: 6%,12%,25%,50%; with --near: all experts)");
  command.add_list("--near", options->near,
                   "Sizes of GPU memory for experts, in front of each cache: hits in GPU and host "
                   "memory, reads and moves of a token");
  command
      .add("--policy", options->policy,
           "Eviction: lfu (decayed use), lru, or page (the page cache of an operating system)")
      .value("NAME")
      .choices({"lfu", "lru", "page"});
  command.add("--decay", options->decay, "Weight of a use after each further token (lfu)")
      .range(0.01, 0.9999);
  command
      .add("--prefill-weight", options->prefill_weight,
           "Weight of a use in the prompt, against one in decode (lfu); 0: none")
      .range(0.0, 100.0);
  command.add("--token-by-token", options->token_by_token,
              "Replay the prompt as if it had been decoded");
  command.add("--staging", options->staging,
              "Set slots aside for experts in transit, as run and bench do, for their exact hits");
  command.add("--json", options->json, "Print JSON");
  return {std::move(command), [options] { return replay_command::run(*options); }};
}

}  // namespace moeflux
