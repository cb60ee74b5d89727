#include "serve/kept/resumable_streams.h"

#include <algorithm>
#include <utility>

#include "serve/kept/resumable_stream.h"

namespace moeflux::serve {

ApiError no_stream_is_kept() {
  return {.status = 404,
          .type = "not_found_error",
          .message = "no stream of that conversation is kept"};
}

ResumableStreams::ResumableStreams(ResumableLimits limits, std::function<Time()> now)
    : limits_(limits), now_(now ? std::move(now) : [] { return Time::clock::now(); }) {}

ResumableStreams::~ResumableStreams() = default;

// Forgets streams that ended long ago.
void ResumableStreams::forget_old() {
  const Time now = now_();
  std::erase_if(streams_, [&](const auto& one) {
    const auto ended = one.second->ended_at();
    return ended && now - *ended >= limits_.kept_for;
  });
}

bool ResumableStreams::end(const std::string& id, const std::string& reason) {
  std::shared_ptr<ResumableStream> stream;
  {
    const std::lock_guard lock(mutex_);
    const auto found = streams_.find(id);
    if (found == streams_.end()) return false;
    stream = std::move(found->second);
    streams_.erase(found);
  }
  stream->close(reason);
  return true;
}

std::shared_ptr<Response> ResumableStreams::keep(const std::string& id,
                                                 std::shared_ptr<Response> response) {
  end(id, "another request took the stream's X-Conversation-Id before it ended");
  const std::lock_guard lock(mutex_);
  forget_old();
  if (streams_.size() >= limits_.streams) {
    const auto ended = std::find_if(streams_.begin(), streams_.end(),
                                    [](const auto& one) { return one.second->ended_at(); });
    if (ended == streams_.end()) return response;
    streams_.erase(ended);
  }
  auto stream = std::make_shared<ResumableStream>(limits_.stream_bytes, now_, std::move(response));
  streams_[id] = stream;
  return stream;
}

std::optional<ApiError> ResumableStreams::resume(const std::string& id, uint64_t from,
                                                 std::shared_ptr<Response> response) {
  std::shared_ptr<ResumableStream> stream;
  {
    const std::lock_guard lock(mutex_);
    forget_old();
    const auto found = streams_.find(id);
    if (found != streams_.end()) stream = found->second;
  }
  if (stream) return stream->attach(from, std::move(response));
  return no_stream_is_kept();
}

bool ResumableStreams::erase(const std::string& id) {
  return end(id, "the stream was deleted before it ended");
}

void ResumableStreams::erase_all() {
  std::map<std::string, std::shared_ptr<ResumableStream>> streams;
  {
    const std::lock_guard lock(mutex_);
    streams.swap(streams_);
  }
  for (const auto& [id, stream] : streams) stream->close({});  // the server is stopping
}

}  // namespace moeflux::serve
