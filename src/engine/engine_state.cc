// What an engine does with pasts: checkpoints, rewinding, snapshots, kept prefixes.
#include "base/format.h"
#include "engine/engine.h"

namespace moeflux {
namespace {

Error not_yet() { return Error(ErrorCode::kUnsupported, "sequence states are on their way"); }

}  // namespace

Result<CheckpointId> Engine::checkpoint(Sequence&) { return not_yet(); }
Status Engine::restore(Sequence&, CheckpointId) { return not_yet(); }
Status Engine::drop(Sequence&, CheckpointId) { return not_yet(); }
Status Engine::truncate(Sequence&, int64_t, std::stop_token) { return not_yet(); }
Result<std::unique_ptr<Sequence>> Engine::fork(const Sequence&) { return not_yet(); }
Result<std::vector<std::byte>> Engine::save(const Sequence&, std::span<const std::byte>) {
  return not_yet();
}
Result<std::vector<std::byte>> Engine::load(Sequence&, std::span<const std::byte>) {
  return not_yet();
}
Status Engine::save_file(const Sequence&, const std::string&, std::span<const std::byte>) {
  return not_yet();
}
Result<std::vector<std::byte>> Engine::load_file(Sequence&, const std::string&) {
  return not_yet();
}
Result<int64_t> Engine::reuse_prefix(Sequence&, std::span<const TokenId>) { return not_yet(); }
Status Engine::keep_prefix(const Sequence&) { return not_yet(); }

}  // namespace moeflux
