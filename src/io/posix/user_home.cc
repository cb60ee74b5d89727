#include "io/user_home.h"

#include <pwd.h>
#include <unistd.h>

#include <cstdlib>

namespace moeflux {

void set_missing_home() {
  const char* const home = std::getenv("HOME");
  if (home != nullptr && home[0] != '\0') return;
  const passwd* const user = getpwuid(getuid());
  if (user != nullptr && user->pw_dir != nullptr) setenv("HOME", user->pw_dir, 1);
}

}  // namespace moeflux
