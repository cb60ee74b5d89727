#include "hub/mcp_client.h"

#include <algorithm>
#include <utility>

#include "base/ascii.h"
#include "base/format.h"
#include "hub/http_client.h"

namespace moeflux::hub {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kProtocol = "2025-03-26";
constexpr int kPollMs = 100;
constexpr int kPagesMax = 16;
constexpr size_t kSessionBytesMax = 256;
constexpr size_t kToolNameBytesMax = 128;
constexpr size_t kDescriptionBytesMax = 4096;
constexpr size_t kValuesMax = size_t{1} << 16;

// Without the last bytes of a character that is cut.
std::string cut_text(const std::string& text, size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xc0) == 0x80) --bytes;
  return text.substr(0, bytes);
}

/// A header of our requests must not become two.
bool is_session_id(std::string_view id) {
  return !id.empty() && id.size() <= kSessionBytesMax &&
         std::ranges::all_of(id, [](char c) { return c > ' ' && c < 0x7f; });
}

const Json* member(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

std::string text_member(const Json& object, const char* name) {
  const Json* const found = member(object, name);
  return found != nullptr && found->is_string() ? found->get<std::string>() : std::string();
}

/// The data of the events of a stream, each event's lines together.
std::vector<std::string> event_data(std::string_view stream) {
  std::vector<std::string> events;
  std::string data;
  while (!stream.empty()) {
    const size_t end = std::min(stream.find('\n'), stream.size());
    std::string_view line = stream.substr(0, end);
    stream.remove_prefix(std::min(end + 1, stream.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) {
      if (!data.empty()) events.push_back(std::exchange(data, {}));
      continue;
    }
    constexpr std::string_view kData = "data:";
    if (!line.starts_with(kData)) continue;
    line.remove_prefix(kData.size());
    if (line.starts_with(' ')) line.remove_prefix(1);
    if (!data.empty()) data += '\n';
    data += line;
  }
  if (!data.empty()) events.push_back(std::move(data));
  return events;
}

/// Behind the last event of a stream that is whole: an empty line ends it.
size_t end_of_events(std::string_view stream) {
  size_t end = 0;
  for (const std::string_view mark : {"\n\n", "\n\r\n"}) {
    const size_t at = stream.rfind(mark);
    if (at != std::string_view::npos) end = std::max(end, at + mark.size());
  }
  return end;
}

// Requests and notes of the server, which nobody here answers, have a method.
bool is_answer_to(const Json& message, int64_t id) {
  const Json* const answered = member(message, "id");
  return member(message, "method") == nullptr && answered != nullptr && *answered == id;
}

McpResult read_result(const Json& result, size_t bytes_max) {
  McpResult read;
  const Json* const is_error = member(result, "isError");
  read.is_error = is_error != nullptr && is_error->is_boolean() && is_error->get<bool>();
  const Json* const content = member(result, "content");
  if (content == nullptr || !content->is_array()) return read;
  std::string text;
  for (const Json& item : *content) {
    if (!text.empty()) text += '\n';
    const std::string type = text_member(item, "type");
    text += type == "text" ? text_member(item, "text")
                           : formatted("[{} left out: only text is taken]",
                                       json_excerpt(Json(type.empty() ? "content" : type)));
    if (text.size() > bytes_max) break;
  }
  read.is_truncated = text.size() > bytes_max;
  read.content = cut_text(text, bytes_max);
  return read;
}

}  // namespace

bool is_mcp_url(std::string_view url) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!url.starts_with(scheme)) continue;
    const std::string_view rest = url.substr(scheme.size());
    const std::string_view host = rest.substr(0, rest.find_first_of("/?#"));
    return !host.empty() && host.find('@') == std::string_view::npos &&
           std::ranges::all_of(url, [](char c) { return c > ' ' && c < 0x7f; });
  }
  return false;
}

/// One operation: its requests, one after another, within its time.
class McpClient::Exchange {
 public:
  Exchange(McpClient& client, const GivenUp& is_given_up)
      : client_(client), is_given_up_(is_given_up), end_(Clock::now() + client.limits_.time) {}

