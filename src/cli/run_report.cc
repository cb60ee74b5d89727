#include "cli/run_report.h"

#include <string_view>

#include "base/format.h"
#include "base/units.h"

namespace moeflux {
namespace {

double ratio(double part, double whole) { return whole > 0.0 ? part / whole : 0.0; }

double hit_rate(const ExpertStats& experts) {
  const uint64_t lookups = experts.hits + experts.misses;
  return lookups == 0 ? 1.0 : static_cast<double>(experts.hits) / static_cast<double>(lookups);
}

std::string_view end_of(const RunStatistics& run) {
  if (run.failed) return "error";
  switch (run.result.reason) {
    case FinishReason::kStopToken:
      return "end of text";
    case FinishReason::kTokensMax:
      return "length";
    case FinishReason::kContextFull:
      return "context full";
    case FinishReason::kCancelled:
      return "stopped";
    case FinishReason::kStopString:
      return "stop string";
  }
  __builtin_unreachable();
}

Json phase_json(const ExpertStats& experts, int64_t tokens, double seconds) {
  const auto count = static_cast<double>(tokens);
  Json json;
  json["tokens"] = tokens;
  json["seconds"] = seconds;
  json["tokens_per_second"] = ratio(count, seconds);
  json["expert_lookups"] = experts.hits + experts.misses;
  json["expert_hit_rate"] = hit_rate(experts);
  json["storage_bytes"] = experts.bytes_read;
  json["storage_bytes_per_token"] = ratio(static_cast<double>(experts.bytes_read), count);
  json["drive_bytes_per_second"] = experts.read_bytes_per_second();
  json["stall_seconds"] = static_cast<double>(experts.stall_us) * 1e-6;
  json["stall_seconds_per_token"] = ratio(static_cast<double>(experts.stall_us) * 1e-6, count);
  json["table_bytes"] = experts.table_bytes_read;
  json["table_bytes_per_token"] = ratio(static_cast<double>(experts.table_bytes_read), count);
  json["table_stall_seconds"] = static_cast<double>(experts.table_stall_us) * 1e-6;
  json["prefetches"] = experts.prefetches;
  json["prefetches_useful"] = experts.prefetches_useful;
  json["near_hit_rate"] = experts.near_hit_rate();
  json["promotions"] = experts.promotions;
  json["helped_steps"] = experts.helped_steps;
  json["bus_bytes"] = experts.bus_bytes;
  json["lookahead_seconds"] = static_cast<double>(experts.lookahead_us) * 1e-6;
  return json;
}

// The drive's work in decode; empty when it was not needed.
std::string drive_text(const ExpertStats& decode, uint64_t steps) {
  if (decode.bytes_read == 0) return {};
  std::string text =
      formatted(" at {:.2f} GB/s | stall {:.1f} ms/token", decode.read_bytes_per_second() / 1e9,
                static_cast<double>(decode.stall_us / steps) / 1e3);
  if (decode.prefetches > 0) {
    text += formatted(" | prefetch {} of {} useful", decode.prefetches_useful, decode.prefetches);
  }
  return text;
}

}  // namespace

std::string context_full_line(int64_t context, int64_t longest) {
  if (context >= longest) {
    return formatted("the context of {} tokens is full, the longest that the model takes", context);
  }
  return formatted("the context of {} tokens is full; -c, --ctx-size raises it, up to {}", context,
                   longest);
}

std::string cut_by(FinishReason reason, int64_t context, int64_t longest) {
  switch (reason) {
    case FinishReason::kTokensMax:
      return "-n, --n-predict";
    case FinishReason::kContextFull:
      return context_full_line(context, longest);
    case FinishReason::kCancelled:
      return "stopped";
    case FinishReason::kStopString:
      return "-r, --reverse-prompt";
    case FinishReason::kStopToken:
      return "a stop token";
  }
  __builtin_unreachable();
}

std::string run_statistics_line(const RunStatistics& run) {
  const GenerateResult& result = run.result;
  const ExpertStats& decode = result.decode_experts;
  std::string line =
      formatted("prefill {} tokens, {:.1f} tokens/s", result.prompt_tokens,
                ratio(static_cast<double>(result.prompt_tokens), result.prefill_seconds));
  if (result.decode_steps > 0) {
    const auto steps = static_cast<uint64_t>(result.decode_steps);
    line += formatted(" | decode {} tokens, {:.1f} tokens/s", result.decode_steps,
                      ratio(static_cast<double>(result.decode_steps), result.decode_seconds));
    if (result.drafts.drafted > 0) {
      line += formatted(" | drafts {} of {} accepted, {:.2f} times as fast", result.drafts.accepted,
                        result.drafts.drafted, result.drafts.gain());
    }
    // Nothing is looked up where there are no experts, or a device holds them all.
    if (decode.hits + decode.misses > 0) {
      line += formatted(" | expert hits {:.1f} % | read {}/token", 100.0 * hit_rate(decode),
                        format_bytes(decode.bytes_read / steps));
    }
    line += drive_text(decode, steps);
    if (decode.table_bytes_read > 0) {
      line += formatted(" | rows of tables {}/token, stall {:.1f} ms/token",
                        format_bytes(decode.table_bytes_read / steps),
                        static_cast<double>(decode.table_stall_us / steps) / 1e3);
    }
    if (decode.bus_bytes > 0 || decode.helped_steps > 0) {
      line += formatted(" | on the device {:.1f} % | over the bus {}/token",
                        100.0 * decode.near_hit_rate(), format_bytes(decode.bus_bytes / steps));
    }
    if (decode.helped_steps > 0) {
      line += formatted(" | the CPU helped with {} tokens", decode.helped_steps);
    }
  }
  line += formatted(" | prompt read {} | peak memory {}",
                    format_bytes(result.prefill_experts.bytes_read),
                    format_bytes(run.peak_memory_bytes));
  if (!run.failed && result.reason == FinishReason::kTokensMax) return line;
  return formatted("{} | {}", line, end_of(run));
}

Json run_statistics_json(const RunStatistics& run) {
  const GenerateResult& result = run.result;
  Json json;
  json["prefill"] =
      phase_json(result.prefill_experts, result.prompt_tokens, result.prefill_seconds);
  json["decode"] = phase_json(result.decode_experts, result.decode_steps, result.decode_seconds);
  json["draft_n"] = result.drafts.drafted;
  json["draft_n_accepted"] = result.drafts.accepted;
  json["draft_gain"] = result.drafts.gain();
  json["generated_tokens"] = result.generated_tokens;
  json["seed"] = run.seed;
  json["peak_memory_bytes"] = run.peak_memory_bytes;
  json["finish_reason"] = std::string(end_of(run));
  return json;
}

}  // namespace moeflux
