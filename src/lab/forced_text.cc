#include "lab/forced_text.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <limits>
#include <utility>

#include "base/check.h"
#include "chat/drafts/mtp_drafts.h"
#include "chat/session.h"
#include "lab/benchmark.h"

namespace moeflux {
namespace {

using Clock = std::chrono::steady_clock;

constexpr float kForcedLogit = std::numeric_limits<float>::max();

uint64_t cpu_ns_now() {
  return static_cast<uint64_t>(static_cast<double>(std::clock()) * 1e9 / CLOCKS_PER_SEC);
}

// Adds time to a run until it goes away.
class RunClock {
 public:
  explicit RunClock(ForcedRun& run) : run_(run) {}
  ~RunClock() {
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin_);
    run_.ns += static_cast<uint64_t>(ns.count());
    run_.cpu_ns += cpu_ns_now() - cpu_begin_;
  }
  RunClock(const RunClock&) = delete;
  RunClock& operator=(const RunClock&) = delete;

 private:
  ForcedRun& run_;
  const Clock::time_point begin_ = Clock::now();
  const uint64_t cpu_begin_ = cpu_ns_now();
};

// Steps of one text, as a scheduler of this text alone would take them.
class ForcedWriter {
 public:
  ForcedWriter(std::shared_ptr<Session> session, std::span<const ForcedPart> parts)
      : session_(std::move(session)) {
    for (const ForcedPart& part : parts) {
      text_.insert(text_.end(), part.tokens.begin(), part.tokens.end());
    }
  }

  Status write(const ForcedPart& part, ForcedRun& run);

 private:
  int64_t vocab_size() const { return session_->model()->engine->spec().vocab_size; }
  Status step(Decoding& decoding, ForcedRun& run);
  void force(SessionStep& step, size_t length);

  const std::shared_ptr<Session> session_;
  std::vector<TokenId> text_;  // of all parts
  std::vector<float> rows_;    // of the step at hand
};

Status ForcedWriter::write(const ForcedPart& part, ForcedRun& run) {
  if (part.is_prompt) return session_->eval(part.tokens);
  MF_RETURN_IF_ERROR(session_->set_sampler({.temperature = 0.0f}));
  size_t told = session_->tokens().size();
  MF_ASSIGN_OR_RETURN(
      const std::unique_ptr<Decoding> decoding,
      Decoding::start(*session_, {.tokens_max = static_cast<int64_t>(part.tokens.size())},
                      [&](const DrawnToken& drawn) -> std::optional<FinishReason> {
                        MF_CHECK(drawn.token == text_[told]);
                        ++told;
                        return std::nullopt;
                      }));
  // The prompt's logits are not at hand; what is forced is drawn without them.
  decoding->force(std::span(part.tokens).first(1));
  {
    const RunClock clock(run);
    MF_RETURN_IF_ERROR(decoding->step());
    while (!decoding->end()) MF_RETURN_IF_ERROR(step(*decoding, run));
  }
  run.tokens += decoding->steps();
  run.drafts.drafted += decoding->drafts().drafted;
  run.drafts.accepted += decoding->drafts().accepted;
  return decoding->finish(true);
}

Status ForcedWriter::step(Decoding& decoding, ForcedRun& run) {
  const Engine& engine = *session_->model()->engine;
  const size_t length = session_->tokens().size();
  const Clock::time_point begin = Clock::now();
  SessionStep step{
      .session = session_,
      .tokens = decoding.begin_step(std::min(engine.prefill_chunk(), engine.logits_rows())),
      .phase = StepPhase::kDecode,
      .logits = decoding.logits_needed(),
      .best = decoding.best_needed(),
      .keeps_logits = false};
  rows_.clear();
  step.sink = [this](int64_t, std::span<const float> rows) {
    rows_.insert(rows_.end(), rows.begin(), rows.end());
    return Status();
  };
  ++run.steps;
  run.rows += static_cast<int64_t>(step.tokens.size());
  Session::eval_batch(std::span(&step, 1));
  if (!step.outcome.ok()) {
    return decoding.abandon(step.outcome.error()) ? Status() : step.outcome;
  }
  force(step, length);
  const std::chrono::duration<double> seconds = Clock::now() - begin;
  ForcedRun::Size& size = run.sizes[std::ssize(step.tokens)];
  size.least_seconds =
      size.steps == 0 ? seconds.count() : std::min(size.least_seconds, seconds.count());
  ++size.steps;
  size.seconds += seconds.count();
  const StepLogits logits{.all = rows_, .best = step.best_found, .shape = step.best};
  return decoding.step_with(logits, seconds.count());
}

// The token behind each row's becomes the best. `length` tokens came before the step.
void ForcedWriter::force(SessionStep& step, size_t length) {
  const size_t tokens = step.tokens.size();
  const size_t first = step.logits == LogitsMode::kAll ? 0 : tokens - 1;
  const auto width = static_cast<size_t>(step.best.count > 0 ? step.best.count : vocab_size());
  for (size_t i = first; i < tokens; ++i) {
    const size_t next = length + i + 1;
    if (next >= text_.size()) return;  // behind drafts that are too long
    const size_t row = (i - first) * width;
    if (step.best.count > 0) {
      step.best_found[row] = {.logit = kForcedLogit, .id = text_[next]};
    } else {
      rows_[row + static_cast<size_t>(text_[next])] = kForcedLogit;
    }
  }
}

std::vector<uint64_t> times(const std::vector<ForcedRun>& runs, uint64_t ForcedRun::*time) {
  std::vector<uint64_t> all;
  for (const ForcedRun& run : runs) all.push_back(run.*time);
  return all;
}

}  // namespace