  /// The result of a request, in a session that is begun where there is none.
  Result<Json> ask(const char* method, const Json& params) {
    MF_RETURN_IF_ERROR(begin());
    Result<Json> result = request(method, params);
    // A server that was restarted does not know its sessions any more.
    if (result.ok() || status_ != 404 || session_.empty()) return result;
    {
      const std::lock_guard lock(client_.mutex_);
      client_.session_.reset();
    }
    MF_RETURN_IF_ERROR(begin());
    return request(method, params);
  }

 private:
  Status begin() {
    {
      const std::lock_guard lock(client_.mutex_);
      if (client_.session_) {
        session_ = *client_.session_;
        return {};
      }
    }
    session_.clear();
    const Json params = {{"protocolVersion", kProtocol},
                         {"capabilities", Json::object()},
                         {"clientInfo", {{"name", "moeflux"}, {"version", MOEFLUX_VERSION}}}};
    MF_ASSIGN_OR_RETURN(const Json answer, request("initialize", params));
    (void)answer;
    session_ = is_session_id(new_session_) ? new_session_ : std::string();
    const Json note = {{"jsonrpc", "2.0"}, {"method", "notifications/initialized"}};
    MF_RETURN_IF_ERROR(send(note));
    const std::lock_guard lock(client_.mutex_);
    client_.session_ = session_;
    return {};
  }

  Result<Json> request(const char* method, const Json& params) {
    const int64_t id = ++last_id_;
    MF_RETURN_IF_ERROR(
        send({{"jsonrpc", "2.0"}, {"id", id}, {"method", method}, {"params", params}}));
    const std::vector<std::string> texts =
        has_events() ? event_data(body_) : std::vector<std::string>{body_};
    for (const std::string& text : texts) {
      MF_ASSIGN_OR_RETURN(const Json message, parse(text));
      if (!is_answer_to(message, id)) continue;
      if (const Json* const error = member(message, "error")) {
        return make_error(ErrorCode::kIo, "{} refuses {}: {}", client_.name(), method,
                          json_excerpt(Json(cut_text(text_member(*error, "message"), 500))));
      }
      const Json* const result = member(message, "result");
      if (result != nullptr && result->is_object()) return *result;
    }
    return make_error(ErrorCode::kCorruption, "{} has no answer to {} with the request's id",
                      client_.name(), method);
  }

  Result<Json> parse(std::string_view text) const {
    return parse_json(text, formatted("the answer of {}", client_.name()),
                      {.values = kValuesMax, .is_given_up = is_given_up_});
  }
  bool has_events() const {
    return lower_case(type_.substr(0, type_.find(';'))) == "text/event-stream";
  }

  // Whether an event that has come since the last call answers `message`.
  bool has_answer(const Json& message) {
    const Json* const id = member(message, "id");
    if (id == nullptr || !has_events()) return false;
    const std::string_view fresh = std::string_view(body_).substr(events_end_);
    const size_t end = end_of_events(fresh);
    events_end_ += end;
    return std::ranges::any_of(event_data(fresh.substr(0, end)), [&](const std::string& text) {
      const Result<Json> event = parse(text);
      return event.ok() && is_answer_to(*event, id->get<int64_t>());
    });
  }

