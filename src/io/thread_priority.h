// Sets which threads the system lets compute first, in the ways of Linux and macOS.
#pragma once

namespace moeflux {

/// From now on the calling thread computes where others leave time: what it does is long, and
/// somebody waits for shorter work. No promise, and no way back.
void lower_thread_priority();

}  // namespace moeflux
