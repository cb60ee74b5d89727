#include "cli/request_log.h"

#include <atomic>
#include <chrono>
#include <utility>

#include "base/format.h"
#include "serve/wire/forwarding_response.h"

namespace moeflux {
namespace {

using Clock = std::chrono::steady_clock;

class LoggedResponse : public serve::ForwardingResponse {
 public:
  LoggedResponse(const serve::Request& request, std::shared_ptr<serve::Response> response,
                 std::function<void(const std::string&)> log)
      : ForwardingResponse(std::move(response)),
        request_line_(formatted("{} {}", request.method, request.path)),
        log_(std::move(log)) {}
  ~LoggedResponse() override { tell("closed"); }

  void send(int status, serve::Headers headers, std::string body) override {
    status_ = status;
    response_->send(status, std::move(headers), std::move(body));
    tell({});
  }
  void begin(int status, serve::Headers headers) override {
    status_ = status;
    response_->begin(status, std::move(headers));
  }
  void end() override {
    response_->end();
    tell(response_->is_closed() ? "closed" : "");
  }
  void count_tokens(int64_t prompt, int64_t generated) override {
    prompt_tokens_ += prompt;
    generated_tokens_ += generated;
    response_->count_tokens(prompt, generated);
  }

 private:
  // Once; the destructor comes after all calls.
  void tell(std::string_view remark) {
    if (is_told_.exchange(true)) return;
    std::string line = request_line_;
    if (status_ != 0) line += formatted(" {}", status_.load());
    if (!remark.empty()) line += formatted(" {}", remark);
    if (prompt_tokens_ > 0) {
      line += formatted(", {} + {} tokens", prompt_tokens_.load(), generated_tokens_.load());
    }
    const std::chrono::duration<double> time = Clock::now() - begin_;
    log_(formatted("{}, {:.3f} s", line, time.count()));
  }

  const std::string request_line_;
  const Clock::time_point begin_ = Clock::now();
  const std::function<void(const std::string&)> log_;
  std::atomic<int> status_ = 0;
  std::atomic<int64_t> prompt_tokens_ = 0;
  std::atomic<int64_t> generated_tokens_ = 0;
  std::atomic<bool> is_told_ = false;
};

}  // namespace

std::shared_ptr<serve::Response> logged(const serve::Request& request,
                                        std::shared_ptr<serve::Response> response,
                                        std::function<void(const std::string& line)> log) {
  return std::make_shared<LoggedResponse>(request, std::move(response), std::move(log));
}

std::string own_answer_line(const serve::Request& request, int status, std::string_view reason) {
  std::string line = request.method.empty() ? "unread request" : request.method;
  if (!request.path.empty()) line += formatted(" {}", request.path);
  line += formatted(" {}", status);
  return reason.empty() ? line : formatted("{} refused: {}", line, reason);
}

}  // namespace moeflux
