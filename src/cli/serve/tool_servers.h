// The MCP servers of `moeflux serve --mcp`, as a service asks them.
#pragma once

#include <string>
#include <vector>

#include "serve/page_options.h"

namespace moeflux {

/// Empty without URLs. Lists of tools are asked for again after a minute.
serve::ToolServers make_tool_servers(const std::vector<std::string>& urls);

}  // namespace moeflux
