// What a server of one model does with each request, whoever brings it: an HTTP server, a C program
// or a Python server.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/chat_format.h"
#include "chat/open_model.h"
#include "chat/scheduler.h"
#include "serve/exchange.h"
#include "serve/openai_chat.h"

namespace moeflux::serve {

struct ServiceOptions {
  std::string model_name;                    // what clients call it; empty: the folder's name
  std::vector<std::string> aliases = {};     // further names; "*" is any
  std::optional<std::string> template_text;  // in place of the model's own
  RequestDefaults defaults;                  // what requests say nothing of
  SchedulerOptions scheduler;
};

class Service {
 public:
  /// A model without a chat template answers
  /// completions alone, and says why. Fails without a tokenizer.
  static Result<std::unique_ptr<Service>> start(std::shared_ptr<OpenModel> model,
                                                ServiceOptions options);
  /// Cancels what runs.
  ~Service();

  /// Answers now or later. Any thread; JSON, template and tokens are made in the call.
  void handle(const Request& request, std::shared_ptr<Response> response);
  /// Refuses further texts and waits for those that have begun.
  void drain();

  const std::string& model_name() const { return options_.model_name; }
  SchedulerCounters counters() const { return scheduler_->counters(); }
  /// For Prometheus.
  std::string metrics() const;

 private:
  struct Call;
  using Handle = void (Service::*)(Call& call);
  struct Route;
  static const std::vector<Route>& routes();

  Service(std::shared_ptr<OpenModel> model, ServiceOptions options);

  void chat_completions(Call& call);
  void completions(Call& call);
  void count_input_tokens(Call& call);
  void tokenize(Call& call);
  void detokenize(Call& call);
  void apply_template(Call& call);
  void models(Call& call);
  void health(Call& call);
  void props(Call& call);
  void slots(Call& call);
  void show_metrics(Call& call);
  void openapi(Call& call);
  void not_offered(Call& call);
  ApiError unknown_model(const std::string& name) const;

  const Tokenizer& tokenizer() const { return *model_->text.tokenizer; }
  bool knows(const std::string& name) const;
  AnswerIdentity identity(std::string_view prefix, const GenerationFields& generation) const;
  /// No more than the rest of the context; negative, as the client has it, for no limit.
  int64_t tokens_max(const GenerationFields& generation, size_t prompt_tokens) const;

  const std::shared_ptr<OpenModel> model_;
  ServiceOptions options_;
  const int64_t started_;
  Result<std::shared_ptr<const ChatFormat>> format_;
  std::string fingerprint_;
  std::unique_ptr<Scheduler> scheduler_;
};

}  // namespace moeflux::serve
