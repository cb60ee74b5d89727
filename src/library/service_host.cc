#include "library/service_host.h"

#include <utility>

#include "base/format.h"

namespace moeflux {

ServiceHost::ServiceHost(std::unique_ptr<serve::Service> service) : service_(std::move(service)) {}

Result<std::shared_ptr<AnswerBox>> ServiceHost::submit(const serve::Request& request,
                                                       std::function<void()> on_ready) {
  auto box = std::make_shared<AnswerBox>(std::move(on_ready), request.method == "HEAD");
  {
    const std::lock_guard lock(mutex_);
    if (is_closed_) return make_error(ErrorCode::kCancelled, "the service is closed");
    std::erase_if(answers_, [](const std::weak_ptr<AnswerBox>& known) {
      const std::shared_ptr<AnswerBox> answer = known.lock();
      return answer == nullptr || answer->is_over();
    });
    answers_.push_back(box);
  }
  service_->handle(request, AnswerBox::response(box));
  return box;
}

void ServiceHost::drain() {
  is_draining_ = true;
  service_->drain();
}

void ServiceHost::close() {
  std::vector<std::weak_ptr<AnswerBox>> answers;
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    answers.swap(answers_);
  }
  for (const std::weak_ptr<AnswerBox>& known : answers) {
    const std::shared_ptr<AnswerBox> answer = known.lock();
    if (answer != nullptr && !answer->is_over()) answer->abort();
  }
}

}  // namespace moeflux
