// Session's checkpoints, forks, snapshots and prefixes: what the engine keeps, and what it does
// not.
#include <utility>

#include "chat/session.h"
#include "engine/sequence_file.h"

namespace moeflux {

Result<CheckpointId> Session::checkpoint() {
  MF_ASSIGN_OR_RETURN(const CheckpointId id, engine().checkpoint(*sequence_));
  checkpoints_[id] = extra_;
  return id;
}

Status Session::restore(CheckpointId id) {
  MF_RETURN_IF_ERROR(engine().restore(*sequence_, id));
  extra_ = checkpoints_[id];
  publish_position();
  return {};
}

Status Session::drop(CheckpointId id) {
  MF_RETURN_IF_ERROR(engine().drop(*sequence_, id));
  checkpoints_.erase(id);
  return {};
}

Status Session::truncate(int64_t position, std::stop_token stop) {
  const int64_t before = sequence_->length();
  MF_RETURN_IF_ERROR(engine().truncate(*sequence_, position, std::move(stop), goes_on()));
  if (position != before) extra_.logits.clear();
  publish_position();
  return {};
}

Result<std::shared_ptr<Session>> Session::fork() const {
  MF_ASSIGN_OR_RETURN(std::unique_ptr<Sequence> forked, engine().fork(*sequence_));
  return std::shared_ptr<Session>(new Session(model_, std::move(forked), extra_, turn_timeout_ms_));
}

Result<std::vector<std::byte>> Session::save() const {
  return engine().save(*sequence_, pack_extra(extra_));
}

Status Session::save_file(const std::string& path) const {
  return save_sequence(engine(), *sequence_, path, pack_extra(extra_));
}

Status Session::load(std::span<const std::byte> snapshot) {
  return replace_both([&] { return engine().load(*sequence_, snapshot); });
}

Status Session::load_file(const std::string& path) {
  return replace_both([&] { return load_sequence(engine(), *sequence_, path); });
}

Result<SessionExtra> Session::compiled(SessionExtra extra) const {
  SessionConstraint& constraint = extra.constraint;
  if (constraint.stated.kind != ConstraintKind::kNone) {
    MF_ASSIGN_OR_RETURN(constraint.compiled, model_->compile(constraint.stated));
  }
  return extra;
}

// The engine's half and ours are replaced together or not at all.
Status Session::replace_both(const std::function<Result<std::vector<std::byte>>()>& load) {
  // A broken sequence has no state to return to.
  const Result<CheckpointId> before = engine().checkpoint(*sequence_);
  Result<SessionExtra> extra = [&]() -> Result<SessionExtra> {
    MF_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, load());
    if (bytes.empty()) return SessionExtra{.sampler = extra_.sampler};
    Result<SessionExtra> unpacked = unpack_extra(bytes, engine().spec().vocab_size);
    if (unpacked.ok()) unpacked = compiled(std::move(unpacked).value());
    if (!unpacked.ok() && before.ok()) MF_RETURN_IF_ERROR(engine().restore(*sequence_, *before));
    return unpacked;
  }();
  if (before.ok()) MF_RETURN_IF_ERROR(engine().drop(*sequence_, *before));
  publish_position();
  if (!extra.ok()) return extra.error();
  extra_ = std::move(extra).value();
  return {};
}

Result<int64_t> Session::reuse_prefix(std::span<const TokenId> tokens, std::string_view client) {
  MF_ASSIGN_OR_RETURN(const int64_t reused, engine().prefixes().reuse(*sequence_, tokens, client));
  extra_.logits.clear();
  publish_position();
  return reused;
}

Status Session::keep_prefix(std::string_view client) const {
  return engine().prefixes().keep(*sequence_, client);
}

}  // namespace moeflux
