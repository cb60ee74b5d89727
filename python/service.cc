#include "service.h"

#include <fcntl.h>
#include <pybind11/stl.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <string>

#include "unlocked.h"

namespace moeflux_python {
namespace {

namespace py = pybind11;

/// Its reading end has a byte when somebody has rung: an event loop waits for that beside sockets,
/// and who rings needs no lock of the interpreter.
class Bell {
 public:
  Bell() {
    if (pipe(ends_.data()) != 0) {
      PyErr_SetFromErrno(PyExc_OSError);
      throw py::error_already_set();
    }
    for (const int end : ends_) {
      fcntl(end, F_SETFD, FD_CLOEXEC);
      fcntl(end, F_SETFL, O_NONBLOCK);
    }
  }
  ~Bell() {
    for (const int end : ends_) close(end);
  }
  Bell(const Bell&) = delete;
  Bell& operator=(const Bell&) = delete;

  int fileno() const { return ends_[0]; }
  // A full pipe has been heard already.
  void ring() const { (void)!write(ends_[1], "!", 1); }
  void hear() const {
    std::array<char, 64> bytes;
    (void)!read(ends_[0], bytes.data(), bytes.size());
  }

 private:
  std::array<int, 2> ends_{};
};

// Calls hold what they use: another thread may free it meanwhile.
class Answer {
 public:
  Answer(const std::shared_ptr<moeflux::Service>& service, moeflux::Request request) {
    request.on_ready = [bell = bell_] { bell->ring(); };
    answer_ = std::make_shared<moeflux::Answer>(unlocked([&] { return service->submit(request); }));
  }
  ~Answer() { free(); }
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;

  int fileno() const { return bell_->fileno(); }
  void hear() const { bell_->hear(); }
  py::tuple next(int64_t timeout_ms) const {
    const std::shared_ptr<moeflux::Answer> answer = answer_;
    if (answer == nullptr) {
      raise({moeflux::Code::kFailedPrecondition, "the answer is closed"});
    }
    const moeflux::AnswerPiece piece = unlocked([&] { return answer->next(timeout_ms); });
    return py::make_tuple(piece.status, piece.ended, piece.content_type, piece.headers,
                          py::bytes(piece.bytes), py::bytes(piece.keep_alive), piece.keep_alive_ms);
  }
  void abort() const {
    std::shared_ptr<moeflux::Answer> answer = answer_;
    const Unlocked other_threads_run;
    if (answer != nullptr) answer->abort();
    answer.reset();
  }
  void free() {
    std::shared_ptr<moeflux::Answer> answer = std::move(answer_);
    const Unlocked other_threads_run;
    if (answer != nullptr) answer->abort();
    answer.reset();
  }

 private:
  const std::shared_ptr<Bell> bell_ = std::make_shared<Bell>();
  std::shared_ptr<moeflux::Answer> answer_;
};

class Service {
 public:
  Service(const moeflux::Model& model, const moeflux::ServiceOptions& options)
      : service_(std::make_shared<moeflux::Service>(
            unlocked([&] { return moeflux::Service::open(model, options); }))) {}
  ~Service() {
    const Unlocked other_threads_run;
    service_.reset();
  }
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  std::unique_ptr<Answer> submit(std::string method, std::string target, std::string body,
                                 moeflux::Headers headers) const {
    return std::make_unique<Answer>(service_, moeflux::Request{.method = std::move(method),
                                                               .target = std::move(target),
                                                               .body = std::move(body),
                                                               .headers = std::move(headers)});
  }
  py::dict health() const {
    const mf_service_health health = unlocked([&] { return service_->health(); });
    py::dict dict;
    dict["state"] = health.state == MF_SERVICE_READY ? "ready" : "draining";
    dict["model"] = health.model_name;
    dict["waiting"] = health.waiting;
    dict["running"] = health.running;
    dict["parked"] = health.parked;
    dict["finished"] = health.finished;
    dict["cancelled"] = health.cancelled;
    dict["failed"] = health.failed;
    return dict;
  }
  std::string metrics() const {
    return unlocked([&] { return service_->metrics(); });
  }
  void drain() const {
    run([&] { return service_->drain(); });
  }

 private:
  std::shared_ptr<moeflux::Service> service_;
};

}  // namespace

void bind_service(py::module_& module) {
  using moeflux::ServiceOptions;
  py::class_<ServiceOptions>(module, "ServiceOptions")
      .def(py::init<>())
      .def_readwrite("model_name", &ServiceOptions::model_name)
      .def_readwrite("model_aliases", &ServiceOptions::model_aliases)
      .def_readwrite("chat_template", &ServiceOptions::chat_template)
      .def_readwrite("sampler", &ServiceOptions::sampler)
      .def_readwrite("reasoning_tokens_max", &ServiceOptions::reasoning_tokens_max)
      .def_readwrite("active_max", &ServiceOptions::active_max)
      .def_readwrite("queue_max", &ServiceOptions::queue_max);
  py::class_<Answer>(module, "Answer")
      .def("fileno", &Answer::fileno)
      .def("hear", &Answer::hear)
      .def("next", &Answer::next)
      .def("abort", &Answer::abort)
      .def("free", &Answer::free);
  py::class_<Service>(module, "Service")
      .def(py::init<const moeflux::Model&, const ServiceOptions&>())
      .def("submit", &Service::submit)
      .def("health", &Service::health)
      .def("metrics", &Service::metrics)
      .def("drain", &Service::drain);
}

}  // namespace moeflux_python
