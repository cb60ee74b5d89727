// moeflux, the program.
#include <csignal>

#include "cli/program.h"
#include "io/standard_streams.h"

int main(int argc, char** argv) {
  moeflux::occupy_closed_streams();
  // A reader of standard output that leaves is a failed write, so that the run ends in order.
  std::signal(SIGPIPE, SIG_IGN);
  // A file that may not grow is a failed write too.
  std::signal(SIGXFSZ, SIG_IGN);
  return moeflux::run_program(argc, argv);
}
