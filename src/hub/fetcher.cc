#include "hub/fetcher.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "base/format.h"
#include "base/units.h"

namespace moeflux::hub {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTriesMax = 5;  // without a megabyte between them
constexpr int kHopsMax = 5;
constexpr int64_t kWaitSecondsMax = 300;
constexpr int kWaitMs = 100;
// A server that ignores ranges sends all that is before one, too.
constexpr uint64_t kSkippedBytesMax = kGiB;
constexpr uint64_t kOpenEnd = UINT64_MAX;

std::chrono::milliseconds pause_after(int failures, int64_t retry_seconds) {
  if (retry_seconds > 0) return std::chrono::seconds(retry_seconds);
  return std::chrono::milliseconds(std::min(8000, 125 << std::min(failures, 6)));
}

bool is_worth_trying(int status) {
  return status == 0 || status == 408 || status == 425 || status == 429 || status >= 500 ||
         status == 200 || status == 206;
}

std::string_view host_of(std::string_view url) {
  const size_t begin = url.find("://") + 3;
  return url.substr(0, url.find('/', begin));
}

void append(std::string& body, std::span<const std::byte> bytes) {
  body.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace

struct Fetcher::Active {
  FetchJob job;
  uint64_t next = 0;  // the byte that is missing
  uint64_t mark = 0;  // `next` when the last failure was counted
  int failures = 0;
  int hops = 0;
  std::string url;         // where it is asked now
  bool is_placed = false;  // `url` is from `places_`
  bool is_running = false;
  uint64_t id = 0;
  Clock::time_point not_before{};
  Status status;  // of take()

  bool is_open() const { return job.range.end == kOpenEnd; }
  bool is_done() const { return next == job.range.end; }
};

Fetcher::Fetcher(std::unique_ptr<HttpClient> client, HubSettings settings, int connections,
                 std::stop_token stop)
    : client_(std::move(client)),
      settings_(std::move(settings)),
      connections_(static_cast<size_t>(connections)),
      stop_(std::move(stop)) {}

Fetcher::~Fetcher() = default;

bool Fetcher::take(Active& active, uint64_t offset, std::span<const std::byte> bytes) {
  if (active.is_open()) {
    // A body of unknown length comes from its beginning each time.
    active.status = active.job.take(offset, bytes);
    active.next = offset + bytes.size();
    return active.status.ok();
  }
  if (offset < active.next) {
    if (active.next - offset > kSkippedBytesMax) {
      active.status = make_error(ErrorCode::kUnsupported, "{}: it ignores ranges of bytes",
                                 host_of(active.url));
      return false;
    }
    bytes = bytes.subspan(std::min<uint64_t>(bytes.size(), active.next - offset));
  }
  const uint64_t left = active.job.range.end - active.next;
  const bool is_too_much = bytes.size() > left;
  if (is_too_much) bytes = bytes.first(left);
  if (!bytes.empty()) active.status = active.job.take(active.next, bytes);
  active.next += bytes.size();
  return active.status.ok() && !is_too_much;
}

void Fetcher::start(Active& active) {
  if (active.url.empty()) {
    const auto placed = places_.find(active.job.url);
    active.is_placed = placed != places_.end();
    active.url = active.is_placed ? placed->second : active.job.url;
    active.hops = 0;
  }
  const Result<Url> url = parse_url(active.url);
  const bool is_ours = url.ok() && url->has_origin_of(settings_.endpoint);
  HttpRequest request{.url = active.url,
                      .token = is_ours ? settings_.token : "",
                      .take = [this, &active](uint64_t offset, std::span<const std::byte> bytes) {
                        return take(active, offset, bytes);
                      }};
  if (!active.is_open()) request.range = HttpRange{active.next, active.job.range.end};
  active.id = client_->start(std::move(request));
  active.is_running = true;
}

Status Fetcher::follow(Active& active, const HttpAnswer& answer) {
  MF_ASSIGN_OR_RETURN(const Url from, parse_url(active.url));
  const Result<Url> to = parse_url(answer.redirect);
  if (!to.ok()) {
    return make_error(ErrorCode::kUnsupported, "{} redirects to {}", host_of(active.url),
                      to.error().message());
  }
  MF_RETURN_IF_ERROR(check_redirect(from, *to));
  if (++active.hops > kHopsMax) {
    return make_error(ErrorCode::kIo, "{}: more than {} redirects", active.job.url, kHopsMax);
  }
  active.url = to->text;
  active.is_placed = true;
  places_[active.job.url] = active.url;
  return {};
}

Status Fetcher::try_again(Active& active, const HttpAnswer& answer) {
  const std::string what = answer.failure.empty() ? (answer.status == 200 || answer.status == 206
                                                         ? std::string("the answer ended early")
                                                         : formatted("status {}", answer.status))
                                                  : answer.failure;
  if (active.next >= active.mark + kMiB) active.failures = 0;
  active.mark = active.next;
  ++active.failures;
  if (active.failures >= kTriesMax) {
    return make_error(ErrorCode::kIo, "{}: {}, after {} tries", active.job.url, what, kTriesMax);
  }
  const bool is_told = answer.status == 429 || answer.status >= 500;
  if (is_told && answer.retry_seconds > kWaitSecondsMax) {
    return make_error(ErrorCode::kIo, "{}: status {}, and to be asked again in {} s; try later",
                      active.job.url, answer.status, answer.retry_seconds);
  }
  active.not_before =
      Clock::now() + pause_after(active.failures, is_told ? answer.retry_seconds : 0);
  if (active.is_placed) places_.erase(active.job.url);  // addresses expire
  active.url.clear();
  return {};
}

Status Fetcher::finish(Active& active, const HttpAnswer& answer) {
  active.is_running = false;
  if (!active.status.ok()) return active.status.error();
  if (active.is_done()) return {};
  const int status = answer.status;
  if (active.is_open() && status == 200 && answer.failure.empty()) {
    active.job.range.end = active.next;
    return {};
  }
  if (answer.is_distrusted) {
    return make_error(ErrorCode::kIo, "{}: {}; SSL_CERT_FILE may name the certificates to trust",
                      active.job.url, answer.failure);
  }
  const bool is_redirect = status >= 301 && status <= 308;
  if (is_redirect && !answer.redirect.empty()) return follow(active, answer);
  // A redirect to nowhere was cut: libcurl takes a head without an end as it is.
  if (is_redirect || is_worth_trying(status) || active.is_placed) {
    return try_again(active, answer);
  }
  if (status == 401 || status == 403) {
    return make_error(ErrorCode::kNotFound,
                      "{}: status {}: no such model, or one that asks for a token (HF_TOKEN) or "
                      "for its terms to be accepted on its page",
                      active.job.url, status);
  }
  return make_error(status == 404 ? ErrorCode::kNotFound : ErrorCode::kIo, "{}: status {}{}",
                    active.job.url, status, status == 404 ? ", it is not there" : "");
}

Status Fetcher::run(const std::function<std::optional<FetchJob>()>& next,
                    const std::function<Status()>& meanwhile) {
  std::vector<std::unique_ptr<Active>> jobs;
  bool has_more = true;
  while (true) {
    while (has_more && jobs.size() < connections_) {
      std::optional<FetchJob> job = next();
      has_more = job.has_value();
      if (!has_more) break;
      auto active = std::make_unique<Active>();
      active->next = active->mark = job->range.begin;
      active->job = *std::move(job);
      jobs.push_back(std::move(active));
    }
    if (jobs.empty()) return {};
    const Clock::time_point now = Clock::now();
    for (const auto& active : jobs) {
      if (!active->is_running && now >= active->not_before) start(*active);
    }
    Status status = stop_.stop_requested()
                        ? Status(make_error(ErrorCode::kCancelled, "interrupted"))
                        : meanwhile();
    for (const HttpAnswer& answer : client_->wait(kWaitMs)) {
      const auto found = std::ranges::find_if(
          jobs, [&](const auto& active) { return active->is_running && active->id == answer.id; });
      if (found == jobs.end()) continue;
      Status ended = finish(**found, answer);
      if (!ended.ok() && status.ok()) status = std::move(ended);
    }
    if (!status.ok()) {
      client_->cancel_all();
      return status;
    }
    std::erase_if(jobs,
                  [](const auto& active) { return !active->is_running && active->is_done(); });
  }
}

Result<std::string> Fetcher::text(const std::string& url, uint64_t bytes_max) {
  std::string body;
  const auto keep = [&](uint64_t offset, std::span<const std::byte> bytes) -> Status {
    if (offset == 0) body.clear();
    if (bytes.size() > bytes_max - body.size()) {
      return make_error(ErrorCode::kResourceExhausted, "{}: the answer is longer than {}", url,
                        format_bytes(bytes_max));
    }
    append(body, bytes);
    return {};
  };
  MF_RETURN_IF_ERROR(run_one({.url = url, .range = {0, kOpenEnd}, .take = keep}));
  return body;
}

Result<std::string> Fetcher::bytes(const std::string& url, HttpRange range) {
  std::string body;
  const auto keep = [&](uint64_t, std::span<const std::byte> bytes) -> Status {
    append(body, bytes);
    return {};
  };
  MF_RETURN_IF_ERROR(run_one({.url = url, .range = range, .take = keep}));
  return body;
}

Status Fetcher::run_one(FetchJob job) {
  std::optional<FetchJob> one = std::move(job);
  return run([&] { return std::exchange(one, std::nullopt); }, [] { return Status(); });
}

std::string escaped_path(std::string_view path) {
  std::string text;
  for (const char c : path) {
    const bool is_plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                          (c >= 'A' && c <= 'Z') ||
                          std::string_view("-_.~/").find(c) != std::string_view::npos;
    text += is_plain ? std::string(1, c)
                     : formatted("%{:02X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
  }
  return text;
}

}  // namespace moeflux::hub
