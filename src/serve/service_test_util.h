// A service on the embedded model, and answers that lie in memory.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "serve/service.h"
#include "templates/engine_test_util.h"

namespace moeflux::serve {

/// An answer that lies in memory; a reader may be slow, or leave.
class MemoryResponse : public Response {
 public:
  void send(int status, Headers headers, std::string body) override {
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(has_begun_) << "a second answer";
    status_ = status;
    headers_ = std::move(headers);
    text_ = std::move(body);
    has_begun_ = ended_ = true;
    changed_.notify_all();
  }
  void begin(int status, Headers headers) override {
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(has_begun_) << "a second answer";
    status_ = status;
    headers_ = std::move(headers);
    has_begun_ = true;
  }
  void write(std::string bytes) override {
    const std::lock_guard lock(mutex_);
    EXPECT_TRUE(has_begun_ && !ended_) << "written outside of the answer: " << bytes;
    text_ += bytes;
    unread_ += bytes.size();
    changed_.notify_all();
  }
  void end() override {
    const std::lock_guard lock(mutex_);
    EXPECT_TRUE(has_begun_ && !ended_) << "a second end";
    ended_ = true;
    changed_.notify_all();
  }
  void keep_alive(std::string, std::chrono::milliseconds) override {}
  void break_silence(std::function<std::string()> bytes, std::chrono::milliseconds) override {
    const std::lock_guard lock(mutex_);
    speech_ = std::move(bytes);
  }
  size_t unsent_bytes() const override {
    const std::lock_guard lock(mutex_);
    return is_slow_ ? unread_ + (size_t{2} << 20) : 0;
  }
  void when_drained(size_t, std::function<void()> drained) override {
    const std::lock_guard lock(mutex_);
    drained_ = std::move(drained);
    changed_.notify_all();
  }
  void when_closed(std::function<void()> closed) override {
    const std::lock_guard lock(mutex_);
    closed_ = std::move(closed);
    changed_.notify_all();
  }
  bool is_closed() const override {
    const std::lock_guard lock(mutex_);
    return has_left_;
  }

  /// The whole text, once the answer has ended.
  std::string wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_; });
    return text_;
  }
  int status() {
    wait();
    return status_;
  }
  Json json() { return Json::parse(wait()); }
  /// The received part of a stream, once there is some.
  std::string begun() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !text_.empty() || ended_; });
    return text_;
  }
  /// Frames of a stream without the last, which says that it is over.
  std::vector<Json> frames() {
    std::vector<Json> frames;
    const std::string text = wait();
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = text.find("\n\n", begin);
      const std::string frame = text.substr(begin, end - begin);
      begin = end + 2;
      EXPECT_EQ(frame.rfind("data: ", 0), 0u) << frame;
      if (frame == "data: [DONE]") {
        EXPECT_EQ(begin, text.size());
        return frames;
      }
      frames.push_back(Json::parse(frame.substr(6)));
    }
    ADD_FAILURE() << "no [DONE] in " << text;
    return frames;
  }
  /// The bytes that it sends in silence.
  std::string speech() {
    std::function<std::string()> speech;
    {
      const std::lock_guard lock(mutex_);
      speech = speech_;
    }
    return speech ? speech() : std::string();
  }
  void be_slow() { is_slow_ = true; }
  void read_on() {
    std::function<void()> drained;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return drained_ != nullptr || ended_; });
      is_slow_ = false;
      drained = std::exchange(drained_, nullptr);
    }
    if (drained) drained();
  }
  void leave() {
    std::function<void()> closed;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return closed_ != nullptr; });
      closed = closed_;
      has_left_ = true;
    }
    closed();
  }
  std::string header(const std::string& name) const {
    for (const auto& [key, value] : headers_) {
      if (key == name) return value;
    }
    return {};
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int status_ = 0;
  Headers headers_;
  std::string text_;
  size_t unread_ = 0;
  bool has_begun_ = false;
  bool ended_ = false;
  bool is_slow_ = false;
  bool has_left_ = false;
  std::function<void()> drained_;
  std::function<void()> closed_;
  std::function<std::string()> speech_;
};

inline constexpr const char* kTemplate =
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}";

class ServiceTest : public ::testing::Test {
 protected:
  static std::unique_ptr<Service> start(ServiceOptions options = {}, DraftOptions drafts = {}) {
    const std::string fable = std::string(MOEFLUX_SOURCE_DIR) + "/models/fable-20m";
    auto text = std::move(load_model_text(fable)).value();
    auto model = open_model(fable,
                            {.device = {.threads = 1},
                             .engine = {.context_length = 256, .reader_threads = 1},
                             .drafts = std::move(drafts)},
                            std::move(text));
    EXPECT_TRUE(model.ok()) << model.error().message();
    if (!options.template_text) options.template_text = kTemplate;
    auto service = Service::start(std::move(model).value(), std::move(options));
    EXPECT_TRUE(service.ok()) << service.error().message();
    return std::move(service).value();
  }
  static std::shared_ptr<MemoryResponse> ask(Service& service, Request request) {
    auto response = std::make_shared<MemoryResponse>();
    service.handle(request, response);
    return response;
  }
  static std::shared_ptr<MemoryResponse> post(Service& service, std::string path,
                                              const Json& body) {
    return ask(service, {.method = "POST", .path = std::move(path), .body = body.dump()});
  }
  static std::shared_ptr<MemoryResponse> get(Service& service, std::string path,
                                             std::string query = {}) {
    return ask(service, {.method = "GET", .path = std::move(path), .query = std::move(query)});
  }
  static Json question(const std::string& text, int tokens) {
    return {{"messages", Json::array({{{"role", "user"}, {"content", text}}})},
            {"max_tokens", tokens},
            {"seed", 7}};
  }
  static std::string content(MemoryResponse& response) {
    return response.json()["choices"][0]["message"]["content"].get<std::string>();
  }
};

}  // namespace moeflux::serve
