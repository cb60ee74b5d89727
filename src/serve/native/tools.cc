// The tools of MCP servers, which the program names and this server asks: a page reaches no other.
#include <utility>

#include "serve/native/handlers.h"
#include "serve/request/fields.h"

namespace moeflux::serve {
namespace {

// Null where there are no servers, which has been answered.
const ToolServers* tools_of(const Call& call) {
  const ToolServers& tools = call.state.page().tools;
  if (tools.list) return &tools;
  call.fail({.status = 404,
             .type = "not_found_error",
             .message = "no server of tools is named, see --mcp"});
  return nullptr;
}

// The faults of the other server are not ours.
ApiError tool_error(const Error& error) {
  if (error.code() == ErrorCode::kNotFound) {
    return {.status = 404, .type = "not_found_error", .message = error.message()};
  }
  return {.status = 502, .type = "server_error", .code = "mcp_error", .message = error.message()};
}

void add_job(const Call& call, ServiceState::ToolJob job) {
  if (call.state.add_tool_job(std::move(job))) return;
  call.fail({.status = 429,
             .type = "rate_limit_error",
             .message = "too many calls of tools wait, try again later"});
}

ToolServers::GivenUp given_up(ServiceState& state, const AnswerTarget& target) {
  return
      [&state, response = target.response] { return state.is_draining() || response->is_closed(); };
}

}  // namespace

void list_tools(Call& call) {
  const ToolServers* const tools = tools_of(call);
  if (tools == nullptr) return;
  add_job(call, [tools, target = call.target, &state = call.state] {
    return [target, servers = tools->list(given_up(state, target))] {
      target.answer({{"servers", servers}});
    };
  });
}

void call_tool(Call& call) {
  const ToolServers* const tools = tools_of(call);
  if (tools == nullptr) return;
  Fields fields(call.body);
  const auto server = fields.text("server");
  const auto tool = fields.text("tool");
  const Json* const given = fields.object("arguments");
  if (!server) fields.fail(bad_field("server", "server is absent, expected a name of GET /mcp"));
  if (!tool) fields.fail(bad_field("tool", "tool is absent, expected a tool's name"));
  if (fields.problem()) return call.fail(*fields.problem());
  add_job(call, [tools, target = call.target, &state = call.state, server = *server, tool = *tool,
                 arguments = given == nullptr ? Json::object() : *given] {
    return [target, answer = tools->call(server, tool, arguments, given_up(state, target))] {
      if (!answer.ok()) return target.fail(tool_error(answer.error()));
      target.answer(*answer);
    };
  });
}

}  // namespace moeflux::serve
