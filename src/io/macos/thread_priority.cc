#include "io/thread_priority.h"

#include <pthread.h>

namespace moeflux {

void lower_thread_priority() { (void)::pthread_set_qos_class_self_np(QOS_CLASS_UTILITY, 0); }

}  // namespace moeflux
