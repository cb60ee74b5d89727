// Recorded routes: those of an answer's tokens for its owner, and a trace of all texts for an
// administrator.
#pragma once

#include "serve/call.h"

namespace moeflux::serve {

// The handlers of its routes.
void answer_routes(Call& call);
void trace_status(Call& call);
void start_trace(Call& call);
void stop_trace(Call& call);
void download_trace(Call& call);
void replay_trace(Call& call);

}  // namespace moeflux::serve
