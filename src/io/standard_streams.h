// Standard input, output and error that a program was started without.
#pragma once

namespace moeflux {

/// Opens what is closed of the streams 0 to 2, so that no file gets their numbers: notes would be
/// written into it, or weights read as a question. Using what was closed fails as before. For the
/// begin of a program, before it opens files.
void occupy_closed_streams();

}  // namespace moeflux
