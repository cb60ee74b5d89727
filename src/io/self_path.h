// Where the running program lies: installed data is found relative to it.
#pragma once

#include <string>

namespace moeflux {

/// The folder of the running executable, symbolic links resolved; empty when the system does not
/// tell.
std::string executable_directory();

}  // namespace moeflux
