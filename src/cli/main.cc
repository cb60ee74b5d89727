// moeflux, the program.
#include "cli/program.h"

int main(int argc, char** argv) { return moeflux::run_program(argc, argv); }
