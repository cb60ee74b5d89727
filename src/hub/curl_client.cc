// libcurl's multi interface. Proxies are taken from the environment by libcurl itself (HTTPS_PROXY,
// NO_PROXY); certificates from where the variables of other programs say, else from the places of
// common systems: a program that was built on one may run on another.
#include <charconv>
#include <cstdlib>
#include <map>
#include <utility>

#include "base/ascii.h"
#include "base/format.h"
#include "hub/curl.h"
#include "hub/http_client.h"
#include "io/file.h"

namespace moeflux::hub {
namespace {

constexpr size_t kRefusedBytesMax = size_t{1} << 16;  // of a body that nobody takes
constexpr long kHeaderBytesMax = 1 << 18;

struct Transfer {
  ~Transfer() { curl_slist_free_all(headers); }

  uint64_t id = 0;
  HttpRequest request;
  CURL* easy = nullptr;
  curl_slist* headers = nullptr;
  uint64_t offset = 0;  // of the next byte of the body
  bool has_begun = false;
  bool is_taken = false;  // the body is what was asked for
  size_t refused_bytes = 0;
  long header_bytes = 0;
  std::optional<uint64_t> range_begin;  // of Content-Range
  std::string refusal;
};

// The first byte of "bytes 10-19/100"; nullopt for anything else.
std::optional<uint64_t> parse_content_range(std::string_view value) {
  constexpr std::string_view kUnit = "bytes ";
  while (value.starts_with(' ')) value.remove_prefix(1);
  if (!value.starts_with(kUnit)) return std::nullopt;
  value.remove_prefix(kUnit.size());
  uint64_t begin = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), begin);
  if (error != std::errc() || end == value.data() + value.size() || *end != '-') {
    return std::nullopt;
  }
  return begin;
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

size_t on_header(char* data, size_t size, size_t count, void* context) {
  Transfer& transfer = *static_cast<Transfer*>(context);
  const std::string_view line(data, size * count);
  transfer.header_bytes += static_cast<long>(line.size());
  if (transfer.header_bytes > kHeaderBytesMax) {
    transfer.refusal = "its headers are too long";
    return 0;
  }
  if (line.starts_with("HTTP/")) transfer.range_begin.reset();  // an answer after 1xx
  const size_t colon = line.find(':');
  if (transfer.request.take_header && colon != std::string_view::npos) {
    transfer.request.take_header(line.substr(0, colon), trimmed(line.substr(colon + 1)));
  }
  constexpr std::string_view kName = "content-range:";
  if (line.size() > kName.size() && equal_without_case(line.substr(0, kName.size()), kName)) {
    transfer.range_begin = parse_content_range(line.substr(kName.size()));
  }
  return line.size();
}

// Whether the body that begins is to be taken.
void begin_body(Transfer& transfer) {
  long status = 0;
  curl_easy_getinfo(transfer.easy, CURLINFO_RESPONSE_CODE, &status);
  transfer.has_begun = true;
  if (status == 200) {
    transfer.is_taken = true;
  } else if (status == 206 && transfer.request.range) {
    transfer.is_taken = transfer.range_begin == transfer.request.range->begin;
    transfer.offset = transfer.request.range->begin;
    if (!transfer.is_taken) transfer.refusal = "it answers another range than it was asked for";
  }
}

size_t on_body(char* data, size_t size, size_t count, void* context) {
  Transfer& transfer = *static_cast<Transfer*>(context);
  const size_t bytes = size * count;
  if (!transfer.has_begun) begin_body(transfer);
  if (!transfer.refusal.empty()) return 0;
  if (!transfer.is_taken) {
    transfer.refused_bytes += bytes;
    return transfer.refused_bytes > kRefusedBytesMax ? 0 : bytes;
  }
  const std::span<const char> piece(data, bytes);
  if (!transfer.request.take(transfer.offset, std::as_bytes(piece))) return 0;
  transfer.offset += bytes;
  return bytes;
}

const char* variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr || *value == '\0' ? nullptr : value;
}

void set_certificates(CURL* easy) {
  for (const char* name : {"CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"}) {
    const char* const path = variable(name);
    if (path == nullptr) continue;
    curl_easy_setopt(easy, is_directory(path) ? CURLOPT_CAPATH : CURLOPT_CAINFO, path);
    return;
  }
  if (const char* const folder = variable("SSL_CERT_DIR")) {
    curl_easy_setopt(easy, CURLOPT_CAPATH, folder);
    return;
  }
  // Debian, Fedora, and Alpine with the BSDs and macOS.
  for (const char* path : {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                           "/etc/ssl/cert.pem"}) {
    if (!path_exists(path)) continue;
    curl_easy_setopt(easy, CURLOPT_CAINFO, path);
    return;
  }
}

