// The tools of MCP servers, which the program names and this server asks: a page reaches no other.
#pragma once

#include "serve/call.h"

namespace moeflux::serve {

// The handlers of its routes.
void list_tools(Call& call);
void call_tool(Call& call);

}  // namespace moeflux::serve
