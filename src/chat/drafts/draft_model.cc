#include "chat/drafts/draft_model.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/format.h"
#include "base/units.h"
#include "chat/open_model.h"
#include "chat/session.h"
#include "load/model_loader.h"
#include "sampling/candidates.h"

namespace moeflux {
namespace {

using Clock = std::chrono::steady_clock;

// Sessions of texts that have ended. A conversation goes on from its last one.
constexpr size_t kIdleMax = 4;
// Published families pad their vocabularies by fewer.
constexpr int32_t kMoreTokensMax = 1024;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

size_t common(std::span<const TokenId> a, std::span<const TokenId> b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

Status check_same_vocabulary(const NamedVocabulary& model, const NamedVocabulary& drafting) {
  const auto differ = [&](const std::string& found, const std::string& expected) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{} drafts for {}, expected the same vocabulary: {} instead of {} "
                      "(see --draft-model)",
                      drafting.name, model.name, found, expected);
  };
  const int32_t theirs = drafting.tokenizer.vocab_size();
  const int32_t ours = model.tokenizer.vocab_size();
  for (TokenId id = 0; id < std::min(theirs, ours); ++id) {
    const std::string_view found = drafting.tokenizer.token_bytes(id);
    const std::string_view expected = model.tokenizer.token_bytes(id);
    if (found == expected) continue;
    if (drafting.tokenizer.is_special(id) || model.tokenizer.is_special(id)) continue;
    return differ(formatted("token {} is '{}'", id, drafting.tokenizer.token_text(id)),
                  formatted("'{}'", model.tokenizer.token_text(id)));
  }
  if (std::abs(theirs - ours) > kMoreTokensMax) {
    return differ(formatted("{} tokens", theirs), formatted("{}", ours));
  }
  return {};
}

// --- Opening ---

Result<std::shared_ptr<DraftModel>> DraftModel::open(const OpenModelOptions& of,
                                                     const std::string& directory,
                                                     const Tokenizer& tokenizer) {
  const std::string& path = of.drafts.model;
  if (const Status is_model = check_model_folder(path); !is_model.ok()) {
    return is_model.error().with_context("--draft-model");
  }
  MF_ASSIGN_OR_RETURN(ModelText text, load_model_text(path));
  if (!text.tokenizer.ok()) return text.tokenizer.error();
  MF_RETURN_IF_ERROR(check_same_vocabulary({directory, tokenizer}, {path, *text.tokenizer}));
  MF_ASSIGN_OR_RETURN(const ModelSpec spec, read_model_spec(path));
  const EngineOptions& engine = of.engine;
  // All else of the engine's options, as a cache's size or a profile, is the other model's.
  OpenModelOptions options{
      .device = of.device,
      .engine = {.context_length = std::min(engine.context_length, spec.max_position_embeddings),
                 .expert_io = engine.expert_io,
                 .reader_threads = engine.reader_threads,
                 .step_sequences = engine.step_sequences,
                 .cache_type_k = engine.cache_type_k,
                 .cache_type_v = engine.cache_type_v,
                 .check_experts = engine.check_experts,
                 .read_memory = engine.read_memory,
                 .memory_interval = engine.memory_interval},
      .on_warning = of.on_warning};
  const int64_t vocab_size = std::min(tokenizer.vocab_size(), text.tokenizer->vocab_size());
  Result<std::shared_ptr<OpenModel>> model = open_model(path, options, std::move(text));
  if (!model.ok()) {
    return model.error().with_context(formatted("{}, which is to draft for {}", path, directory));
  }
  return std::make_shared<DraftModel>(std::move(*model), of.drafts.confidence_min, vocab_size);
}

DraftModel::DraftModel(std::shared_ptr<OpenModel> model, float confidence_min, int64_t vocab_size)
    : model_(std::move(model)),
      confidence_min_(confidence_min),
      vocab_size_(std::min(vocab_size, model_->engine->spec().vocab_size)) {}

DraftModel::~DraftModel() = default;

// States grow with the texts, and experts are read when they are first used.
uint64_t DraftModel::bytes_to_come() const {
  const MemoryPlan& plan = model_->engine->memory_plan();
  const uint64_t state = plan.state_bytes + plan.sequences_bytes;
  return state - std::min(state, plan.on_device.state_bytes) + plan.expert_cache_bytes;
}

// --- Sessions ---

// The one that has most of the text, or a new one.
Result<DraftModel::Follower> DraftModel::take_follower(std::span<const TokenId> text) {
  {
    const std::lock_guard lock(mutex_);
    size_t most = 0;
    auto best = idle_.end();
    for (auto it = idle_.begin(); it != idle_.end(); ++it) {
      const size_t has = common(it->session->tokens(), text);
      if (has <= most) continue;
      most = has;
      best = it;
    }
    if (best != idle_.end()) {
      Follower follower = std::move(*best);
      idle_.erase(best);
      return follower;
    }
  }
  MF_ASSIGN_OR_RETURN(std::shared_ptr<Session> session, Session::create(model_));
  return Follower{.session = std::move(session), .followed = {}};
}

void DraftModel::give_back(Follower follower) {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(follower));
  if (idle_.size() > kIdleMax) idle_.erase(idle_.begin());
}

