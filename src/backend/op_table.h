// Tables of functions over the list of operations: what a backend computes, by the kind of an
// operation.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <type_traits>

#include "backend/op_list.h"
#include "backend/operation.h"

namespace moeflux::ops {

template <typename Op, typename... Ops>
constexpr size_t place_in(List<Ops...> /*list*/) {
  size_t place = 0;
  (void)((std::is_same_v<Op, Ops> || (++place, false)) || ...);
  return place;
}

/// The kind of an operation.
template <typename Op>
constexpr size_t kind_of() {
  constexpr size_t kKind = place_in<Op>(All{});
  static_assert(kKind < All::kCount, "a file of backend/ops defines every operation");
  return kKind;
}

/// The functions that compute operations with a context of the backend's, by kind; null: none does.
template <typename Context>
using Cells = std::array<void (*)(Context&, const void*), All::kCount>;

/// run(context, op) for each operation of the list, which is that of a backend's folder.
template <typename Context, typename... Ops>
constexpr Cells<Context> cells_of(List<Ops...> /*list*/) {
  Cells<Context> cells{};
  ((cells[kind_of<Ops>()] = [](Context& context,
                               const void* op) { run(context, *static_cast<const Ops*>(op)); }),
   ...);
  return cells;
}

/// visit(op) with the type that the operation has.
template <typename Visit, typename... Ops>
auto visit_as(const AnyOp& any, const Visit& visit, List<Ops...> /*list*/) {
  using Result = std::invoke_result_t<const Visit&, const Add&>;
  using Function = Result (*)(const Visit&, const void*);
  static constexpr std::array<Function, sizeof...(Ops)> kFunctions = {
      [](const Visit& v, const void* op) { return v(*static_cast<const Ops*>(op)); }...};
  return kFunctions[any.kind](visit, any.op);
}
template <typename Visit>
auto visit(const AnyOp& any, const Visit& visit) {
  return visit_as(any, visit, All{});
}

/// "linear".
inline std::string_view name_of(const AnyOp& any) {
  return visit(any, [](const auto& op) { return op.kName; });
}

/// True for one that is made of others where a device has no function for it.
inline bool is_composed(const AnyOp& any) {
  return visit(any, []<typename Op>(const Op&) {
    return requires { &Op::compose; };
  });
}

/// kUnsupported with the operation's and the backend's name.
Status missing_cell(const AnyOp& any, std::string_view backend);

}  // namespace moeflux::ops
