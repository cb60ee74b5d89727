#include "cli/serve/tool_servers.h"

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/format.h"
#include "hub/mcp_client.h"

namespace moeflux {
namespace {

constexpr std::chrono::minutes kListTime{1};

class Server {
 public:
  explicit Server(const std::string& url) : client_(url) {}

  const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }
  hub::McpClient& client() { return client_; }

  Json describe(const serve::ToolServers::GivenUp& is_given_up) {
    {
      const std::lock_guard lock(mutex_);
      if (listed_ && std::chrono::steady_clock::now() - since_ < kListTime) return *listed_;
    }
    const Result<std::vector<hub::McpTool>> tools = client_.tools(is_given_up);
    Json json = {{"name", name_}, {"state", tools.ok() ? "ready" : "failed"}};
    if (!tools.ok()) {
      json["error"] = tools.error().message();
      json["tools"] = Json::array();
      return json;
    }
    Json list = Json::array();
    for (const hub::McpTool& tool : *tools) {
      list.push_back({{"name", tool.name},
                      {"description", tool.description},
                      {"input_schema", tool.input_schema}});
    }
    json["tools"] = std::move(list);
    const std::lock_guard lock(mutex_);
    listed_ = json;
    since_ = std::chrono::steady_clock::now();
    return json;
  }

 private:
  hub::McpClient client_;
  std::string name_ = client_.name();
  std::mutex mutex_;  // guards what follows
  std::optional<Json> listed_;
  std::chrono::steady_clock::time_point since_;
};

using Servers = std::vector<std::unique_ptr<Server>>;

Result<Json> call_tool(const Servers& servers, const std::string& name, const std::string& tool,
                       const Json& arguments, const serve::ToolServers::GivenUp& is_given_up) {
  for (const auto& server : servers) {
    if (server->name() != name) continue;
    MF_ASSIGN_OR_RETURN(const hub::McpResult result,
                        server->client().call(tool, arguments, is_given_up));
    return Json{{"content", result.content},
                {"is_error", result.is_error},
                {"truncated", result.is_truncated}};
  }
  return make_error(ErrorCode::kNotFound, "no server {} is named by --mcp",
                    json_excerpt(Json(name)));
}

}  // namespace

serve::ToolServers make_tool_servers(const std::vector<std::string>& urls) {
  if (urls.empty()) return {};
  const auto servers = std::make_shared<Servers>();
  for (const std::string& url : urls) {
    auto server = std::make_unique<Server>(url);
    int same = 1;
    for (const auto& other : *servers) same += other->client().name() == server->name() ? 1 : 0;
    if (same > 1) server->set_name(formatted("{} #{}", server->name(), same));
    servers->push_back(std::move(server));
  }
  return {.list =
              [servers](const serve::ToolServers::GivenUp& is_given_up) {
                Json list = Json::array();
                for (const auto& server : *servers) list.push_back(server->describe(is_given_up));
                return list;
              },
          .call =
              [servers](const std::string& server, const std::string& tool, const Json& arguments,
                        const serve::ToolServers::GivenUp& is_given_up) {
                return call_tool(*servers, server, tool, arguments, is_given_up);
              }};
}

}  // namespace moeflux
