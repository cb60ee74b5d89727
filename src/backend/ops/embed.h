// Rows of a table.
#pragma once

#include <string>
#include <string_view>

#include "backend/operation.h"

namespace moeflux::ops {

/// out[i] = row token_ids[i] of the table. token_ids i32 [n], every id below table.rows; out [n,
/// table.cols].
struct Embed {
  static constexpr std::string_view kName = "embed";
  Tensor out;
  Weight table;
  Tensor token_ids;

  Status check() const;
  Cost cost() const;
  std::string text() const;
  template <typename Visit>
  void operands(Visit&& visit) const {
    visit(Use::kWrite, "out", out);
    visit(Use::kRead, "table", table);
    visit(Use::kRead, "token_ids", token_ids);
  }
};

}  // namespace moeflux::ops
