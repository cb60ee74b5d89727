// Regular expressions over well-formed UTF-8: PCRE2 behind one header.
// A Regex is immutable and may be shared by threads; each thread matches through its own Matcher.
// Matching is bounded: a pattern or text that would take too many steps or too much memory ends in
// kResourceExhausted. Unicode properties are those of the PCRE2 the program runs with.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "base/result.h"

namespace moeflux {

struct Match {
  size_t begin;
  size_t end;
};

class Regex {
 public:
  /// Compiles a pattern in tokenizer.json's syntax (see regex_syntax.h).
  static Result<Regex> compile(std::string_view pattern);

  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  /// The state of matching; cheap to make, not thread-safe. Must not outlive the Regex.
  class Matcher {
   public:
    explicit Matcher(const Regex& regex);
    Matcher(Matcher&&) noexcept;
    ~Matcher();
    /// The leftmost match at or after `from`, which must be a character boundary; an empty optional
    /// is spelled as begin == end == npos. `text` must be well-formed UTF-8.
    Result<Match> find(std::string_view text, size_t from);

   private:
    struct State;
    std::unique_ptr<State> state_;
  };

  static constexpr size_t npos = static_cast<size_t>(-1);

 private:
  struct Code;
  explicit Regex(std::unique_ptr<Code> code);
  std::unique_ptr<Code> code_;
};

}  // namespace moeflux
