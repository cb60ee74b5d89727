// A right instance of every operation: what all devices are compared on, and what tests of an
// operation's contract break. An operation without one does not link.
#pragma once

#include <deque>
#include <span>
#include <vector>

#include "backend/op_list.h"
#include "tests/conformance/support.h"

namespace moeflux::conformance {

/// Lists that an instance views.
struct Lists {
  std::deque<std::vector<Tensor>> pages;
  std::deque<KvRows> kv;
  std::deque<StateRows> states;
  std::vector<ExpertWeights> experts;

  std::span<const KvRows> one(const KvRows& rows) { return {&kv.emplace_back(rows), 1}; }
  std::span<const StateRows> one(const StateRows& rows) { return {&states.emplace_back(rows), 1}; }
  std::span<const Tensor> list(std::vector<Tensor> tensors) {
    return pages.emplace_back(std::move(tensors));
  }
};

/// The same numbers for every session.
template <typename Op>
Op make_case(Session& s, Lists& lists);

/// visit(op type's null pointer) for every operation.
template <typename Visit, typename... Ops>
void for_each_operation(const Visit& visit, ops::List<Ops...> /*all*/) {
  (visit(static_cast<const Ops*>(nullptr)), ...);
}
template <typename Visit>
void for_each_operation(const Visit& visit) {
  for_each_operation(visit, ops::All{});
}

}  // namespace moeflux::conformance
