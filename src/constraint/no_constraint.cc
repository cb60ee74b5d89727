// Stands in for rust/ in a build without it.
#include "base/format.h"
#include "constraint/constraint.h"

namespace moeflux {
namespace {

Error unsupported(std::string_view what) {
  return make_error(ErrorCode::kUnsupported,
                    "{}: this moeflux was built without Rust 1.87, which schemas, grammars and "
                    "enforced calls need (tools/install_deps.sh and tools/fetch_crates.sh, then "
                    "configure again)",
                    what);
}

}  // namespace

bool has_constraints() { return false; }

Result<std::shared_ptr<const TokenTree>> TokenTree::make(std::span<const TokenShape> /*tokens*/) {
  return unsupported("constrained text");
}

Result<std::shared_ptr<const Constraint>> Constraint::compile(
    const std::shared_ptr<const TokenTree>& /*tokens*/, const OutputConstraint& constraint,
    const ConstraintLimits& /*limits*/) {
  return unsupported(constraint.source);
}

}  // namespace moeflux
