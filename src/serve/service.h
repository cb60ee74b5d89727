// Answers requests to a server of one model, brought by an HTTP server, a C program or a Python
// server.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "serve/context.h"
#include "serve/wire/exchange.h"
#include "serve/wire/interface.h"

namespace moeflux::serve {

class Service {
 public:
  /// A model without a chat template answers
  /// completions alone, and says why. Fails without a tokenizer, and where it cannot keep.
  static Result<std::unique_ptr<Service>> start(std::shared_ptr<OpenModel> model,
                                                ServiceOptions options);
  /// Cancels what runs.
  ~Service();

  /// Answers now or later. Any thread; JSON, template and tokens are made in the call, and
  /// constraints on threads of the service.
  void handle(const Request& request, std::shared_ptr<Response> response);
  /// Requests that are answered from memory, whatever else goes on: /health and the like.
  static bool is_at_once(const Request& request);
  /// Ends the streams of those who watch and would never leave: call it before a server waits for
  /// its connections.
  void end_watching() { context_->end_watching(); }
  /// Ends the answers of streams that may be come back to, which end with no client.
  void end_streams() { context_->streams().erase_all(); }
  /// Refuses further texts, and says so at /health.
  void refuse() { context_->refuse(); }
  /// The same, and waits for texts that have begun and for what is to survive.
  void drain();
  /// The same; false when `time` is over before.
  bool drain_within(std::chrono::milliseconds time);
  /// A constraint is being compiled, or waits for that.
  bool is_compiling() const { return put_off_bytes_ > 0; }

  const std::string& model_name() const { return context_->options().model_name; }
  /// Longer prompts are refused unread.
  size_t prompt_bytes_max() const { return context_->prompt_bytes_max(); }
  SchedulerCounters counters() const { return context_->scheduler().counters(); }
  /// For Prometheus.
  std::string metrics() const { return context_->metrics(); }
  /// How often each path was asked for, those too that nobody asked for.
  std::vector<AskedCount> asked() const { return context_->asked(); }

 private:
  explicit Service(std::unique_ptr<Context> context) : context_(std::move(context)) {}

  /// False where the body is no JSON or names another model, which has been answered.
  bool read_body(Call& call, const Route& route);
  /// Calls the handler again where it may take long.
  void put_off(Call& call, const Route& route);

  const std::unique_ptr<Context> context_;
  std::atomic<size_t> put_off_bytes_ = 0;
  JobThread evaluations_;   // of texts that nothing continues, one request after another
  JobThread long_jobs_{2};  // last, with evaluations_: they use the context
};

}  // namespace moeflux::serve
