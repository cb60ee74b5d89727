#include "cli/serve/serve_options.h"

#include <functional>

#include "base/format.h"
#include "cli/template_option.h"
#include "hub/mcp_client.h"
#include "serve/http/access.h"
#include "serve/keep_alive.h"

namespace moeflux {
namespace {

// A rule that can match nothing would be taken, and allow nothing.
std::function<std::string(const std::string&)> matching(bool (*matches)(std::string_view),
                                                        const char* expected) {
  return [matches, expected](const std::string& text) {
    return matches(text) ? std::string() : formatted("{}, expected {}", text, expected);
  };
}

void add_network_options(CommandOptions& command, ServeOptions& options) {
  command.group("Network");
  command.add("--host", options.host, "Address to listen on").value("ADDRESS");
  command.add("--port", options.port, "Port to listen on; 0: a free one").range(0, 65535);
  command.add("--unix-socket", options.unix_socket, "Socket file to listen on instead")
      .value("FILE")
      .in_help_all();
  command.add("--api-key", options.api_keys, "API key that clients must send; may be repeated")
      .value("KEY")
      .not_empty()
      .secret();
  command.add("--api-key-file", options.api_key_file, "File with an API key on each line")
      .value("FILE")
      .not_empty();
  command
      .add("--admin-key", options.admin_keys,
           "API key that also shows log, plan, options and routes; may be repeated")
      .value("KEY")
      .not_empty()
      .secret()
      .in_help_all();
  command
      .add("--allow-host", options.allowed_hosts,
           "Further name of this server in Host headers; may be repeated")
      .value("NAME")
      .check(matching(serve::is_host_rule, "a name or an address, without a scheme or *"))
      .in_help_all();
  command
      .add("--allow-origin", options.allowed_origins,
           "Origin of web pages that may send requests, or SCHEME://*; may be repeated")
      .value("ORIGIN")
      .check(matching(serve::is_origin_rule,
                      "SCHEME://HOST[:PORT] as browsers send it, SCHEME://*, or *"))
      .in_help_all();
  command
      .add("--allow-public", options.allow_public,
           "Listen without an API key on an address that others reach")
      .in_help_all();
}

void add_request_options(CommandOptions& command, ServeOptions& options) {
  command.group("Requests");
  command
      .add("-np,--parallel", options.parallel, "Requests at once; auto: what a GPU holds, else 4")
      .value("N")
      .check([](const std::string& text) {
        int count = 0;
        const bool is_count = parse_number(text, count).ok() && count >= 1 && count <= 256;
        return is_count || text == "auto" ? std::string()
                                          : formatted("{}, expected 1 to 256, or auto", text);
      });
  command.add("--queue", options.queue_max, "Requests waiting in line before others get 429")
      .range(0, 4096);
  command
      .add("--share", options.share,
           "Scheduling: steps (all requests in every step), slices (one request at a time, in "
           "turn), auto (slices while the drive is the bottleneck)")
      .value("MODE")
      .choices({"auto", "steps", "slices"})
      .in_help_all();
  command
      .add("--states", options.states_folder,
           "Folder where KV caches of conversations and responses outlive a restart")
      .value("FOLDER")
      .not_empty();
  command.add_size("--states-size", options.states_size, "Disk limit of --states").in_help_all();
  command
      .add("--prompts-as-sent", options.prompts_as_sent,
           "Keep the parts of Anthropic prompts that change with every request (docs/server.md)")
      .in_help_all();
}

void add_page_options(CommandOptions& command, ServeOptions& options) {
  command.group("Page");
  command
      .add("--mcp", options.mcp_urls,
           "MCP server whose tools chats of the page may call; may be repeated")
      .value("URL")
      .in_help_all()
      .check([](const std::string& text) {
        return hub::is_mcp_url(text)
                   ? std::string()
                   : formatted("{}, expected http://HOST/PATH or https://HOST/PATH", text);
      });
  command
      .add("--keep-chats", options.keeps_chats,
           "Let the page store its chats here, in memory or in the folder of --states")
      .in_help_all();
}

void add_models_options(CommandOptions& command, ServeOptions& options) {
  command.group("Several models (without -m)");
  command
      .add("--keep-alive", options.keep_alive,
           "Time that an idle model stays loaded, like 30s or 1h; -1: for ever, 0: not at all")
      .value("TIME")
      .check([](const std::string& text) {
        return serve::parse_keep_alive(text) ? std::string()
                                             : formatted("{} is not a time like 5m", text);
      })
      .in_help_all();
  command
      .add_size("--memory", options.memory,
                "Host memory for all models together, like 24G (default: what is free)")
      .in_help_all();
  command
      .add("--manage-models", options.manages_models,
           "Let clients pull, copy and delete models (/api/pull and others)")
      .in_help_all();
}

void add_name_options(CommandOptions& command, ServeOptions& options) {
  command.group("Model");
  command
      .add("--model-name", options.model_name,
           "Name of the model for clients (default: that of -hf, or its folder's)")
      .value("NAME")
      .in_help_all();
  command
      .add("-a,--model-alias,--alias", options.aliases,
           "Further name of the model, for --strict-model; may be repeated")
      .value("NAME")
      .in_help_all();
  command
      .add("--strict-model", options.strict_model,
           "Refuse requests for other models than the names given here")
      .in_help_all();
}

// These hold for one model.
void add_answer_options(CommandOptions& command, ServeOptions& options) {
  command.group("Requests");
  command
      .add("--reasoning-budget", options.reasoning_budget,
           "Tokens of reasoning in an answer; -1: no limit")
      .in_help_all();
  add_pooling_option(command, options.pooling).in_help_all();
  command
      .add("--rerank,--reranking", options.reranks,
           "The model reranks, by yes and no where its files say nothing (docs/server.md)")
      .in_help_all();
}

}  // namespace

bool ServeOptions::has_many() const {
  return model.model.empty() && model.hub_name.empty() && model_name.empty() && aliases.empty() &&
         !strict_model && template_file.empty() && pooling.empty() && !reranks;
}

std::optional<int> ServeOptions::active_max() const {
  int count = 0;
  if (parallel == "auto" || !parse_number(parallel, count).ok()) return std::nullopt;
  return count;
}

void add_serve_options(CommandOptions& command, ServeOptions& options) {
  add_network_options(command, options);
  add_request_options(command, options);
  add_answer_options(command, options);
  add_model_options(command, options.model, "all on this machine");
  add_name_options(command, options);
  add_template_option(command, options.template_file);
  add_models_options(command, options);
  add_page_options(command, options);
  add_sampling_options(command, options.sampling);
}

void add_preset_options(CommandOptions& command, ServeOptions& options) {
  add_answer_options(command, options);
  add_model_options(command, options.model);
  add_template_option(command, options.template_file);
  add_sampling_options(command, options.sampling);
}

}  // namespace moeflux
