// The handlers of this interface's routes, by the file that has them; watching.h and
// conversations.h have others.
#pragma once

#include "serve/call.h"

namespace moeflux::serve {

// chats.cc
void list_chats(Call& call);
void kept_chat(Call& call);
void keep_chat(Call& call);
void delete_chat(Call& call);

// complete.cc
/// POST /completion, and POST /completions without a version before it.
void complete_natively(Call& call);
/// POST /infill.
void fill_in(Call& call);

// routes.cc
void answer_routes(Call& call);
void trace_status(Call& call);
void start_trace(Call& call);
void stop_trace(Call& call);
void download_trace(Call& call);
void replay_trace(Call& call);

// tools.cc
void list_tools(Call& call);
void call_tool(Call& call);

}  // namespace moeflux::serve
