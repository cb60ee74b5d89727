// The parts that a program gives a service for pages: its log and options, a planner, the tools of
// other servers, and room for chats.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "serve/log_ring.h"

namespace moeflux::serve {

/// An option of the program; secret ones are left out.
struct OptionInForce {
  std::string name;
  std::string value;
  bool given = false;  // by the command line, a file or a variable
};

/// Tools of MCP servers. Functions are for any thread, may wait, and ask now and then whether they
/// are given up. An empty struct: none.
struct ToolServers {
  using GivenUp = std::function<bool()>;

  /// [{name, state, error, tools: [{name, description, input_schema}]}]
  std::function<Json(const GivenUp& is_given_up)> list = {};
  /// {content, is_error, truncated}. Fails with kNotFound for a server or tool that there is not,
  /// kIo and kCorruption where the server does not answer as it ought to.
  std::function<Result<Json>(const std::string& server, const std::string& tool,
                             const Json& arguments, const GivenUp& is_given_up)>
      call = {};
};

struct PageOptions {
  std::shared_ptr<LogRing> log = std::make_shared<LogRing>();
  std::vector<OptionInForce> options = {};
  /// The forecast of `moeflux plan --json` for a machine that is described; measures nothing.
  /// `model` is the folder of the loaded model, for requests that name no other. Null: none.
  std::function<Result<Json>(const Json& machine, const std::string& model)> forecast = {};
  std::vector<std::string> forecast_models = {};  // names that a machine's `like` may have
  /// Hit rates of a trace's text at so many cache sizes: the code of `moeflux replay`. Null: none.
  /// Fails with kFailedPrecondition for a trace without routes.
  std::function<Result<Json>(const std::string& trace, int points)> replay = {};
  ToolServers tools = {};
  bool keeps_chats = false;
};

}  // namespace moeflux::serve
