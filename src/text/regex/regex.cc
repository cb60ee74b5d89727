// JIT first; when its stack overflows on a long match, the interpreter, whose memory is limited,
// runs.
#include "text/regex/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/format.h"
#include "text/encoding/utf8.h"
#include "text/regex/regex_syntax.h"

namespace moeflux {
// Members of Regex have these types, so that they are nobody's own.
namespace pcre2 {

struct FreeCompileContext {
  void operator()(pcre2_compile_context* p) const { pcre2_compile_context_free(p); }
};
struct FreeCode {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
};
struct FreeMatchData {
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
};
struct FreeMatchContext {
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
};
struct FreeJitStack {
  void operator()(pcre2_jit_stack* p) const { pcre2_jit_stack_free(p); }
};

}  // namespace pcre2

namespace {

// PCRE2's own default. A million characters of one kind stay below it with the patterns of all
// known families, and reaching it takes well under a second.
constexpr uint32_t kMatchStepsMax = 10'000'000;
constexpr uint32_t kHeapKibMax = 256 * 1024;
constexpr size_t kJitStackBytesMax = size_t{1} << 20;
constexpr size_t kPatternBytesMax = size_t{1} << 16;

// \p{Han} means Script in tokenizer.json; since 10.40 PCRE2 takes it for Script_Extensions.
constexpr std::string_view kScriptPrefix = PCRE2_MAJOR > 10 || PCRE2_MINOR >= 40 ? "sc:" : "";

std::string message_of(int error) {
  PCRE2_UCHAR text[160];
  if (pcre2_get_error_message(error, text, sizeof(text)) < 0) return formatted("error {}", error);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

struct Regex::Code {
  std::unique_ptr<pcre2_code, pcre2::FreeCode> compiled;
};

Regex::Regex(std::unique_ptr<Code> code) : code_(std::move(code)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Result<Regex> Regex::compile(std::string_view pattern) {
  if (pattern.size() > kPatternBytesMax || !is_valid_utf8(pattern)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "a pattern of {} bytes, expected at most {} of UTF-8", pattern.size(),
                      kPatternBytesMax);
  }
  MF_ASSIGN_OR_RETURN(const std::string translated, translate_regex(pattern, kScriptPrefix));
  const std::unique_ptr<pcre2_compile_context, pcre2::FreeCompileContext> context(
      pcre2_compile_context_create(nullptr));
  MF_CHECK(context != nullptr);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);  // '.' stops at \n only, as in Oniguruma
  int error = 0;
  PCRE2_SIZE place = 0;
  const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C;
  auto code = std::make_unique<Code>();
  code->compiled.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()),
                                     translated.size(), options, &error, &place, context.get()));
  if (code->compiled == nullptr) {
    return make_error(ErrorCode::kUnsupported, "pattern is refused: {} near byte {} of {}",
                      message_of(error), place, translated);
  }
  pcre2_jit_compile(code->compiled.get(), PCRE2_JIT_COMPLETE);  // without JIT it matches slower
  return Regex(std::move(code));
}

struct Regex::Matcher::State {
  const pcre2_code* code;
  std::unique_ptr<pcre2_match_data, pcre2::FreeMatchData> data;
  std::unique_ptr<pcre2_match_context, pcre2::FreeMatchContext> context;
  std::unique_ptr<pcre2_jit_stack, pcre2::FreeJitStack> jit_stack;

  int match(std::string_view text, size_t from, uint32_t options) {
    return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                       PCRE2_NO_UTF_CHECK | options, data.get(), context.get());
  }
};

Regex::Matcher::Matcher(const Regex& regex) : state_(std::make_unique<State>()) {
  state_->code = regex.code_->compiled.get();
  state_->data.reset(pcre2_match_data_create(1, nullptr));
  state_->context.reset(pcre2_match_context_create(nullptr));
  MF_CHECK(state_->data != nullptr && state_->context != nullptr);
  pcre2_set_match_limit(state_->context.get(), kMatchStepsMax);
  pcre2_set_heap_limit(state_->context.get(), kHeapKibMax);
  state_->jit_stack.reset(pcre2_jit_stack_create(32 * 1024, kJitStackBytesMax, nullptr));
  if (state_->jit_stack != nullptr) {
    pcre2_jit_stack_assign(state_->context.get(), nullptr, state_->jit_stack.get());
  }
}

Regex::Matcher::Matcher(Matcher&&) noexcept = default;
Regex::Matcher::~Matcher() = default;

Result<Match> Regex::Matcher::find(std::string_view text, size_t from) {
  MF_CHECK(from <= text.size());
  int found = state_->match(text, from, 0);
  if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = state_->match(text, from, PCRE2_NO_JIT);
  if (found == PCRE2_ERROR_NOMATCH) return Match{npos, npos};
  if (found < 0) {
    return make_error(ErrorCode::kResourceExhausted, "pre-tokenizer pattern at byte {} of {}: {}",
                      from, text.size(), message_of(found));
  }
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(state_->data.get());
  return Match{ends[0], ends[1]};
}

}  // namespace moeflux