Result<std::vector<ForcedPart>> forced_parts(std::string_view text, const Tokenizer& tokenizer) {
  std::vector<ForcedPart> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\f', begin), text.size());
    MF_ASSIGN_OR_RETURN(
        std::vector<TokenId> tokens,
        tokenizer.encode(text.substr(begin, end - begin), {.match_added_tokens = false}));
    begin = end + 1;
    parts.push_back({.tokens = std::move(tokens), .is_prompt = parts.size() % 2 == 0});
  }
  if (parts.size() == 1 && parts.front().tokens.size() > 1) {
    const std::vector<TokenId> tokens = std::exchange(parts.front().tokens, {});
    parts.front().tokens = {tokens.front()};
    parts.push_back({.tokens = {tokens.begin() + 1, tokens.end()}});
  }
  for (size_t i = 0; i < std::max<size_t>(parts.size(), 2); ++i) {
    if (i < parts.size() && !parts[i].tokens.empty()) continue;
    return make_error(ErrorCode::kInvalidArgument,
                      "part {} of the text has no tokens, expected a prompt and what is written, "
                      "with form feeds between, or two tokens without",
                      i + 1);
  }
  return parts;
}

double ForcedRun::tokens_per_step() const {
  return steps > 0 ? static_cast<double>(tokens) / static_cast<double>(steps) : 0.0;
}

double ForcedPairs::gain() const {
  return median_ratio(times(without, &ForcedRun::ns), times(with, &ForcedRun::ns));
}

double ForcedPairs::cpu_gain() const {
  return median_ratio(times(without, &ForcedRun::cpu_ns), times(with, &ForcedRun::cpu_ns));
}

Result<ForcedRun> run_forced_text(const std::shared_ptr<OpenModel>& model,
                                  std::span<const ForcedPart> parts, const DraftOptions& drafts) {
  MF_CHECK(!parts.empty() && parts.front().is_prompt);
  const int64_t vocab_size = model->engine->spec().vocab_size;
  for (const ForcedPart& part : parts) {
    MF_CHECK(!part.tokens.empty());
    for (const TokenId token : part.tokens) {
      if (token >= 0 && token < vocab_size) continue;
      return make_error(ErrorCode::kInvalidArgument,
                        "token {} of the forced text, the model's vocabulary has {}", token,
                        vocab_size);
    }
  }
  model->drafts = drafts;
  model->publish(DraftPrice());
  if (drafts.mtp_tokens > 0 && model->engine->spec().draft_layers > 0) {
    model->drafts.make_source = mtp_source(drafts.mtp_tokens);
  }
  MF_ASSIGN_OR_RETURN(const std::shared_ptr<Session> session, Session::create(model));
  const Turn turn(model, {session}, -1);
  ForcedWriter writer(session, parts);
  ForcedRun run;
  for (const ForcedPart& part : parts) MF_RETURN_IF_ERROR(writer.write(part, run));
  return run;
}

Result<ForcedPairs> run_forced_pairs(const std::shared_ptr<OpenModel>& model,
                                     std::span<const ForcedPart> parts,
                                     const ForcedPairsOptions& options) {
  if (!options.drafts.model.empty()) {
    return make_error(
        ErrorCode::kInvalidArgument,
        "a forced text is not what the model writes: how often {} is right there says "
        "nothing of its drafts (see --draft-model)",
        options.drafts.model);
  }
  const DraftOptions none = {.mode = DraftMode::kOff};
  ForcedPairs pairs;
  int finished = 0;
  const auto run = [&](const DraftOptions& drafts) {
    Result<ForcedRun> done = run_forced_text(model, parts, drafts);
    if (options.progress) options.progress(++finished);
    return done;
  };
  for (int i = 0; i < options.warm_ups; ++i) MF_RETURN_IF_ERROR(run(none));
  for (int i = 0; i < 2 * options.pairs; ++i) {
    const bool is_with = i % 4 == 1 || i % 4 == 2;
    MF_ASSIGN_OR_RETURN(ForcedRun done, run(is_with ? options.drafts : none));
    (is_with ? pairs.with : pairs.without).push_back(done);
  }
  return pairs;
}

}  // namespace moeflux
