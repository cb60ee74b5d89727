#include "io/thread_priority.h"

#include <sys/resource.h>
#include <unistd.h>

namespace moeflux {

// Beside another thread on one core it has a tenth of it: no starvation.
void lower_thread_priority() {
  constexpr int kNice = 10;
  (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNice);
}

}  // namespace moeflux