  Status send(const Json& message) {
    body_.clear();
    events_end_ = 0;
    is_answered_ = false;
    type_.clear();
    new_session_.clear();
    bool is_too_long = false;
    HttpRequest request{
        .url = client_.url_,
        .body = message.dump(-1, ' ', false, Json::error_handler_t::replace),
        .headers = {"Content-Type: application/json", "Accept: application/json, text/event-stream",
                    "Expect:", formatted("MCP-Protocol-Version: {}", kProtocol)}};
    if (!session_.empty()) request.headers.push_back("Mcp-Session-Id: " + session_);
    request.take_header = [this](std::string_view name, std::string_view value) {
      if (equal_without_case(name, "content-type")) type_ = value;
      if (equal_without_case(name, "mcp-session-id")) new_session_ = value;
    };
    request.take = [&](uint64_t, std::span<const std::byte> bytes) {
      is_too_long = body_.size() + bytes.size() > client_.limits_.answer_bytes;
      if (is_too_long) return false;
      body_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      // A server may hold a stream open behind its answer.
      is_answered_ = has_answer(message);
      return !is_answered_;
    };
    MF_ASSIGN_OR_RETURN(const std::unique_ptr<HttpClient> http,
                        HttpClient::create({.stall_seconds = 10, .connections = 1}));
    http->start(std::move(request));
    for (;;) {
      const std::vector<HttpAnswer> answers = http->wait(kPollMs);
      if (is_given_up_ && is_given_up_()) {
        return make_error(ErrorCode::kCancelled, "{}: given up", client_.name());
      }
      if (!answers.empty()) return check(answers.front(), is_too_long);
      if (Clock::now() > end_) {
        return make_error(ErrorCode::kIo, "{} takes longer than {} s", client_.name(),
                          client_.limits_.time.count() / 1000);
      }
    }
  }

  Status check(const HttpAnswer& answer, bool is_too_long) {
    status_ = answer.status;
    if (is_too_long) {
      return make_error(ErrorCode::kCorruption, "{} answers with more than {} bytes",
                        client_.name(), client_.limits_.answer_bytes);
    }
    if (answer.status >= 300 && answer.status < 400) {
      return make_error(ErrorCode::kIo, "{} redirects, which is not followed", client_.name());
    }
    if (!answer.failure.empty() && !is_answered_) {
      return make_error(ErrorCode::kIo, "{}: {}", client_.name(), answer.failure);
    }
    if (answer.status < 200 || answer.status > 299) {
      return make_error(ErrorCode::kIo, "{} answers with status {}, expected 200", client_.name(),
                        answer.status);
    }
    return {};
  }

  McpClient& client_;
  const GivenUp& is_given_up_;
  const Clock::time_point end_;
  std::string session_;
  int64_t last_id_ = 0;
  // These are of the last request.
  int status_ = 0;
  std::string body_;
  size_t events_end_ = 0;     // of the body's events that have been looked at
  bool is_answered_ = false;  // which ended the request
  std::string type_;
  std::string new_session_;
};

std::string McpClient::name() const {
  const std::string rest = url_.substr(url_.find("://") + 3);
  return rest.substr(0, rest.find_first_of("?#"));
}

Result<std::vector<McpTool>> McpClient::tools(const GivenUp& is_given_up) {
  Exchange exchange(*this, is_given_up);
  std::vector<McpTool> tools;
  std::string cursor;
  for (int page = 0; page < kPagesMax; ++page) {
    Json params = Json::object();
    if (!cursor.empty()) params["cursor"] = cursor;
    MF_ASSIGN_OR_RETURN(const Json result, exchange.ask("tools/list", params));
    const Json* const list = member(result, "tools");
    if (list == nullptr || !list->is_array()) {
      return make_error(ErrorCode::kCorruption, "{}: tools is absent, expected an array", name());
    }
    for (const Json& one : *list) {
      McpTool tool{.name = text_member(one, "name"),
                   .description = cut_text(text_member(one, "description"), kDescriptionBytesMax)};
      if (tool.name.empty() || tool.name.size() > kToolNameBytesMax) continue;
      if (const Json* const schema = member(one, "inputSchema"); schema && schema->is_object()) {
        tool.input_schema = *schema;
      }
      if (tools.size() == limits_.tools) return tools;
      tools.push_back(std::move(tool));
    }
    cursor = text_member(result, "nextCursor");
    if (cursor.empty()) break;
  }
  return tools;
}

Result<McpResult> McpClient::call(const std::string& tool, const Json& arguments,
                                  const GivenUp& is_given_up) {
  Exchange exchange(*this, is_given_up);
  MF_ASSIGN_OR_RETURN(const Json result,
                      exchange.ask("tools/call", {{"name", tool}, {"arguments", arguments}}));
  return read_result(result, limits_.text_bytes);
}

}  // namespace moeflux::hub
