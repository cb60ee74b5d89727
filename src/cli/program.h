// The program: its commands, and errors as one line with an exit status.
#pragma once

namespace moeflux {

/// 0 on success, 1 when a command failed, 2 for a bad command line, 3 for a document that was cut.
int run_program(int argc, char** argv);

}  // namespace moeflux
