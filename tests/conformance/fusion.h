// Ops that may share a launch, as they come and apart.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/conformance/support.h"

namespace moeflux::conformance {

/// Called after every op.
using Between = std::function<void()>;
/// Records ops, gives what they wrote.
using Ops = std::function<std::vector<Tensor>(Session&, const Between&)>;

/// Runs the ops on devices with matrix units as they come, and with a submission after every op,
/// which keeps them apart. The results must be the same bits. The launches until the first result
/// is read must be as many as expected.
void expect_same_bits_in(size_t expected_launches, const std::string& what, const Ops& ops);

}  // namespace moeflux::conformance
