// Streams that a client may leave and come back to: their events are numbered and kept for a while,
// and the answer goes on meanwhile.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "serve/wire/api_error.h"
#include "serve/wire/exchange.h"

namespace moeflux::serve {

struct ResumableLimits {
  size_t streams = 32;                    // kept at once; a further one is an ordinary stream
  size_t stream_bytes = size_t{4} << 20;  // of events kept; the oldest go first
  std::chrono::seconds kept_for{300};     // after the end
};

class ResumableStream;

/// 404, for a stream that there is not.
ApiError no_stream_is_kept();

/// Thread-safe.
class ResumableStreams {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit ResumableStreams(ResumableLimits limits = {}, std::function<Time()> now = {});
  ~ResumableStreams();

  /// Stands in for `response`: pieces of its answer are stored under `id`, and the client's going
  /// does not end it. A stream of that id which is there already is erased. Answers that come whole
  /// go to `response` alone.
  std::shared_ptr<Response> keep(const std::string& id, std::shared_ptr<Response> response);

  /// Sends events from number `from` on, those that are still to come included; who was reading is
  /// sent no more. An error where there is no such stream, or these events are gone.
  std::optional<ApiError> resume(const std::string& id, uint64_t from,
                                 std::shared_ptr<Response> response);
  /// Ends the answer, if it goes on, and forgets it. False where there was none.
  bool erase(const std::string& id);
  /// The same for all there are.
  void erase_all();

 private:
  void forget_old();
  bool end(const std::string& id, const std::string& reason);

  const ResumableLimits limits_;
  const std::function<Time()> now_;
  std::mutex mutex_;  // guards what follows
  std::map<std::string, std::shared_ptr<ResumableStream>> streams_;
};

}  // namespace moeflux::serve
