// The home folder of the user who runs this program.
#pragma once

namespace moeflux {

/// Sets HOME from the system's list of users where it is not set or empty, as for a service or a
/// timer; leaves it where the list does not have the user. For the begin of a program, before it
/// starts threads.
void set_missing_home();

}  // namespace moeflux
