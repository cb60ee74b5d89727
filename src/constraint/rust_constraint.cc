// The engine of rust/, behind its C interface.
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "constraint/constraint.h"
#include "constraint/rust_interface.h"
#include "constraint/uninstrumented.h"

namespace moeflux {
namespace {

std::string take(moeflux_constraint_text text) {
  const Uninstrumented rust;
  std::string taken(reinterpret_cast<const char*>(text.data), text.size);
  moeflux_constraint_free_text(text);
  return taken;
}

ErrorCode code_of(int32_t kind) {
  switch (kind) {
    case kConstraintUnsupported:
      return ErrorCode::kUnsupported;
    case kConstraintLimit:
      return ErrorCode::kResourceExhausted;
    default:
      return ErrorCode::kInvalidArgument;
  }
}

/// In mid-text: a client that waits and asks again would get there again.
ErrorCode code_of_step(int32_t kind) {
  return kind == kConstraintLimit ? ErrorCode::kUnsupported : code_of(kind);
}

/// Each run of white space becomes a blank: regular expressions are complained of in several lines.
std::string one_line(const std::string& text) {
  std::string line;
  for (const char c : text) {
    const bool is_white = c == '\n' || c == '\r' || c == '\t' || c == ' ';
    if (!is_white) {
      line += c;
    } else if (!line.empty() && line.back() != ' ') {
      line += ' ';
    }
  }
  return line;
}

/// "response_format.json_schema.schema#/properties/a/not: the keyword not is not supported"
Error failure(int32_t kind, const OutputConstraint& constraint,
              const moeflux_constraint_problem& problem) {
  const std::string message = one_line(take(problem.message));
  const std::string pointer = take(problem.pointer);
  const auto part = constraint.part_sources.find(take(problem.grammar));
  return make_error(code_of(kind), "{}{}{}: {}",
                    part == constraint.part_sources.end() ? constraint.source : part->second,
                    pointer.empty() ? "" : "#", pointer, message);
}

Error failure(int32_t kind, const std::string& source, const moeflux_constraint_problem& problem) {
  const Error error = failure(kind, OutputConstraint{.source = source}, problem);
  return {code_of_step(kind), error.message()};
}

template <typename Handle, void (*kFree)(Handle*)>
struct Freer {
  void operator()(Handle* handle) const {
    const Uninstrumented rust;
    kFree(handle);
  }
};
template <typename Handle, void (*kFree)(Handle*)>
using Owned = std::unique_ptr<Handle, Freer<Handle, kFree>>;

class RustTokens final : public TokenTree {
 public:
  RustTokens(moeflux_tokens* tokens, size_t count) : tokens_(tokens), count_(count) {}
  const moeflux_tokens* get() const { return tokens_.get(); }
  size_t count() const { return count_; }

 private:
  Owned<moeflux_tokens, moeflux_tokens_free> tokens_;
  size_t count_;
};

class RustMatcher final : public Matcher {
 public:
  RustMatcher(moeflux_progress* progress, size_t tokens, std::string source)
      : progress_(progress),
        stopper_(moeflux_stopper_make(progress)),
        words_((tokens + 31) / 32),
        source_(std::move(source)) {}

  Result<Next> next() override {
    if (is_known_) return next_;
    moeflux_constraint_problem problem{};
    uint32_t end = 0;
    const Uninstrumented rust;
    const int32_t kind =
        moeflux_progress_mask(progress_.get(), words_.data(), words_.size(), &end, &problem);
    if (kind != 0) return failure(kind, source_, problem);
    next_ = {.mask = {words_},
             .may_end = end != kConstraintGoesOn,
             .must_end = end == kConstraintMustEnd};
    is_known_ = true;
    return next_;
  }

  Status consume(TokenId token) override {
    is_known_ = false;
    moeflux_constraint_problem problem{};
    const Uninstrumented rust;
    const int32_t kind =
        moeflux_progress_consume(progress_.get(), static_cast<uint32_t>(token), &problem);
    return kind == 0 ? Status() : failure(kind, source_, problem);
  }

