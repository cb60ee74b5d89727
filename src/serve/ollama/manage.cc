// Ollama's requests that bring, rename and remove models. They need --manage-models.
#include <chrono>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>

#include "base/format.h"
#include "serve/ollama/handlers.h"
#include "serve/request/fields.h"
#include "serve/wire/wire_json.h"

namespace moeflux::serve {
namespace {

constexpr std::chrono::milliseconds kPullingInterval{200};

bool may_manage(const Call& call) {
  const auto error = call.models.may_manage();
  if (error) call.fail(*error);
  return !error;
}

// A missing name is a problem of the fields.
std::string name_of(Fields& fields, const char* field) {
  const bool is_old = std::string_view(field) == "model" && !fields.has("model");
  const std::string name = fields.text(is_old ? "name" : field).value_or("");
  if (name.empty()) {
    fields.fail(bad_field(field, formatted("{} is absent, expected the name of a model", field)));
  }
  return name;
}

/// Tells one client of a download; on the thread of the download.
class PullAnswer {
 public:
  PullAnswer(AnswerTarget target, std::string name, bool streams)
      : target_(std::move(target)), name_(std::move(name)), streams_(streams) {
    target_.response->when_closed([stop = stop_]() mutable { stop.request_stop(); });
    if (!streams_) return;
    target_.begin_stream();
    write({{"status", "pulling manifest"}});
  }
  std::stop_token stop() const { return stop_.get_token(); }

  void progress(uint64_t done, uint64_t total) {
    const auto now = std::chrono::steady_clock::now();
    if (!streams_ || (done < total && now < told_ + kPullingInterval)) return;
    told_ = now;
    write({{"status", formatted("pulling {}", name_)},
           {"digest", name_},
           {"total", total},
           {"completed", done}});
  }
  void end(const Status& pulled) {
    if (!streams_) {
      if (pulled.ok()) return target_.answer({{"status", "success"}});
      return target_.fail(model_name_error(pulled.error()));
    }
    if (pulled.ok()) {
      write({{"status", "success"}});
    } else {
      write({{"error", model_name_error(pulled.error()).message}});
    }
    target_.response->end();
  }

 private:
  void write(const Json& line) { target_.response->write(json_line(line)); }

  const AnswerTarget target_;
  const std::string name_;
  const bool streams_;
  std::stop_source stop_;
  std::chrono::steady_clock::time_point told_;
};

}  // namespace

void pull_model(Call& call) {
  if (!may_manage(call)) return;
  Fields fields(call.body);
  const std::string name = name_of(fields, "model");
  const bool streams = fields.boolean("stream").value_or(true);
  if (fields.problem()) return call.fail(*fields.problem());
  const auto answer = std::make_shared<PullAnswer>(call.target, name, streams);
  call.models.pull(
      {.name = name,
       .stop = answer->stop(),
       .progress = [answer](uint64_t done, uint64_t total) { answer->progress(done, total); }},
      [answer](const Status& pulled) { answer->end(pulled); });
}

void copy_model(Call& call) {
  if (!may_manage(call)) return;
  Fields fields(call.body);
  const std::string from = name_of(fields, "source");
  const std::string to = name_of(fields, "destination");
  if (fields.problem()) return call.fail(*fields.problem());
  if (const auto error = call.models.copy(from, to)) return call.fail(*error);
  call.target.response->send(200, {}, {});
}

// The service reads bodies of POST alone.
void delete_model(Call& call) {
  if (!may_manage(call)) return;
  const Result<Json> body = parse_json(call.request.body, "the body");
  if (!body.ok()) return call.fail(bad_field("", body.error().message()));
  Fields fields(*body);
  const std::string name = name_of(fields, "model");
  if (fields.problem()) return call.fail(*fields.problem());
  if (const auto error = call.models.remove(name)) return call.fail(*error);
  call.target.response->send(200, {}, {});
}

}  // namespace moeflux::serve
