// Answers requests to a server of one model or several, brought by an HTTP server, a C program or a
// Python server.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "serve/models.h"
#include "serve/service_state.h"
#include "serve/wire/exchange.h"
#include "serve/wire/interface.h"

namespace moeflux::serve {

class Service {
 public:
  /// A model without a chat template answers
  /// completions alone, and says why. Fails without a tokenizer, and where it cannot keep.
  static Result<std::unique_ptr<Service>> start(std::shared_ptr<OpenModel> model,
                                                ServiceOptions options);
  /// Models of a catalog, which are loaded when requests name them. The options are those of the
  /// service; each model brings its own.
  static Result<std::unique_ptr<Service>> start(ModelsOptions models, ServiceOptions options);
  /// Cancels what runs.
  ~Service();

  /// Answers now or later. Any thread; JSON, template and tokens are made in the call, and
  /// constraints on threads of the service.
  void handle(const Request& request, std::shared_ptr<Response> response);
  /// Requests that are answered from memory, whatever else goes on: /health and the like.
  static bool is_at_once(const Request& request);
  /// Ends the streams of those who watch and would never leave: call it before a server waits for
  /// its connections.
  void end_watching() { state_->end_watching(); }
  /// Ends the answers of streams that may be come back to, which end with no client.
  void end_streams() { state_->streams().erase_all(); }
  /// Refuses further texts, and says so at /health.
  void refuse();
  /// The same, and waits for texts that have begun and for what is to survive.
  void drain();
  /// The same; false when `time` is over before.
  bool drain_within(std::chrono::milliseconds time);
  /// A constraint is being compiled, or waits for that.
  bool is_compiling() const { return put_off_bytes_ > 0; }

  Models& models() { return *models_; }
  bool is_loading() const { return models_->is_loading(); }
  /// The one model's; empty where there may be several.
  const std::string& model_name() const { return model_name_; }
  SchedulerCounters counters() const { return models_->texts(); }
  /// For Prometheus.
  std::string metrics() const;
  /// How often each path was asked for, those too that nobody asked for.
  std::vector<AskedCount> asked() const { return state_->asked(); }

 private:
  struct PutOff;
  Service(std::unique_ptr<ServiceState> state, ModelsOptions models);

  /// False where the body is no JSON, which has been answered.
  bool read_body(Call& call) const;
  /// The model that the body names. Nothing where the request has failed.
  static std::optional<ModelUse> read_use(const Call& call);
  /// Goes on when the model is loaded.
  void wait(Call& call, const Route& route, const ModelUse& use);
  void answer(Call& call, const Route& route);
  /// The request for another thread. Null where there are too many, which has been answered.
  std::shared_ptr<PutOff> put_aside(Call& call);
  /// Calls the handler again where it may take long.
  void put_off(Call& call, const Route& route);

  const std::unique_ptr<ServiceState> state_;
  const std::unique_ptr<Models> models_;
  std::string model_name_;
  std::atomic<size_t> put_off_bytes_ = 0;
  JobThread ready_{2};      // requests whose model has been loaded
  JobThread evaluations_;   // of texts that nothing continues, one request after another
  JobThread long_jobs_{2};  // last, with the other two: they use models
};

}  // namespace moeflux::serve