  Status rollback(int64_t count) override {
    is_known_ = false;
    moeflux_constraint_problem problem{};
    const Uninstrumented rust;
    const int32_t kind =
        moeflux_progress_rollback(progress_.get(), static_cast<size_t>(count), &problem);
    return kind == 0 ? Status() : failure(kind, source_, problem);
  }

  void stop() override {
    const Uninstrumented rust;
    moeflux_stopper_stop(stopper_.get());
  }

 private:
  Owned<moeflux_progress, moeflux_progress_free> progress_;
  Owned<moeflux_stopper, moeflux_stopper_free> stopper_;
  std::vector<uint32_t> words_;
  std::string source_;
  bool is_known_ = false;
  Next next_;
};

class RustConstraint final : public Constraint {
 public:
  RustConstraint(moeflux_constraint* constraint, size_t tokens, std::string source)
      : constraint_(constraint), tokens_(tokens), source_(std::move(source)) {}

  Result<std::unique_ptr<Matcher>> start() const override {
    moeflux_progress* progress = nullptr;
    moeflux_constraint_problem problem{};
    const Uninstrumented rust;
    const int32_t kind = moeflux_progress_start(constraint_.get(), &progress, &problem);
    if (kind != 0) return failure(kind, source_, problem);
    return std::unique_ptr<Matcher>(std::make_unique<RustMatcher>(progress, tokens_, source_));
  }

 private:
  Owned<moeflux_constraint, moeflux_constraint_free> constraint_;
  size_t tokens_;
  std::string source_;
};

uint32_t language_of(ConstraintKind kind) {
  switch (kind) {
    case ConstraintKind::kNone:
    case ConstraintKind::kJsonObject:
    case ConstraintKind::kJsonSchema:
      return kConstraintSchema;
    case ConstraintKind::kRegex:
      return kConstraintRegex;
    case ConstraintKind::kLark:
      return kConstraintLark;
    case ConstraintKind::kParts:
      return kConstraintParts;
  }
  __builtin_unreachable();
}

}  // namespace

bool has_constraints() { return true; }

Result<std::shared_ptr<const TokenTree>> TokenTree::make(std::span<const TokenShape> tokens) {
  std::string bytes;
  std::vector<uint64_t> ends;
  std::vector<uint8_t> markers;
  for (const TokenShape& token : tokens) {
    bytes += token.bytes;
    ends.push_back(bytes.size());
    markers.push_back(token.is_marker ? 1 : 0);
  }
  moeflux_tokens* made = nullptr;
  moeflux_constraint_problem problem{};
  const Uninstrumented rust;
  const int32_t kind = moeflux_tokens_make(bytes.data(), ends.data(), markers.data(), tokens.size(),
                                           &made, &problem);
  if (kind != 0) return failure(kind, "the vocabulary", problem);
  return std::shared_ptr<const TokenTree>(std::make_shared<RustTokens>(made, tokens.size()));
}

Result<std::shared_ptr<const Constraint>> Constraint::compile(
    const std::shared_ptr<const TokenTree>& tokens, const OutputConstraint& constraint,
    const ConstraintLimits& limits) {
  MF_CHECK(constraint.kind != ConstraintKind::kNone);
  MF_RETURN_IF_ERROR(check_dialect(constraint));
  const auto& tree = static_cast<const RustTokens&>(*tokens);
  const moeflux_constraint_limits told{limits.text_bytes_max, limits.compile_milliseconds_max,
                                       limits.lexer_states_max, limits.step_lexer_fuel,
                                       limits.step_items_max};
  static constexpr std::string_view kObject = R"({"type": "object"})";
  const std::string_view text =
      constraint.kind == ConstraintKind::kJsonObject ? kObject : std::string_view(constraint.text);
  moeflux_constraint* made = nullptr;
  moeflux_constraint_problem problem{};
  const Uninstrumented rust;
  const int32_t kind = moeflux_constraint_compile(tree.get(), language_of(constraint.kind),
                                                  text.data(), text.size(), &told, &made, &problem);
  if (kind != 0) return failure(kind, constraint, problem);
  return std::shared_ptr<const Constraint>(
      std::make_shared<RustConstraint>(made, tree.count(), constraint.source));
}

}  // namespace moeflux
