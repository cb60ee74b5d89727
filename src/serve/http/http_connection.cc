#include "serve/http/http_connection.h"

#include <utility>

namespace moeflux::serve {
namespace {

// A client may send so much of further requests before it has its answer; the rest stays with it.
constexpr size_t kReadAheadMax = 64 * 1024;
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

}  // namespace

// --- Connection: reading ---

void Connection::start() {
  if (is_refused_) {
    make_frame();
    refuse({503, "unavailable_error", "", "too many connections, try again later"}, false);
    return;
  }
  set_clock();
  read();
}

void Connection::read() {
  const bool is_full = phase_ == Phase::kAnswering && buffer_.size() >= kReadAheadMax;
  if (is_reading_ || is_full || half_close_ || phase_ == Phase::kClosed) return;
  is_reading_ = true;
  // Waiting takes no buffer: a thousand idle connections share the server's.
  socket_.async_wait(Socket::wait_read, [self = shared_from_this()](const error_code& error) {
    self->on_readable(error);
  });
}

void Connection::on_readable(const error_code& wait_error) {
  is_reading_ = false;
  if (phase_ == Phase::kClosed) return;
  error_code error = wait_error;
  auto& scratch = server_.scratch();
  const size_t bytes = error ? 0 : socket_.read_some(asio::buffer(scratch), error);
  if (error == asio::error::would_block || error == asio::error::try_again ||
      error == asio::error::interrupted) {
    return read();
  }
  if (error == asio::error::eof && phase_ == Phase::kAnswering) return on_input_end();
  if (error) return close();
  if (phase_ == Phase::kLingering) return read();
  buffer_.append(scratch.data(), bytes);
  if (phase_ == Phase::kAnswering) return read();
  advance();
}

void Connection::on_input_end() {
  if (has_hung_up(socket_.native_handle())) return close();
  half_close_.emplace(limits().probe_time, Clock::now());
  // Completes where the peer resets the connection: there is nothing left to be read.
  socket_.async_wait(Socket::wait_error, [self = shared_from_this()](const error_code& error) {
    if (!error && has_hung_up(self->socket_.native_handle())) self->close();
  });
  set_clock();
}

void Connection::advance() {
  while (phase_ == Phase::kBody || !buffer_.empty()) {
    if (phase_ == Phase::kIdle) {
      reader_ = std::make_unique<RequestReader>(limits().request);
      phase_ = Phase::kHeader;
      // A new connection's time began with it: its first byte may come late.
      if (!is_first_request_) phase_begin_ = Clock::now();
    }
    const size_t taken = reader_->feed(buffer_);
    buffer_.erase(0, taken);
    if (phase_ == Phase::kBody && !body_->add(taken)) {
      return refuse({503, "unavailable_error", "", "too much is being read, try again later"},
                    false);
    }
    const auto state = reader_->state();
    if (state == RequestReader::State::kRefused) {
      make_frame();
      return refuse(reader_->problem(), false);
    }
    if (state == RequestReader::State::kDone) return dispatch();
    if (state != RequestReader::State::kHeaderDone) break;
    on_header();
    if (phase_ != Phase::kBody) return;
  }
  if (half_close_) return close();  // the rest of a request will not come
  set_clock();
  read();
}

void Connection::on_header() {
  const auto& rules = server_.options().access;
  const RequestMeta& meta = reader_->meta();
  const Request& request = reader_->request();
  make_frame();
  // A body that nobody reads would be taken for the next request.
  const bool keep_alive = meta.keep_alive && !meta.has_body;
  if (const auto refusal = check_access(request, meta.has_body, rules, server_.reach())) {
    return refuse(*refusal, keep_alive);
  }
  if (request.method == "OPTIONS") {
    Headers headers = cors_headers(request, rules, true);
    headers.emplace_back("Allow", "GET, HEAD, POST, DELETE, OPTIONS");
    report(204, {});
    return answer(204, std::move(headers), {}, keep_alive);
  }
  phase_ = Phase::kBody;
  body_.emplace(limits(), server_.bodies_bytes(), Clock::now());
  if (meta.has_body && meta.expects_continue && buffer_.empty()) {
    write(std::string(kContinue), std::nullopt);
  }
}

void Connection::make_frame() {
  frame_ = {};
  std::string id;
  if (reader_ != nullptr) {
    const Request& request = reader_->request();
    frame_.minor_version = reader_->meta().minor_version;
    frame_.head_only = request.method == "HEAD";
    const std::string_view given = header(request, "x-request-id");
    if (is_request_id(given)) id = std::string(given);
    frame_.headers = cors_headers(request, server_.options().access, false);
  }
  if (id.empty()) id = server_.new_request_id();
  frame_.headers.emplace_back("x-request-id", id);
  frame_.headers.emplace_back("request-id", id);
}

void Connection::dispatch() {
  Request request = std::move(reader_->request());
  // HEAD is GET to everybody but the channel.
  if (frame_.head_only) request.method = "GET";
  // The handler finds the id under which the client knows the answer.
  std::erase_if(request.headers, [](const auto& field) { return field.first == "x-request-id"; });
  for (const auto& [name, value] : frame_.headers) {
    if (name == "x-request-id") request.headers.emplace_back(name, value);
  }
  const AccessRules& access = server_.options().access;
  request.owner = owner_of(request, access);
  // One key is everybody's: what was kept without keys is of use to those who have it.
  if (access.api_keys.size() + access.admin_keys.size() > 1) request.shares_with = request.owner;
  request.is_admin = is_admin(request, access);
  keep_alive_ = reader_->meta().keep_alive;
  auto share = body_->take_share();
  make_channel();
  server_.lanes().handle(std::move(request), make_response(channel_), std::move(share));
  set_clock();
  read();
}

// --- Connection: answering ---

void Connection::make_channel() {
  reader_.reset();
  body_.reset();
  if (buffer_.empty()) buffer_ = {};  // gives memory back for as long as the answer takes
  phase_ = Phase::kAnswering;
  is_first_request_ = false;
  last_sent_ = Clock::now();
  channel_ = std::make_shared<AnswerChannel>(frame_, server_.loop(), [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->pump();
  });
}

void Connection::answer(int status, Headers headers, std::string body, bool keep_alive) {
  keep_alive_ = keep_alive;
  make_channel();
  channel_->send(status, std::move(headers), std::move(body));
  pump();
  read();
}

void Connection::refuse(const Refusal& refusal, bool keep_alive) {
  Headers headers = {{"Content-Type", "application/json"}};
  if (refusal.status == 401) headers.emplace_back("WWW-Authenticate", "Bearer");
  if (refusal.status == 503) headers.emplace_back("Retry-After", "1");
  const std::string path = reader_ == nullptr ? std::string() : reader_->request().path;
  report(refusal.status, refusal.message);
  answer(refusal.status, std::move(headers), refusal_body(refusal, path), keep_alive);
}

void Connection::report(int status, std::string_view reason) {
  const auto& on_own_answer = server_.options().on_own_answer;
  if (!on_own_answer) return;
  if (reader_ == nullptr) return on_own_answer(Request(), status, reason);
  on_own_answer(reader_->request(), status, reason);
}

void Connection::pump() {
  if (phase_ != Phase::kAnswering || write_) return;
  const bool is_last = server_.is_draining() || (half_close_ && buffer_.empty());
  auto piece = channel_->take(keep_alive_ && !is_last);
  if (!piece) return set_clock();
  std::string bytes = std::move(piece->bytes);
  write(std::move(bytes), std::move(piece));
}

void Connection::write(std::string bytes, std::optional<AnswerPiece> piece) {
  write_ = Write{.bytes = std::move(bytes), .piece = std::move(piece)};
  last_sent_ = Clock::now();
  if (write_->bytes.empty()) return on_write_done();
  write_more();
}

void Connection::write_more() {
  set_clock();
  socket_.async_write_some(
      asio::buffer(write_->bytes.data() + write_->sent, write_->bytes.size() - write_->sent),
      [self = shared_from_this()](const error_code& error, size_t bytes) {
        self->on_written(error, bytes);
      });
}

void Connection::on_written(const error_code& error, size_t bytes) {
  if (phase_ == Phase::kClosed) return;
  if (error) return close();
  last_sent_ = Clock::now();
  write_->sent += bytes;
  if (write_->piece) channel_->sent(bytes);
  if (write_->sent < write_->bytes.size()) return write_more();
  on_write_done();
}

void Connection::on_write_done() {
  const auto piece = std::move(write_->piece);
  write_.reset();
  if (piece && piece->given_up) return close();
  if (piece && piece->last) return finish_answer(*piece);
  set_clock();
  pump();
}

void Connection::finish_answer(const AnswerPiece& piece) {
  server_.count_answer(piece.status);
  const auto channel = std::exchange(channel_, nullptr);
  channel->finish();
  if (!piece.keep_alive || server_.is_draining()) return half_close_ ? close() : linger();
  phase_ = Phase::kIdle;
  phase_begin_ = Clock::now();
  advance();  // with what came meanwhile
}

void Connection::linger() {
  phase_ = Phase::kLingering;
  phase_begin_ = Clock::now();
  buffer_ = {};
  error_code error;
  socket_.shutdown(Socket::shutdown_send, error);
  if (error) return close();
  set_clock();
  read();
}

void Connection::close() {
  if (phase_ == Phase::kClosed) return;
  phase_ = Phase::kClosed;
  error_code ignored;
  socket_.close(ignored);
  timer_.cancel();
  if (const auto channel = std::exchange(channel_, nullptr)) {
    server_.count_dropped();
    channel->close();
  }
  server_.remove(shared_from_this(), is_refused_);
}

void Connection::drop() {
  // Without this the kernel keeps what the peer does not take for minutes.
  error_code ignored;
  socket_.set_option(asio::socket_base::linger(true, 0), ignored);
  close();
}

void Connection::drain() {
  if (phase_ == Phase::kIdle || phase_ == Phase::kHeader) close();
}

bool Connection::is_unanswered() const {
  return phase_ == Phase::kBody || (phase_ == Phase::kAnswering && !channel_->is_answered());
}

// --- Connection: time ---

std::optional<Clock::time_point> Connection::next_probe() const {
  if (!half_close_) return std::nullopt;
  const bool has_bytes =
      channel_->is_answered() ? channel_->silence().interval.count() > 0 : frame_.minor_version > 0;
  return has_bytes ? half_close_->next_probe() : std::nullopt;
}

std::optional<Clock::time_point> Connection::deadline() const {
  switch (phase_) {
    case Phase::kIdle:
      return phase_begin_ + (is_first_request_ ? limits().header_time : limits().keep_alive_time);
    case Phase::kHeader:
      return phase_begin_ + limits().header_time;
    case Phase::kBody:
      return body_->deadline();
    case Phase::kAnswering: {
      if (write_) return last_sent_ + limits().write_time;
      auto at = next_probe();
      const auto silence = channel_->silence();
      if (silence.interval.count() == 0) return at;
      const auto silent = last_sent_ + silence.interval;
      return at && *at < silent ? at : silent;
    }
    case Phase::kLingering:
      return phase_begin_ + limits().linger_time;
    case Phase::kClosed:
      return std::nullopt;
  }
  __builtin_unreachable();
}

void Connection::set_clock() {
  const auto wanted = deadline();
  // One that fires too early is set anew then; most deadlines only move on.
  if (!wanted || (timer_at_ && *timer_at_ <= *wanted)) return;
  timer_at_ = wanted;
  timer_.expires_at(*wanted);
  timer_.async_wait([self = shared_from_this(), round = ++timer_round_](const error_code& error) {
    if (!error) self->on_clock(round);
  });
}

void Connection::on_clock(uint64_t round) {
  if (phase_ == Phase::kClosed || round != timer_round_) return;
  timer_at_.reset();
  const auto wanted = deadline();
  if (wanted && *wanted <= Clock::now()) on_deadline();
  set_clock();
}

void Connection::on_deadline() {
  const auto now = Clock::now();
  switch (phase_) {
    case Phase::kIdle:
    case Phase::kLingering:
      return close();
    case Phase::kHeader:
      make_frame();
      return refuse({408, "invalid_request_error", "", "the headers took too long"}, false);
    case Phase::kBody:
      if (!body_->is_slow(now)) return;
      return refuse({408, "invalid_request_error", "", "the body took too long"}, false);
    case Phase::kAnswering:
      if (write_) return drop();
      if (const auto probe = next_probe(); probe && *probe <= now) {
        half_close_->count_probe(now);
        if (!channel_->is_answered()) return write(std::string(kContinue), std::nullopt);
      }
      // Bytes that were written meanwhile are on their way here and break the silence themselves.
      last_sent_ = now;
      if (channel_->silence().is_due) channel_->speak();
      return pump();
    case Phase::kClosed:
      return;
  }
}

}  // namespace moeflux::serve
