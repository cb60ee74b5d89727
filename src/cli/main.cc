// moeflux, the program.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>

#include "cli/program.h"
#include "io/standard_streams.h"
#include "io/user_home.h"

namespace {

/// Memory that is used up, on whichever thread, is an error like others.
[[noreturn]] void end_program() {
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    std::fputs("error: cannot allocate memory\n", stderr);
    std::_Exit(1);
  } catch (const std::exception& thrown) {
    std::fprintf(stderr, "%s\n", thrown.what());
  } catch (...) {
  }
  std::abort();
}

}  // namespace

int main(int argc, char** argv) {
  std::set_terminate(end_program);
  moeflux::occupy_closed_streams();
  moeflux::set_missing_home();
  // A reader of standard output that leaves is a failed write, so that the run ends in order.
  std::signal(SIGPIPE, SIG_IGN);
  // A file that may not grow is a failed write too.
  std::signal(SIGXFSZ, SIG_IGN);
  return moeflux::run_program(argc, argv);
}
