#include "serve/http/http_answer.h"

#include <utility>

#include "base/check.h"
#include "serve/http/http_text.h"

namespace moeflux::serve {
namespace {

class ChannelResponse : public Response {
 public:
  explicit ChannelResponse(std::shared_ptr<AnswerChannel> channel) : channel_(std::move(channel)) {}
  ~ChannelResponse() override { channel_->release(); }
  ChannelResponse(const ChannelResponse&) = delete;
  ChannelResponse& operator=(const ChannelResponse&) = delete;

  void send(int status, Headers headers, std::string body) override {
    channel_->send(status, std::move(headers), std::move(body));
  }
  void begin(int status, Headers headers) override { channel_->begin(status, std::move(headers)); }
  void write(std::string bytes) override { channel_->write(std::move(bytes)); }
  void end() override { channel_->end(); }
  void keep_alive(std::string bytes, std::chrono::milliseconds interval) override {
    break_silence([bytes = std::move(bytes)] { return bytes; }, interval);
  }
  void break_silence(std::function<std::string()> bytes,
                     std::chrono::milliseconds interval) override {
    channel_->break_silence(std::move(bytes), interval);
  }
  size_t unsent_bytes() const override { return channel_->unsent_bytes(); }
  void when_drained(size_t bytes, std::function<void()> drained) override {
    channel_->when_drained(bytes, std::move(drained));
  }
  void when_closed(std::function<void()> closed) override {
    channel_->when_closed(std::move(closed));
  }
  bool is_closed() const override { return channel_->is_closed(); }

 private:
  std::shared_ptr<AnswerChannel> channel_;
};

}  // namespace

AnswerChannel::AnswerChannel(AnswerFrame frame, std::shared_ptr<Loop> loop,
                             std::function<void()> ready)
    : frame_(std::move(frame)), loop_(std::move(loop)), ready_(std::move(ready)) {}

void AnswerChannel::wake_locked() {
  if (waking_ || closed_) return;
  waking_ = loop_->post(ready_);
}

void AnswerChannel::send(int status, Headers headers, std::string body) {
  // Callbacks are destroyed after the lock: they may own what takes locks, even this answer.
  std::function<void()> forgotten;
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  MF_CHECK(stage_ == Stage::kOpen);
  stage_ = Stage::kEnded;
  status_ = status;
  headers_ = std::move(headers);
  pending_ = std::move(body);
  forgotten.swap(when_closed_);
  wake_locked();
}

void AnswerChannel::begin(int status, Headers headers) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  MF_CHECK(stage_ == Stage::kOpen);
  stage_ = Stage::kStreaming;
  streamed_ = true;
  status_ = status;
  headers_ = std::move(headers);
  wake_locked();
}

void AnswerChannel::write(std::string bytes) {
  const std::lock_guard lock(mutex_);
  if (closed_ || bytes.empty()) return;
  MF_CHECK(stage_ == Stage::kStreaming);
  if (pending_.empty()) {
    pending_ = std::move(bytes);
  } else {
    pending_ += bytes;
  }
  wake_locked();
}

void AnswerChannel::end() {
  std::function<void()> forgotten;
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  MF_CHECK(stage_ == Stage::kStreaming);
  stage_ = Stage::kEnded;
  forgotten.swap(when_closed_);
  wake_locked();
}

void AnswerChannel::break_silence(std::function<std::string()> bytes,
                                  std::chrono::milliseconds interval) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  MF_CHECK(stage_ == Stage::kStreaming && interval.count() > 0);
  speech_ = std::move(bytes);
  speech_interval_ = interval;
  wake_locked();  // the connection sets its clock
}

size_t AnswerChannel::unsent_bytes() const {
  const std::lock_guard lock(mutex_);
  return unsent_locked();
}

void AnswerChannel::when_drained(size_t bytes, std::function<void()> drained) {
  std::function<void()> forgotten;
  {
    const std::lock_guard lock(mutex_);
    forgotten.swap(drained_);
    if (!closed_ && unsent_locked() > bytes) {
      drained_at_ = bytes;
      drained_ = std::move(drained);
      return;
    }
  }
  // Without a loop nobody else is left to call it.
  if (!loop_->post(drained)) drained();
}

void AnswerChannel::when_closed(std::function<void()> closed) {
  std::function<void()> forgotten;
  {
    const std::lock_guard lock(mutex_);
    forgotten.swap(when_closed_);
    if (!closed_) {
      if (stage_ != Stage::kEnded) when_closed_ = std::move(closed);
      return;
    }
    if (stage_ == Stage::kEnded) return;
  }
  closed();
}

