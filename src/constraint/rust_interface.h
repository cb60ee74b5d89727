// The functions that rust/src/constraint_interface.rs defines.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

struct moeflux_tokens;
struct moeflux_constraint;
struct moeflux_progress;
struct moeflux_stopper;

struct moeflux_constraint_text {
  uint8_t* data;
  size_t size;
};

struct moeflux_constraint_problem {
  moeflux_constraint_text message;
  moeflux_constraint_text grammar;
  moeflux_constraint_text pointer;
};

struct moeflux_constraint_limits {
  uint64_t text_bytes_max;
  uint64_t compile_milliseconds_max;
  uint64_t lexer_states_max;
  uint64_t step_lexer_fuel;
  uint64_t step_items_max;
};

/// Kinds of failure.
enum : int32_t {
  kConstraintInvalid = 1,
  kConstraintUnsupported = 2,
  kConstraintLimit = 3,
  kConstraintMisfit = 4,
  kConstraintBug = 5,
};

/// Languages.
enum : uint32_t {
  kConstraintSchema = 0,
  kConstraintRegex = 1,
  kConstraintLark = 2,
  kConstraintParts = 3,
};

/// How a text may end.
enum : uint32_t { kConstraintGoesOn = 0, kConstraintMayEnd = 1, kConstraintMustEnd = 2 };

int32_t moeflux_tokens_make(const char* bytes, const uint64_t* ends, const uint8_t* markers,
                            size_t count, moeflux_tokens** out,
                            moeflux_constraint_problem* problem);
void moeflux_tokens_free(moeflux_tokens* tokens);
int32_t moeflux_constraint_compile(const moeflux_tokens* tokens, uint32_t language,
                                   const char* text, size_t size,
                                   const moeflux_constraint_limits* limits,
                                   moeflux_constraint** out, moeflux_constraint_problem* problem);
void moeflux_constraint_free(moeflux_constraint* constraint);
int32_t moeflux_progress_start(const moeflux_constraint* constraint, moeflux_progress** out,
                               moeflux_constraint_problem* problem);
void moeflux_progress_free(moeflux_progress* progress);
int32_t moeflux_progress_mask(moeflux_progress* progress, uint32_t* words, size_t count,
                              uint32_t* end, moeflux_constraint_problem* problem);
int32_t moeflux_progress_consume(moeflux_progress* progress, uint32_t token,
                                 moeflux_constraint_problem* problem);
int32_t moeflux_progress_rollback(moeflux_progress* progress, size_t count,
                                  moeflux_constraint_problem* problem);
/// For any thread, as long as the stopper lives.
moeflux_stopper* moeflux_stopper_make(const moeflux_progress* progress);
void moeflux_stopper_stop(const moeflux_stopper* stopper);
void moeflux_stopper_free(moeflux_stopper* stopper);
void moeflux_constraint_free_text(moeflux_constraint_text text);
}
