// The greatest numbers of rows, as its formula reads.
#include "backend/host_top.h"
#include "backend/reference/cells.h"

namespace moeflux::reference {

void run(Reference& /*reference*/, const ops::TopRows& op) { host_top_rows(op); }

}  // namespace moeflux::reference
