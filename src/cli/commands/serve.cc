// moeflux serve: answers HTTP clients until Ctrl-C, SIGTERM or SIGHUP. Requests are answered from
// the start on: with 503 until the model is loaded, and while the program ends.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "base/units.h"
#include "cli/commands/command.h"
#include "cli/commands/replay_points.h"
#include "cli/plan/plan_summary.h"
#include "cli/quick_notes.h"
#include "cli/request_log.h"
#include "cli/serve/local_catalog.h"
#include "cli/serve/serve_options.h"
#include "cli/serve/served_model.h"
#include "cli/serve/tool_servers.h"
#include "cli/terminal.h"
#include "cli/text_input.h"
#include "io/host_memory.h"
#include "io/interrupt.h"
#include "serve/http/http_server.h"
#include "serve/page/page.h"
#include "serve/service.h"

namespace moeflux {
namespace serve_command {
namespace {

constexpr std::chrono::milliseconds kGrace{29'000};
constexpr std::chrono::milliseconds kUnanswered{500};

/// The service that answers: none until the model is loaded.
class Door {
 public:
  void open(std::shared_ptr<serve::Service> service) {
    const std::lock_guard lock(mutex_);
    service_ = std::move(service);
  }
  void close() {
    const std::lock_guard lock(mutex_);
    service_ = nullptr;
    why_ = "the server has stopped";
  }
  void answer(const serve::Request& request, std::shared_ptr<serve::Response> response) {
    std::shared_ptr<serve::Service> service;
    serve::ApiError error{.status = 503, .type = "unavailable_error"};
    {
      const std::lock_guard lock(mutex_);
      service = service_;
      error.message = why_;
    }
    if (service) return service->handle(request, std::move(response));
    serve::AnswerTarget::of(request, std::move(response)).fail(error);
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<serve::Service> service_;
  std::string why_ = "the model is being loaded";  // without a service
};

Result<std::vector<std::string>> read_keys(const ServeOptions& options) {
  std::vector<std::string> keys = options.api_keys;
  if (!options.api_key_file.empty()) {
    MF_ASSIGN_OR_RETURN(const std::string text, read_text_input(options.api_key_file));
    size_t begin = 0;
    while (begin < text.size()) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      std::string line = text.substr(begin, end - begin);
      if (line.ends_with('\r')) line.pop_back();
      if (!line.empty()) keys.push_back(std::move(line));
      begin = end + 1;
    }
    if (keys.empty()) {
      return make_error(ErrorCode::kInvalidArgument, "{} has no key, expected one in each line",
                        options.api_key_file);
    }
  }
  return keys;
}

serve::HttpServerOptions http_options(const ServeOptions& options, std::vector<std::string> keys) {
  serve::HttpServerOptions http;
  http.host = options.host;
  http.port = static_cast<uint16_t>(options.port);
  http.unix_socket = options.unix_socket;
  http.access.api_keys = std::move(keys);
  http.access.admin_keys = options.admin_keys;
  http.access.allowed_hosts = options.allowed_hosts;
  http.access.allowed_origins = options.allowed_origins;
  http.allow_public_without_key = options.allow_public;
  http.is_at_once = &serve::Service::is_at_once;
  return http;
}

// "8192", "a, b", "true", or what help says of an option that nobody gave.
std::string shown_value(const Option& option) {
  if (!option.given()) return option.spec().default_text;
  std::string text;
  for (const std::string& value : option.values()) text += (text.empty() ? "" : ", ") + value;
  return text;
}

serve::PageOptions page_options(const ServeOptions& options,
                                const std::vector<const Option*>& all) {
  serve::PageOptions page{.forecast = &forecast_described,
                          .forecast_models = forecast_names(),
                          .replay = &replay_text,
                          .tools = make_tool_servers(options.mcp_urls),
                          .keeps_chats = options.keeps_chats};
  for (const Option* option : all) {
    if (option->spec().is_secret) continue;
    page.options.push_back(
        {.name = option->name(), .value = shown_value(*option), .given = option->given()});
  }
  return page;
}

Result<std::shared_ptr<serve::Service>> start_one(const ServeOptions& options,
                                                  serve::PageOptions page) {
  MF_ASSIGN_OR_RETURN(serve::ServedModel served, open_served_model(options));
  served.options.page = std::move(page);
  // There is one model: whatever a client calls it, it is meant.
  if (!options.strict_model) served.options.aliases.emplace_back("*");
  MF_ASSIGN_OR_RETURN(auto started,
                      serve::Service::start(std::move(served.model), std::move(served.options)));
  return std::shared_ptr<serve::Service>(std::move(started));
}

Result<std::shared_ptr<serve::Service>> start_many(const ServeOptions& options,
                                                   std::vector<ServePreset> presets,
                                                   serve::PageOptions page) {
  serve::ModelsOptions models{.catalog = make_local_catalog(options, std::move(presets)),
                              .keep_alive = *serve::parse_keep_alive(options.keep_alive),
                              .waiting_max = static_cast<size_t>(options.queue_max),
                              .may_manage = options.manages_models};
  const uint64_t available = query_host_memory().available_bytes;
  if (!options.memory.empty()) {
    MF_ASSIGN_OR_RETURN(models.memory_bytes, parse_bytes(options.memory));
  } else if (available > 0) {
    models.memory_bytes = available;
  }
  serve::ServiceOptions service = service_options(options);
  service.page = std::move(page);
  MF_ASSIGN_OR_RETURN(auto started, serve::Service::start(std::move(models), std::move(service)));
  return std::shared_ptr<serve::Service>(std::move(started));
}

std::string name_of(serve::Service& service) {
  if (!service.model_name().empty()) return service.model_name() + " answers";
  const size_t count = service.models().list().size();
  return formatted("{} model{}", count, count == 1 ? " answers" : "s answer");
}

/// Ends what runs within kGrace; /health says so meanwhile.
void end(serve::HttpServer& server, serve::Service& service) {
  const auto begin = std::chrono::steady_clock::now();
  service.refuse();
  service.end_watching();
  server.drain();
  if (!service.drain_within(kGrace)) service.end_streams();
  const auto time = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - begin);
  // A client without an answer by now asked for something that nobody begins any more.
  server.wait_for_answers(std::max(kGrace - time, kUnanswered), kUnanswered);
  server.stop(std::chrono::milliseconds(0));
  service.drain();  // writes states that are to survive
  // A template or grammar that is still at work may take seconds, and its client has gone.
  if (server.is_handling() || service.is_compiling() || service.is_loading()) ::_exit(0);
}

// Programs ask for these every few seconds, whatever happens.
bool is_watching(const serve::Request& request) {
  return request.path == "/health" || request.path == "/v1/health" || request.path == "/metrics";
}

/// The console and those who watch the log, which has the same lines.
struct Lines {
  std::shared_ptr<QuickNotes> notes = std::make_shared<QuickNotes>(STDERR_FILENO);
  std::shared_ptr<serve::LogRing> ring;

