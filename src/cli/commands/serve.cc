// moeflux serve: answers HTTP clients until Ctrl-C, SIGTERM or SIGHUP. Requests are answered from
// the start on: with 503 until the model is loaded, and while the program ends.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "base/units.h"
#include "chat/chat_format.h"
#include "chat/open_model.h"
#include "cli/commands/command.h"
#include "cli/model_options.h"
#include "cli/quick_notes.h"
#include "cli/request_log.h"
#include "cli/sampling_options.h"
#include "cli/template_option.h"
#include "cli/terminal.h"
#include "cli/text_input.h"
#include "io/interrupt.h"
#include "serve/http/access.h"
#include "serve/http/http_server.h"
#include "serve/service.h"

namespace moeflux {
namespace serve_command {
namespace {

constexpr std::chrono::milliseconds kGrace{29'000};
constexpr std::chrono::milliseconds kUnanswered{500};
constexpr uint64_t kResponseBytesMax = 256 * kMiB;  // of OpenAI's that are kept on a drive

struct Options {
  ModelOptions model;
  SamplingFlags sampling;
  std::string host = "127.0.0.1";
  int port = 8080;
  std::string unix_socket;
  std::vector<std::string> api_keys;
  std::string api_key_file;
  std::vector<std::string> allowed_hosts;
  std::vector<std::string> allowed_origins;
  bool allow_public = false;
  std::string model_name;
  std::vector<std::string> aliases;
  bool strict_model = false;
  std::string template_file;
  std::string states_folder;
  std::string states_size = "4GiB";
  int64_t reasoning_budget = -1;
  int active_max = 4;
  std::string share = "auto";
  int queue_max = 64;
  bool prompts_as_sent = false;
  std::string pooling;
  bool reranks = false;
};

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

Result<std::vector<std::string>> read_keys(const Options& options) {
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

serve::HttpServerOptions http_options(const Options& options, std::vector<std::string> keys) {
  serve::HttpServerOptions http;
  http.host = options.host;
  http.port = static_cast<uint16_t>(options.port);
  http.unix_socket = options.unix_socket;
  http.access.api_keys = std::move(keys);
  http.access.allowed_hosts = options.allowed_hosts;
  http.access.allowed_origins = options.allowed_origins;
  http.allow_public_without_key = options.allow_public;
  http.is_at_once = &serve::Service::is_at_once;
  return http;
}

// As the option's check allows.
Sharing sharing_of(const std::string& name) {
  if (name == "steps") return Sharing::kSteps;
  return name == "slices" ? Sharing::kSlices : Sharing::kAuto;
}

// Before the weights are read: that may take minutes. A model continues texts without its template.
Status check_chats(const std::string& directory, const ModelText& text,
                   const std::optional<GivenTemplate>& given, const Log& log) {
  if (!text.tokenizer.ok()) return text.tokenizer.error();
  MF_ASSIGN_OR_RETURN(const auto source, open_model_source(directory));
  const auto format = ChatFormat::load(*source, *text.tokenizer, given);
  if (format.ok()) {
    check_question(**format, log);
    return {};
  }
  if (given) return format.error();
  log.warning(formatted("{}; chats are refused, completions work", format.error().message()));
  return {};
}

Result<std::shared_ptr<serve::Service>> load(const Options& options) {
  MF_ASSIGN_OR_RETURN(const std::string directory, model_directory(options.model));
  MF_ASSIGN_OR_RETURN(ModelText text, load_model_text(directory));
  set_pooling(options.pooling, text);
  MF_ASSIGN_OR_RETURN(SamplerOptions sampler,
                      sampler_options(options.sampling, text.defaults.sampler));
  if (options.sampling.draws_seed()) sampler.seed = 0;  // anew for each request
  serve::ServiceOptions service{
      .model_name = options.model_name.empty() ? options.model.hub_name : options.model_name,
      .aliases = options.aliases,
      .reranks = options.reranks,
      .defaults = {.sampler = std::move(sampler), .reasoning_tokens_max = options.reasoning_budget},
      .scheduler = {.queue_max = options.queue_max,
                    .active_max = options.active_max,
                    .sharing = sharing_of(options.share)},
      .steady_prompts = !options.prompts_as_sent,
      .on_note = [notes = std::make_shared<QuickNotes>(STDERR_FILENO),
                  &log = *options.model.log](const std::string& line) {
        if (log.shows(LogLevel::kInfo)) notes->add(line);
      }};
  // There is one model: whatever a client calls it, it is meant.
  if (!options.strict_model) service.aliases.emplace_back("*");
  MF_ASSIGN_OR_RETURN(const auto given, given_template(options.template_file));
  MF_RETURN_IF_ERROR(check_chats(directory, text, given, *options.model.log));
  if (given) {
    service.template_text = given->text;
    service.template_file = given->place;
  }
  MF_ASSIGN_OR_RETURN(EngineOptions engine, engine_options(options.model));
  engine.step_sequences = options.active_max;
  if (!options.states_folder.empty()) {
    engine.prefix_cache_directory = options.states_folder;
    MF_ASSIGN_OR_RETURN(engine.prefix_cache_bytes, parse_bytes(options.states_size));
    service.folder = options.states_folder;
    service.responses.bytes_max = kResponseBytesMax;
  }
  MF_ASSIGN_OR_RETURN(auto model,
                      open_model(options.model, directory, std::move(engine), std::move(text)));
  note_context(options.model, *model);
  MF_ASSIGN_OR_RETURN(auto started, serve::Service::start(std::move(model), std::move(service)));
  return std::shared_ptr<serve::Service>(std::move(started));
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
  if (server.is_handling() || service.is_compiling()) ::_exit(0);
}

// Programs ask for these every few seconds, whatever happens.
bool is_watching(const serve::Request& request) {
  return request.path == "/health" || request.path == "/v1/health" || request.path == "/metrics";
}

std::shared_ptr<serve::Response> log_of(const Log& log, const std::shared_ptr<QuickNotes>& notes,
                                        const serve::Request& request,
                                        std::shared_ptr<serve::Response> response) {
  if (!log.shows(is_watching(request) ? LogLevel::kDebug : LogLevel::kInfo)) return response;
  return logged(request, std::move(response),
                [notes](const std::string& line) { notes->add(line); });
}

Status run(const Options& options) {
  const std::unique_ptr<InterruptListener> interrupts = listen_for_interrupts();
  MF_ASSIGN_OR_RETURN(std::vector<std::string> keys, read_keys(options));
  Door door;
  const Log* const log = options.model.log;
  const auto notes = std::make_shared<QuickNotes>(STDERR_FILENO);
  serve::HttpServerOptions http = http_options(options, std::move(keys));
  if (log->shows(LogLevel::kInfo)) {
    http.on_own_answer = [notes](const serve::Request& request, int status,
                                 std::string_view reason) {
      notes->add(own_answer_line(request, status, reason));
    };
  }
  MF_ASSIGN_OR_RETURN(
      const std::unique_ptr<serve::HttpServer> server,
      serve::HttpServer::start(
          std::move(http), [&](serve::Request request, std::shared_ptr<serve::Response> response) {
            response = log_of(*log, notes, request, std::move(response));
            door.answer(request, std::move(response));
          }));
  std::shared_ptr<serve::Service> service;
  {
    const std::stop_callback at_once(interrupts->token(), [] { end_interrupted(); });
    MF_ASSIGN_OR_RETURN(service, load(options));
  }
  door.open(service);
  options.model.log->note(
      options.unix_socket.empty()
          ? formatted("{} answers at http://{}:{}/v1", service->model_name(), options.host,
                      server->port())
          : formatted("{} answers at {}", service->model_name(), options.unix_socket));
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  stopped.wait(lock, interrupts->token(), [] { return false; });
  end(*server, *service);
  door.close();
  return {};
}

// A rule that can match nothing would be taken, and allow nothing.
std::function<std::string(const std::string&)> matching(bool (*matches)(std::string_view),
                                                        const char* expected) {
  return [matches, expected](const std::string& text) {
    return matches(text) ? std::string() : formatted("{}, expected {}", text, expected);
  };
}

void add_network_options(CommandOptions& command, Options& options) {
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

void add_request_options(CommandOptions& command, Options& options) {
  command.group("Requests");
  command.add("-np,--parallel", options.active_max, "Requests generated at the same time")
      .range(1, 64);
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
      .add("--reasoning-budget", options.reasoning_budget,
           "Tokens of reasoning in an answer; -1: no limit")
      .in_help_all();
  command
      .add("--prompts-as-sent", options.prompts_as_sent,
           "Keep the parts of Anthropic prompts that change with every request (docs/server.md)")
      .in_help_all();
  add_pooling_option(command, options.pooling).in_help_all();
  command
      .add("--rerank,--reranking", options.reranks,
           "The model reranks, by yes and no where its files say nothing (docs/server.md)")
      .in_help_all();
}

void add_name_options(CommandOptions& command, Options& options) {
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
  add_template_option(command, options.template_file);
}

}  // namespace
}  // namespace serve_command

Command make_serve_command(const CommandContext& context) {
  auto options = std::make_shared<serve_command::Options>();
  options->model.log = &context.log;
  CommandOptions command(
      "serve", "Answer HTTP clients of the OpenAI, Anthropic and Ollama APIs, until Ctrl-C.");
  command.example("moeflux serve -m FOLDER --port 8080");
  command.example("moeflux serve -m model.gguf --parallel 8 --states ~/.cache/moeflux");
  command.example("moeflux serve -m FOLDER --host 0.0.0.0 --api-key-file keys.txt");
  serve_command::add_network_options(command, *options);
  serve_command::add_request_options(command, *options);
  add_model_options(command, options->model);
  serve_command::add_name_options(command, *options);
  add_sampling_options(command, options->sampling);
  return {std::move(command), [options] { return serve_command::run(*options); }};
}

}  // namespace moeflux