class CurlClient final : public HttpClient {
 public:
  CurlClient(CURLM* multi, const HttpOptions& options) : options_(options), multi_(multi) {
    curl_multi_setopt(multi_, CURLMOPT_MAX_HOST_CONNECTIONS, long{options.connections});
    curl_multi_setopt(multi_, CURLMOPT_MAXCONNECTS, long{options.connections} + 2);
  }
  CurlClient(const CurlClient&) = delete;
  CurlClient& operator=(const CurlClient&) = delete;
  ~CurlClient() override {
    end_all();
    curl_multi_cleanup(multi_);
  }

  uint64_t start(HttpRequest request) override {
    auto transfer = std::make_unique<Transfer>();
    transfer->id = ++last_id_;
    transfer->request = std::move(request);
    CURL* const easy = curl_easy_init();
    MF_CHECK(easy != nullptr);
    transfer->easy = easy;
    set_up(*transfer);
    curl_multi_add_handle(multi_, easy);
    transfers_.emplace(easy, std::move(transfer));
    return last_id_;
  }

  std::vector<HttpAnswer> wait(int wait_ms) override {
    std::vector<HttpAnswer> answers;
    int running = 0;
    curl_multi_perform(multi_, &running);
    collect(answers);
    if (!answers.empty()) return answers;
    curl_multi_poll(multi_, nullptr, 0, wait_ms, nullptr);
    curl_multi_perform(multi_, &running);
    collect(answers);
    return answers;
  }

  void cancel_all() override { end_all(); }

 private:
  void end_all() {
    for (auto& [easy, transfer] : transfers_) {
      curl_multi_remove_handle(multi_, easy);
      curl_easy_cleanup(easy);
    }
    transfers_.clear();
  }

  void set_up(Transfer& transfer) {
    CURL* const easy = transfer.easy;
    curl_easy_setopt(easy, CURLOPT_URL, transfer.request.url.c_str());
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "moeflux/" MOEFLUX_VERSION);
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS);
#endif
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, long{options_.stall_seconds});
    // Fewer than a kilobyte a second for so long are a connection that does not get anywhere.
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1024L);
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, long{options_.stall_seconds});
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, 1L << 18);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, &transfer);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, &transfer);
    set_certificates(easy);
    if (!transfer.request.token.empty()) {
      const std::string header = "Authorization: Bearer " + transfer.request.token;
      transfer.headers = curl_slist_append(transfer.headers, header.c_str());
    }
    for (const std::string& header : transfer.request.headers) {
      transfer.headers = curl_slist_append(transfer.headers, header.c_str());
    }
    if (const auto& body = transfer.request.body) {
      curl_easy_setopt(easy, CURLOPT_POST, 1L);
      curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body->data());
      curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body->size()));
      // A server of tools may say nothing for long: its caller has a limit.
      curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 0L);
    }
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, transfer.headers);
    if (const auto& range = transfer.request.range) {
      const std::string text = formatted("{}-{}", range->begin, range->end - 1);
      curl_easy_setopt(easy, CURLOPT_RANGE, text.c_str());
    }
  }

  void collect(std::vector<HttpAnswer>& answers) {
    int left = 0;
    while (CURLMsg* const message = curl_multi_info_read(multi_, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      CURL* const easy = message->easy_handle;
      const CURLcode code = message->data.result;
      answers.push_back(answer_of(*transfers_.at(easy), code));
      curl_multi_remove_handle(multi_, easy);
      transfers_.erase(easy);
      curl_easy_cleanup(easy);
    }
  }

  static HttpAnswer answer_of(const Transfer& transfer, CURLcode code) {
    HttpAnswer answer{.id = transfer.id};
    long status = 0;
    curl_easy_getinfo(transfer.easy, CURLINFO_RESPONSE_CODE, &status);
    answer.status = static_cast<int>(status);
    char* redirect = nullptr;
    curl_easy_getinfo(transfer.easy, CURLINFO_REDIRECT_URL, &redirect);
    if (redirect != nullptr) answer.redirect = redirect;
    curl_off_t seconds = 0;
    curl_easy_getinfo(transfer.easy, CURLINFO_RETRY_AFTER, &seconds);
    answer.retry_seconds = seconds;
    answer.is_distrusted =
        code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE;
    if (!transfer.refusal.empty()) {
      answer.failure = transfer.refusal;
    } else if (code != CURLE_OK) {
      answer.failure = curl_easy_strerror(code);
    }
    return answer;
  }

  const HttpOptions options_;
  CURLM* const multi_;
  uint64_t last_id_ = 0;
  std::map<CURL*, std::unique_ptr<Transfer>> transfers_;
};

}  // namespace

Result<std::unique_ptr<HttpClient>> HttpClient::create(const HttpOptions& options) {
  if (const CURLcode code = curl_global_init(CURL_GLOBAL_DEFAULT); code != CURLE_OK) {
    return make_error(ErrorCode::kUnsupported, "no downloads: {}", curl_easy_strerror(code));
  }
  CURLM* const multi = curl_multi_init();
  if (multi == nullptr) return make_error(ErrorCode::kIo, "libcurl does not start");
  return std::unique_ptr<HttpClient>(std::make_unique<CurlClient>(multi, options));
}

}  // namespace moeflux::hub