  void add(std::string_view line) const {
    notes->add(line);
    ring->add(line);
  }
};

std::shared_ptr<serve::Response> log_of(const Log& log, const Lines& lines,
                                        const serve::Request& request,
                                        std::shared_ptr<serve::Response> response) {
  if (!log.shows(is_watching(request) ? LogLevel::kDebug : LogLevel::kInfo)) return response;
  return logged(request, std::move(response),
                [lines](const std::string& line) { lines.add(line); });
}

Status run(const ServeOptions& options, const std::vector<const Option*>& all,
           const ConfigFile& config) {
  const std::unique_ptr<InterruptListener> interrupts = listen_for_interrupts();
  MF_ASSIGN_OR_RETURN(std::vector<std::string> keys, read_keys(options));
  Door door;
  const Log* const log = options.model.log;
  const serve::PageOptions page = page_options(options, all);
  const Lines lines{.ring = page.log};
  serve::HttpServerOptions http = http_options(options, std::move(keys));
  if (log->shows(LogLevel::kInfo)) {
    http.on_own_answer = [lines](const serve::Request& request, int status,
                                 std::string_view reason) {
      lines.add(own_answer_line(request, status, reason));
    };
  }
  MF_ASSIGN_OR_RETURN(
      const std::unique_ptr<serve::HttpServer> server,
      serve::HttpServer::start(
          std::move(http), [&](serve::Request request, std::shared_ptr<serve::Response> response) {
            response = log_of(*log, lines, request, std::move(response));
            door.answer(request, std::move(response));
          }));
  std::shared_ptr<serve::Service> service;
  {
    const std::stop_callback at_once(interrupts->token(), [] { end_interrupted(); });
    MF_ASSIGN_OR_RETURN(auto presets, read_presets(config, options));
    if (options.has_many()) {
      MF_ASSIGN_OR_RETURN(service, start_many(options, std::move(presets), page));
    } else {
      MF_ASSIGN_OR_RETURN(service, start_one(options, page));
    }
  }
  door.open(service);
  options.model.log->note(
      options.unix_socket.empty()
          ? formatted("{} at http://{}:{}/v1", name_of(*service), options.host, server->port())
          : formatted("{} at {}", name_of(*service), options.unix_socket));
  if (serve::page_files().empty()) {
    options.model.log->note("no page in this build: `make web` builds it where Node.js is");
  } else if (options.unix_socket.empty()) {
    options.model.log->note(formatted("the page: http://{}:{}", options.host, server->port()));
  }
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  stopped.wait(lock, interrupts->token(), [] { return false; });
  end(*server, *service);
  door.close();
  return {};
}

}  // namespace
}  // namespace serve_command

Command make_serve_command(const CommandContext& context) {
  auto options = std::make_shared<ServeOptions>();
  options->model.log = &context.log;
  CommandOptions command(
      "serve", "Answer HTTP clients of the OpenAI, Anthropic and Ollama APIs, until Ctrl-C.");
  command.example("moeflux serve --port 8080");
  command.example("moeflux serve -m model.gguf --parallel 8 --states ~/.cache/moeflux");
  command.example("moeflux serve -m FOLDER --host 0.0.0.0 --api-key-file keys.txt");
  add_serve_options(command, *options);
  std::vector<const Option*> all;  // they stay where they are
  for (const Option& option : command.options()) all.push_back(&option);
  return {std::move(command), [options, all = std::move(all), &context] {
            return serve_command::run(*options, all, context.config);
          }};
}

}  // namespace moeflux
