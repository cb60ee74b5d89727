#include "library/chat_reader.h"

#include <algorithm>

#include "base/format.h"
#include "base/json.h"
#include "serve/wire/api_error.h"

namespace moeflux {
namespace {

constexpr std::string_view kData = "data: ";
constexpr std::string_view kDone = "[DONE]";
constexpr std::string_view kEnd = "\n\n";
constexpr int kOk = 200;

std::string text_in(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

int64_t number_in(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

// The code of a type that errors of the service have.
ErrorCode code_of(std::string_view type) {
  if (type == "not_found_error") return ErrorCode::kNotFound;
  if (type == "rate_limit_error" || type == serve::kTooLong) return ErrorCode::kResourceExhausted;
  if (type == "unavailable_error") return ErrorCode::kCancelled;
  return type == "invalid_request_error" ? ErrorCode::kInvalidArgument
                                         : ErrorCode::kFailedPrecondition;
}

Error error_of(const Json& error) {
  return make_error(code_of(text_in(error, "type")), "{}", text_in(error, "message"));
}

}  // namespace

Status ChatReader::read(int status, std::string_view bytes, bool ended) {
  text_.clear();
  reasoning_.clear();
  pending_ += bytes;
  if (status != 0 && status != kOk) {
    if (!ended) return {};
    MF_ASSIGN_OR_RETURN(const Json body, parse_json(pending_, "the answer"));
    const auto error = body.find("error");
    if (error != body.end() && error->is_object()) return error_of(*error);
    return make_error(ErrorCode::kFailedPrecondition, "the service answered {}", status);
  }
  size_t begin = 0;
  for (size_t end; (end = pending_.find(kEnd, begin)) != std::string::npos;
       begin = end + kEnd.size()) {
    MF_RETURN_IF_ERROR(read_event(std::string_view(pending_).substr(begin, end - begin)));
  }
  pending_.erase(0, begin);
  return {};
}

Status ChatReader::read_event(std::string_view event) {
  if (!event.starts_with(kData)) return {};
  event.remove_prefix(kData.size());
  if (event == kDone) return {};
  MF_ASSIGN_OR_RETURN(const Json json, parse_json(event, "an event of the answer"));
  if (const auto error = json.find("error"); error != json.end()) return error_of(*error);
  const auto usage = json.find("usage");
  if (usage != json.end() && usage->is_object()) {
    prompt_tokens_ = number_in(*usage, "prompt_tokens");
    generated_tokens_ = number_in(*usage, "completion_tokens");
  }
  const auto choices = json.find("choices");
  if (choices == json.end()) return {};
  for (const Json& choice : *choices) read_choice(choice);
  return {};
}

void ChatReader::read_choice(const Json& choice) {
  const std::string reason = text_in(choice, "finish_reason");
  if (!reason.empty()) finish_reason_ = reason;
  const auto delta = choice.find("delta");
  if (delta == choice.end()) return;
  text_ += text_in(*delta, "content");
  reasoning_ += text_in(*delta, "reasoning_content");
  const auto parts = delta->find("tool_calls");
  if (parts == delta->end() || !parts->is_array()) return;
  for (const Json& part : *parts) add_call(part);
}

// The first part of a call has its name, others have more of its arguments.
void ChatReader::add_call(const Json& part) {
  const auto index = static_cast<size_t>(number_in(part, "index"));
  calls_.resize(std::max(calls_.size(), index + 1));
  Call& call = calls_[index];
  if (call.id.empty()) call.id = text_in(part, "id");
  const auto function = part.find("function");
  if (function == part.end()) return;
  call.name += text_in(*function, "name");
  call.arguments += text_in(*function, "arguments");
}

}  // namespace moeflux
