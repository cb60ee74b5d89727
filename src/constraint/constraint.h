// Finds the tokens that can follow in constrained output. Compiled once, matched by any number of
// texts. llguidance does the work, in rust/; a build without it refuses.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/ids.h"
#include "base/result.h"
#include "base/token_mask.h"
#include "constraint/output_constraint.h"

namespace moeflux {

/// A token as constraints see it.
struct TokenShape {
  std::string_view bytes;
  /// It is none of a text's characters, however it is spelled: only a grammar that names it allows
  /// it.
  bool is_marker = false;
};

/// Limits of compiling and of each step; grammars have limits of depth, size and combinations
/// besides (docs/structured-output.md). A schema is a program of whoever sends it.
struct ConstraintLimits {
  uint64_t text_bytes_max = uint64_t{1} << 20;
  uint64_t compile_milliseconds_max = 2000;  // of a processor, between steps that all end
  uint64_t lexer_states_max = 50'000;        // of some KiB each
  uint64_t step_lexer_fuel = 200'000;        // a mask of all of it takes some ten milliseconds
  // Each is compared with those of its row: 50'000 in one take a second.
  uint64_t step_items_max = 20'000;
};

/// A vocabulary as a tree of bytes: what masks are computed over. Immutable; threads may share one.
class TokenTree {
 public:
  virtual ~TokenTree() = default;
  /// Copies the tokens; the first is id 0. Takes some hundred milliseconds for large vocabularies.
  /// Fails with kUnsupported in a build without constraints.
  static Result<std::shared_ptr<const TokenTree>> make(std::span<const TokenShape> tokens);
};

/// One text. Not thread-safe, but for stop().
class Matcher {
 public:
  virtual ~Matcher() = default;

  /// The tokens that can follow and whether the text may end here, until the text changes.
  struct Next {
    TokenMask mask;
    bool may_end = false;
    bool must_end = false;  // nothing can follow
  };
  /// Fails with kUnsupported where a step would take more than the limits: to ask again is no use.
  virtual Result<Next> next() = 0;
  /// The token comes next. Fails with kInvalidArgument, and changes nothing, for one that cannot;
  /// with kUnsupported as next() does.
  virtual Status consume(TokenId token) = 0;
  /// The text loses its last tokens.
  virtual Status rollback(int64_t count) = 0;
  /// For any thread: what another does here ends soon, and fails as all later calls do.
  virtual void stop() = 0;
};

/// Immutable; threads may share one.
class Constraint {
 public:
  virtual ~Constraint() = default;
  /// Fails with kInvalidArgument and kUnsupported, naming the source and, of a schema, the place as
  /// a JSON pointer; with kResourceExhausted over the limits. kNone is the caller's to see.
  static Result<std::shared_ptr<const Constraint>> compile(
      const std::shared_ptr<const TokenTree>& tokens, const OutputConstraint& constraint,
      const ConstraintLimits& limits = {});

  /// A text that begins. It does the same whoever else matches.
  virtual Result<std::unique_ptr<Matcher>> start() const = 0;
};

/// False in a build without Rust 1.87.
bool has_constraints();

}  // namespace moeflux