/// False where there is none. Their memory comes back at the end of the turn.
bool DraftModel::forget_idle() {
  std::vector<Follower> idle;  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  idle.swap(idle_);
  return !idle.empty();
}

// All followers share what one whole context and half of the reserve take, as the sequences of a
// scheduler do; this call has promised some to others. False where there will be room after this
// turn.
Result<bool> DraftModel::has_room(int64_t length, int64_t more, uint64_t& promised_bytes) {
  const Engine& engine = *model_->engine;
  const StateMemory& memory = engine.state_memory();
  uint64_t bytes = engine.state_bytes(length + more);
  if (length > 0) bytes -= engine.state_bytes(length);
  const uint64_t taken = memory.near_bytes() + memory.far_bytes() + promised_bytes;
  if (bytes == 0 || taken + bytes <= engine.state_room_bytes()) {
    promised_bytes += bytes;
    return true;
  }
  if (forget_idle()) return false;
  return make_error(
      ErrorCode::kResourceExhausted, "{} more tokens need {} of state, {} of {} are taken", more,
      format_bytes(bytes), format_bytes(taken), format_bytes(engine.state_room_bytes()));
}

class DraftModel::Source final : public DraftSource {
 public:
  explicit Source(std::shared_ptr<DraftModel> model) : model_(std::move(model)) {}
  ~Source() override {
    if (follower_.session != nullptr) model_->give_back(std::move(follower_));
  }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  Result<Draft> draft(const DraftQuery& query) override;
  void draft_all(std::span<Ask> asks) override;

 private:
  /// A text's part of a call.
  struct Part {
    Source& source;
    Ask& ask;
    std::span<const TokenId> rest = {};  // to evaluate; empty: there is no room
    bool is_prompt = false;              // `rest` is more than a step brings
    bool is_whole = false;               // and all there is
    int64_t tokens_max() const { return ask.query.tokens_max; }
    Draft& draft() const { return *ask.draft; }
  };
  const Engine& engine() const { return *model_->model_->engine; }
  Status go_back(std::span<const TokenId> text);
  Status remember();
  Status begin(Part& part, uint64_t& promised_bytes);
  void follow(std::span<Part> parts);
  void propose(std::span<Part> parts);
  bool add_likeliest(const Part& part);
  void fail(Ask& ask, const Error& error);
  /// Evaluates what `tokens_of` has for each part that has not failed.
  template <typename TokensOf>
  void eval(std::span<Part> parts, StepPhase phase, const TokensOf& tokens_of);

  const std::shared_ptr<DraftModel> model_;
  Follower follower_;             // without a session until the first call
  std::vector<TokenLogit> best_;  // behind the last token that was evaluated
};

std::unique_ptr<DraftSource> DraftModel::make_source() {
  return std::make_unique<Source>(shared_from_this());
}

Result<Draft> DraftModel::Source::draft(const DraftQuery& query) {
  Ask ask{.source = *this, .query = query};
  draft_all(std::span(&ask, 1));
  return std::move(ask.draft);
}

// All texts in common steps of the model that drafts.
void DraftModel::Source::draft_all(std::span<Ask> asks) {
  const int64_t context = engine().memory_plan().context_length;
  std::vector<Part> parts;
  std::vector<std::shared_ptr<Session>> sessions;
  for (Ask& ask : asks) {
    if (ask.query.text.empty() || std::ssize(ask.query.text) > context) continue;
    parts.push_back({.source = static_cast<Source&>(ask.source), .ask = ask});
    sessions.push_back(parts.back().source.follower_.session);
  }
  if (parts.empty()) return;
  const Turn turn(model_->model_, sessions, -1);
  if (turn.state() != Turn::State::kRunning) {
    for (Part& part : parts) {
      part.source.fail(part.ask,
                       make_error(ErrorCode::kCancelled, "a draft is made by another one's call"));
    }
    return;
  }
  follow(parts);
  propose(parts);
}

// A session that has failed is of no further use, and idle ones may have the memory that it lacked.
void DraftModel::Source::fail(Ask& ask, const Error& error) {
  follower_ = {};
  if (error.code() == ErrorCode::kResourceExhausted) model_->forget_idle();
  ask.draft = error.with_context(model_->model_->directory);
}

// The text is evaluated as far as it is new: a long one, as a prompt, in several calls, of which
// the last drafts.
Status DraftModel::Source::begin(Part& part, uint64_t& promised_bytes) {
  const DraftQuery& query = part.ask.query;
  best_.clear();
  if (follower_.session == nullptr) {
    MF_ASSIGN_OR_RETURN(follower_, model_->take_follower(query.text));
  }
  MF_RETURN_IF_ERROR(go_back(query.text));
  const size_t known = follower_.session->tokens().size();
  const std::span<const TokenId> rest = query.text.subspan(known);
  MF_ASSIGN_OR_RETURN(const bool has_room,
                      model_->has_room(static_cast<int64_t>(known),
                                       std::ssize(rest) + query.tokens_max, promised_bytes));
  if (!has_room) return {};
  const auto chunk = static_cast<size_t>(engine().prefill_chunk());
  part.is_whole = rest.size() <= chunk;
  part.is_prompt = !part.is_whole || std::ssize(rest) > kDraftTokensMax;
  part.rest = rest.first(std::min(rest.size(), chunk));
  return {};
}