bool AnswerChannel::is_closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

void AnswerChannel::release() {
  std::function<void()> forgotten;
  const std::lock_guard lock(mutex_);
  forgotten.swap(when_closed_);
  if (closed_ || stage_ == Stage::kEnded) return;
  given_up_ = true;
  wake_locked();
}

std::string AnswerChannel::head_locked(bool keep_alive) const {
  AnswerHead head{.status = status_, .minor_version = frame_.minor_version};
  head.keep_alive = keep_alive;
  head.body_bytes = pending_.size();
  if (!status_has_body(status_)) {
    head.framing = BodyFraming::kNone;
  } else if (streamed_) {
    head.framing = is_chunked() ? BodyFraming::kChunked : BodyFraming::kUntilClose;
  }
  return head_text(head, frame_.headers, headers_);
}

std::optional<AnswerPiece> AnswerChannel::take(bool keep_alive) {
  const std::lock_guard lock(mutex_);
  waking_ = false;
  if (closed_ || last_taken_ || (stage_ == Stage::kOpen && !given_up_)) return std::nullopt;
  AnswerPiece piece;
  if (stage_ == Stage::kOpen) {
    status_ = 500;
    headers_ = {{"Content-Type", "application/json"}};
    pending_ = refusal_body({500, "server_error", "", "the request was given up unanswered"});
    stage_ = Stage::kEnded;
    given_up_ = false;
    keep_alive = false;
  }
  const bool until_close = streamed_ && !is_chunked() && status_has_body(status_);
  // The head of an answer in pieces is all that HEAD wants of it.
  const bool no_body = frame_.head_only || !status_has_body(status_);
  piece.status = status_;
  piece.last = stage_ == Stage::kEnded || (streamed_ && no_body);
  piece.given_up = given_up_ && !piece.last;
  piece.keep_alive = keep_alive && !given_up_ && !until_close;
  if (!head_taken_) piece.bytes = head_locked(piece.keep_alive);
  head_taken_ = true;
  if (!no_body) piece.bytes += is_chunked() ? chunk_of(pending_) : pending_;
  pending_ = {};
  if (!no_body && piece.last && is_chunked()) piece.bytes += kLastChunk;
  if (piece.bytes.empty() && !piece.last && !piece.given_up) return std::nullopt;
  last_taken_ = piece.last || piece.given_up;
  taken_ += piece.bytes.size();
  return piece;
}

void AnswerChannel::sent(size_t bytes) {
  std::function<void()> drained;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    MF_CHECK(bytes <= taken_);
    taken_ -= bytes;
    if (drained_ && unsent_locked() <= drained_at_) drained.swap(drained_);
  }
  if (drained) drained();
}

bool AnswerChannel::is_answered() const {
  const std::lock_guard lock(mutex_);
  return stage_ != Stage::kOpen;
}

AnswerChannel::KeepAlive AnswerChannel::silence() const {
  const std::lock_guard lock(mutex_);
  if (closed_ || given_up_ || stage_ != Stage::kStreaming) return {};
  return {.interval = speech_interval_, .is_due = unsent_locked() == 0};
}

void AnswerChannel::speak() {
  std::function<std::string()> speech;
  {
    const std::lock_guard lock(mutex_);
    if (closed_ || stage_ != Stage::kStreaming || !pending_.empty()) return;
    speech = speech_;
  }
  // Outside of the lock: it may take others.
  std::string bytes = speech ? speech() : std::string();
  const std::lock_guard lock(mutex_);
  if (!closed_ && stage_ == Stage::kStreaming && pending_.empty()) pending_ = std::move(bytes);
}

void AnswerChannel::finish() {
  bool ended = false;
  {
    const std::lock_guard lock(mutex_);
    ended = stage_ == Stage::kEnded;
  }
  if (!ended) close();
}

void AnswerChannel::close() {
  std::function<void()> drained;
  std::function<void()> closed;
  std::function<void()> ready;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
    pending_ = {};
    taken_ = 0;
    ready.swap(ready_);
    drained.swap(drained_);
    closed.swap(when_closed_);
  }
  if (closed) closed();
  if (drained) drained();
}

std::shared_ptr<Response> make_response(std::shared_ptr<AnswerChannel> channel) {
  return std::make_shared<ChannelResponse>(std::move(channel));
}

}  // namespace moeflux::serve
