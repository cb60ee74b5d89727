// The program: its commands, and errors as one line with an exit status.
#pragma once

namespace moeflux {

/// 0 on success, 1 when a command failed, CLI11's status for a bad command line.
int run_program(int argc, char** argv);

}  // namespace moeflux
