#include "serve/loading_stream.h"

#include <utility>

#include "serve/wire/wire_json.h"

namespace moeflux::serve {
namespace {

constexpr std::chrono::milliseconds kLoadingInterval{200};

// Fields that are not of these types are refused where all of them are read.
bool boolean_or(const Json& body, const char* name, bool otherwise) {
  const auto found = body.find(name);
  return found != body.end() && found->is_boolean() ? found->get<bool>() : otherwise;
}

}  // namespace

bool wants_loading(const Json& body, const Interface& interface) {
  return body.is_object() && boolean_or(body, "return_progress", false) &&
         boolean_or(body, "stream", interface.streams_by_default);
}

LoadingStream::LoadingStream(AnswerTarget target, Json chunk)
    : ForwardingResponse(target.response), target_(std::move(target)), chunk_(std::move(chunk)) {}

void LoadingStream::tell(double progress) {
  const auto now = std::chrono::steady_clock::now();
  if (begun_ && progress < 1 && now < told_ + kLoadingInterval) return;
  if (!std::exchange(begun_, true)) target_.begin_stream();
  told_ = now;
  chunk_["model_status"] = {{"value", "loading"}, {"progress", progress}};
  write_event(dump_json(chunk_));
}

void LoadingStream::send(int status, Headers headers, std::string body) {
  if (!begun_) return response_->send(status, std::move(headers), std::move(body));
  write_event(body);
  end();
}

void LoadingStream::write_event(const std::string& json) {
  response_->write(target_.interface->stream.is_events ? "data: " + json + "\n\n" : json + "\n");
}

}  // namespace moeflux::serve
