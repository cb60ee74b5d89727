#include "serve/http/handler_lanes.h"

#include <utility>

#include "io/thread_priority.h"

namespace moeflux::serve {

HandlerLanes::HandlerLanes(Handler handler, std::function<bool(const Request&)> is_at_once)
    : handler_(std::move(handler)), is_at_once_(std::move(is_at_once)) {}

void HandlerLanes::handle(Request request, std::shared_ptr<Response> response,
                          std::shared_ptr<BodyShare> share) {
  const bool is_at_once = is_at_once_ && is_at_once_(request);
  const bool is_long = !is_at_once && request.body.size() > kShortBodyBytes;
  // A std::function is copied, a request is not: its body may have 32 MiB.
  auto owned = std::make_shared<Request>(std::move(request));
  JobThread& lane = is_at_once ? at_once_ : is_long ? long_ : short_;
  lane.add([this, is_long, owned = std::move(owned), response = std::move(response),
            share = std::move(share)]() mutable {
    // Others' texts are computed meanwhile.
    if (is_long) lower_thread_priority();
    if (response->is_closed()) return;
    ++handling_;
    handler_(std::move(*owned), std::move(response));
    --handling_;
  });
}

}  // namespace moeflux::serve
