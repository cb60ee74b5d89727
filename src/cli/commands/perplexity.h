// The perplexity of a text, for the command of that name and for those that compare what they made.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "cli/model_options.h"

namespace moeflux {

struct PerplexityOptions {
  ModelOptions model;
  std::string file;   // "-": standard input; may be empty with saved_base
  std::string score;  // "all", "second-half"; empty: all, second halves with saved_base
  int64_t windows_max = 0;
  std::string base;        // device or model to compare with; empty: none
  std::string saved_base;  // file of SavedLogits to compare with; empty: none
};

/// Prints the report of the perplexity command.
Status print_perplexity(PerplexityOptions options);

}  // namespace moeflux