// Prompts are apart, so that their time is known.
void DraftModel::Source::follow(std::span<Part> parts) {
  const Clock::time_point begin_time = Clock::now();
  uint64_t promised_bytes = 0;
  for (Part& part : parts) {
    const Status begun = part.source.begin(part, promised_bytes);
    if (!begun.ok()) part.source.fail(part.ask, begun.error());
  }
  const auto rest_of = [](bool of_prompts) {
    return [of_prompts](const Part& part) {
      return part.is_prompt == of_prompts ? part.rest : std::span<const TokenId>();
    };
  };
  eval(parts, StepPhase::kPrompt, rest_of(true));
  const bool has_prompts = std::ranges::any_of(parts, &Part::is_prompt);
  const double seconds = has_prompts ? seconds_since(begin_time) : 0.0;
  eval(parts, StepPhase::kDecode, rest_of(false));
  for (Part& part : parts) {
    if (!part.ask.draft.ok()) continue;
    part.draft().follow_seconds = seconds;
    if (part.rest.empty()) continue;
    if (!part.is_whole) part.source.best_.clear();
    const Status done = part.is_whole ? part.source.remember() : Status();
    if (!done.ok()) part.source.fail(part.ask, done.error());
  }
}

// Forgets what is not of the text, and the last token if it has been evaluated: its logits are
// wanted.
Status DraftModel::Source::go_back(std::span<const TokenId> text) {
  const std::span<const TokenId> known = follower_.session->tokens();
  const size_t kept = std::min(common(known, text), text.size() - 1);
  if (kept == known.size()) return {};
  return follower_.session->truncate(static_cast<int64_t>(kept));
}

// Where layers cannot forget, the sequence returns to this place.
Status DraftModel::Source::remember() {
  Session& session = *follower_.session;
  if (engine().loaded().shortest_truncation(std::ssize(session.tokens())) == 0) return {};
  const auto before = std::exchange(follower_.followed, {});
  MF_ASSIGN_OR_RETURN(follower_.followed, session.checkpoint());
  return before ? session.drop(*before) : Status();
}

// A round for each token. A part whose last token is its draft's has no further one.
void DraftModel::Source::propose(std::span<Part> parts) {
  std::vector<bool> goes_on(parts.size(), true);
  const auto last_of = [&](const Part& part) {
    const auto i = static_cast<size_t>(&part - parts.data());
    return goes_on[i] ? std::span<const TokenId>(part.draft().tokens).last(1)
                      : std::span<const TokenId>();
  };
  while (true) {
    bool any = false;
    for (size_t i = 0; i < parts.size(); ++i) {
      goes_on[i] = goes_on[i] && parts[i].ask.draft.ok() && parts[i].source.add_likeliest(parts[i]);
      any = any || goes_on[i];
    }
    if (!any) return;
    eval(parts, StepPhase::kDecode, last_of);
  }
}

/// False where no further token follows.
bool DraftModel::Source::add_likeliest(const Part& part) {
  if (best_.empty()) return false;
  const float confidence = confidence_of(best_);
  if (confidence <= 0.0f || confidence < model_->confidence_min_) return false;
  Draft& draft = part.draft();
  draft.tokens.push_back(best_.front().id);
  draft.confidences.push_back(confidence);
  const bool is_full = follower_.session->position() >= engine().memory_plan().context_length;
  return !is_full && std::ssize(draft.tokens) < part.tokens_max();
}

template <typename TokensOf>
void DraftModel::Source::eval(std::span<Part> parts, StepPhase phase, const TokensOf& tokens_of) {
  const auto of = static_cast<int32_t>(model_->vocab_size_);
  std::vector<SessionStep> steps;
  std::vector<Part*> evaluated;
  for (Part& part : parts) {
    if (!part.ask.draft.ok()) continue;
    const std::span<const TokenId> tokens = tokens_of(part);
    if (tokens.empty()) continue;
    evaluated.push_back(&part);
    steps.push_back({.session = part.source.follower_.session,
                     .tokens = tokens,
                     .phase = phase,
                     .logits = LogitsMode::kLast,
                     .best = {.count = std::min(kConfidenceTokens, of), .of = of},
                     .keeps_logits = false});
  }
  Session::eval_batch(steps);
  for (size_t i = 0; i < steps.size(); ++i) {
    Source& source = evaluated[i]->source;
    source.best_ = std::move(steps[i].best_found);
    if (!steps[i].outcome.ok()) source.fail(evaluated[i]->ask, steps[i].outcome.error());
  }
}

}  // namespace moeflux
