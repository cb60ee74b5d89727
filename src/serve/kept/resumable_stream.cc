#include "serve/kept/resumable_stream.h"

#include <utility>

#include "base/format.h"

namespace moeflux::serve {

std::shared_ptr<Response> ResumableStream::reader() const {
  const std::lock_guard lock(mutex_);
  return reader_;
}

void ResumableStream::send(int status, Headers headers, std::string body) {
  std::shared_ptr<Response> reader;
  {
    const std::lock_guard lock(mutex_);
    ended_at_ = now_();
    reader.swap(reader_);
  }
  if (reader) reader->send(status, std::move(headers), std::move(body));
}

void ResumableStream::begin(int status, Headers headers) {
  std::shared_ptr<Response> reader;
  {
    const std::lock_guard lock(mutex_);
    begun_ = true;
    status_ = status;
    headers_ = headers;
    reader = reader_;
    if (reader) reader->begin(status, std::move(headers));
  }
  if (!reader) return;
  reader->when_closed([self = weak_from_this(), gone = reader.get()] {
    if (const auto stream = self.lock()) stream->detach(gone);
  });
}

void ResumableStream::add_event_locked(std::string event) {
  event = formatted("id: {}\n", first_ + kept_.size()) + event;
  if (reader_) reader_->write(event);
  kept_bytes_ += event.size();
  kept_.push_back(std::move(event));
  while (kept_bytes_ > bytes_max_ && kept_.size() > 1) {
    kept_bytes_ -= kept_.front().size();
    kept_.pop_front();
    ++first_;
  }
}

void ResumableStream::write(std::string bytes) {
  constexpr std::string_view kEnd = "\n\n";
  const std::lock_guard lock(mutex_);
  for (size_t begin = 0; begin < bytes.size();) {
    const size_t found = bytes.find(kEnd, begin);
    const size_t end = found == std::string::npos ? bytes.size() : found + kEnd.size();
    add_event_locked(bytes.substr(begin, end - begin));
    begin = end;
  }
}

void ResumableStream::end() {
  std::shared_ptr<Response> reader;
  std::function<void()> forgotten;
  const std::lock_guard lock(mutex_);
  ended_at_ = now_();
  forgotten.swap(when_closed_);
  reader.swap(reader_);
  if (reader) reader->end();
}

void ResumableStream::keep_alive(std::string bytes, std::chrono::milliseconds interval) {
  const std::lock_guard lock(mutex_);
  keep_alive_ = bytes;
  keep_alive_interval_ = interval;
  if (reader_) reader_->keep_alive(std::move(bytes), interval);
}

size_t ResumableStream::unsent_bytes() const {
  const auto now_reading = reader();
  return now_reading ? now_reading->unsent_bytes() : 0;
}

void ResumableStream::when_drained(size_t bytes, std::function<void()> drained) {
  const auto now_reading = reader();
  if (now_reading) return now_reading->when_drained(bytes, std::move(drained));
  drained();
}

void ResumableStream::when_closed(std::function<void()> closed) {
  std::shared_ptr<Response> reader;
  {
    const std::lock_guard lock(mutex_);
    if (begun_ && !ended_at_) when_closed_ = std::move(closed);
    if (!begun_) reader = reader_;
  }
  // Before it begins it may still be an answer that comes whole, which nobody waits for when its
  // client has gone.
  if (reader) reader->when_closed(std::move(closed));
}

bool ResumableStream::is_closed() const {
  const std::lock_guard lock(mutex_);
  return !begun_ && reader_ != nullptr && reader_->is_closed();
}

void ResumableStream::detach(const Response* reader) {
  std::shared_ptr<Response> gone;
  const std::lock_guard lock(mutex_);
  if (reader_.get() == reader) gone.swap(reader_);
}

std::optional<ApiError> ResumableStream::attach(uint64_t from, std::shared_ptr<Response> reader) {
  std::shared_ptr<Response> before;
  {
    const std::lock_guard lock(mutex_);
    if (!begun_) {
      return ApiError{
          .status = 404, .type = "not_found_error", .message = "the stream has not begun"};
    }
    const uint64_t next = first_ + kept_.size();
    if (from < first_ || from > next) {
      return ApiError{.status = 400,
                      .code = "invalid_value",
                      .message = formatted("event {} is not kept, expected one from {} to {}", from,
                                           first_, next),
                      .param = "from"};
    }
    before.swap(reader_);
    if (before) before->end();
    reader->begin(status_, headers_);
    for (uint64_t i = from; i < next; ++i) reader->write(kept_[i - first_]);
    if (ended_at_) {
      reader->end();
      return std::nullopt;
    }
    if (!keep_alive_.empty()) reader->keep_alive(keep_alive_, keep_alive_interval_);
    reader_ = reader;
  }
  reader->when_closed([self = weak_from_this(), gone = reader.get()] {
    if (const auto stream = self.lock()) stream->detach(gone);
  });
  return std::nullopt;
}

void ResumableStream::count_tokens(int64_t prompt, int64_t generated) {
  if (const auto reader = this->reader()) reader->count_tokens(prompt, generated);
}

std::string ResumableStream::close_reason() const {
  const std::lock_guard lock(mutex_);
  return close_reason_;
}

void ResumableStream::close(const std::string& reason) {
  std::function<void()> closed;
  {
    const std::lock_guard lock(mutex_);
    close_reason_ = reason;
    closed.swap(when_closed_);
  }
  // It ends what it gives, with an error that a reader sees.
  if (closed) closed();
}

std::optional<ResumableStream::Time> ResumableStream::ended_at() const {
  const std::lock_guard lock(mutex_);
  return ended_at_;
}

}  // namespace moeflux::serve
