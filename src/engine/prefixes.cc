#include "engine/prefixes.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "checkpoint/checksum.h"
#include "engine/engine.h"
#include "engine/snapshot.h"

namespace moeflux {
namespace {

// True when the first `length` tokens of a snapshot are those of a text, and can be had alone.
bool serves(const SnapshotView& snapshot, std::span<const TokenId> text, int64_t length) {
  const auto held = static_cast<int64_t>(snapshot.tokens.size());
  const auto n = static_cast<size_t>(length);
  if (length > held || n > text.size()) return false;
  if (length < SequenceState::shortest_truncation(snapshot.header.layers, held)) return false;
  return std::ranges::equal(std::span(snapshot.tokens).first(n), text.first(n));
}

}  // namespace

Status Prefixes::open(const EngineOptions& options) {
  if (options.prefix_cache_bytes == 0) return {};
  // Other devices compute other last bits: what they keep is not for this one.
  const LoadedModel& model = engine_.loaded();
  const std::string owner =
      formatted("{:016x} {} {} {}", engine_.fingerprint(), engine_.device_->bits_key(),
                dtype_name(model.cache_types.keys), dtype_name(model.cache_types.values));
  MF_ASSIGN_OR_RETURN(
      cache_, PrefixCache::open({.capacity_bytes = options.prefix_cache_bytes,
                                 .directory = options.prefix_cache_directory,
                                 .owner = checksum64(owner),
                                 .tokens_max = engine_.memory_plan().context_length,
                                 .shortest_truncation = [layers = model.states()](int64_t length) {
                                   return SequenceState::shortest_truncation(layers, length);
                                 }}));
  return {};
}

Result<int64_t> Prefixes::reuse(Sequence& empty, std::span<const TokenId> tokens,
                                std::string_view client) {
  if (empty.length() != 0) {
    return make_error(ErrorCode::kFailedPrecondition,
                      "the sequence has {} tokens, expected an empty one", empty.length());
  }
  if (cache_ == nullptr || tokens.empty()) return int64_t{0};
  const std::span<const TokenId> prefix = tokens.first(tokens.size() - 1);
  const auto load = [&](int64_t length, std::span<const std::byte> bytes) -> Status {
    MF_ASSIGN_OR_RETURN(const SnapshotView view, parse_snapshot(bytes));
    if (!serves(view, prefix, length)) {
      return make_error(ErrorCode::kCorruption,
                        "the cached state belongs to other tokens than it is stored for");
    }
    MF_ASSIGN_OR_RETURN(Past past, engine_.past_of(view, length));
    empty.become(std::move(past));
    return {};
  };
  return cache_->reuse(prefix, load, client);
}

int64_t Prefixes::find(std::span<const TokenId> tokens, std::string_view client) {
  if (cache_ == nullptr || tokens.empty()) return 0;
  return cache_->find(tokens.first(tokens.size() - 1), client).length;
}

Status Prefixes::keep(const Sequence& sequence, std::string_view client) {
  MF_RETURN_IF_ERROR(sequence.check_whole());
  const uint64_t bytes = engine_.snapshot_header(sequence.length(), 0).total_bytes();
  if (cache_ == nullptr || !cache_->wants(sequence.tokens(), bytes, client)) return {};
  MF_ASSIGN_OR_RETURN(std::vector<std::byte> snapshot, engine_.save(sequence));
  return cache_->keep(sequence.tokens(), std::move(snapshot), client);
}

}  // namespace moeflux
