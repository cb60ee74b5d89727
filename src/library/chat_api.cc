// Chats of moeflux.h: structs as the request that the service knows, and its events as pieces.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/format.h"
#include "base/json.h"
#include "library/answers.h"
#include "library/options.h"
#include "library/outcome.h"

namespace moeflux {
namespace {

Result<Json> json_of(const char* text, std::string_view what) {
  Result<Json> json = parse_json(text, what);
  if (json.ok()) return json;
  return make_error(ErrorCode::kInvalidArgument, "{}", json.error().message());
}

Result<Json> calls_of(const mf_message& message) {
  if (message.tool_calls == nullptr) return null_argument("tool_calls");
  Json calls = Json::array();
  for (size_t i = 0; i < message.tool_calls_count; ++i) {
    const mf_tool_call& call = message.tool_calls[i];
    if (call.name == nullptr) return null_argument("the name of a tool call");
    Json function = {{"name", call.name},
                     {"arguments", call.arguments != nullptr ? call.arguments : "{}"}};
    calls.push_back({{"id", call.id != nullptr ? call.id : ""},
                     {"type", "function"},
                     {"function", std::move(function)}});
  }
  return calls;
}

Result<Json> messages_of(const mf_chat_request& request) {
  MF_ASSIGN_OR_RETURN(const std::vector<mf_message> messages,
                      read_structs("messages", request.messages, request.messages_count));
  Json all = Json::array();
  for (const mf_message& message : messages) {
    if (message.role == nullptr) return null_argument("the role of a message");
    Json json = {{"role", message.role}, {"content", nullptr}};
    if (message.content != nullptr) json["content"] = message.content;
    if (message.reasoning != nullptr) json["reasoning_content"] = message.reasoning;
    if (message.tool_call_id != nullptr) json["tool_call_id"] = message.tool_call_id;
    if (message.tool_calls_count > 0) {
      MF_ASSIGN_OR_RETURN(json["tool_calls"], calls_of(message));
    }
    all.push_back(std::move(json));
  }
  return all;
}

Result<Json> tools_of(const mf_chat_request& request) {
  MF_ASSIGN_OR_RETURN(const std::vector<mf_tool> tools,
                      read_structs("tools", request.tools, request.tools_count));
  Json all = Json::array();
  for (const mf_tool& tool : tools) {
    if (tool.name == nullptr) return null_argument("the name of a tool");
    Json function = {{"name", tool.name}};
    if (tool.description != nullptr) function["description"] = tool.description;
    if (tool.parameters != nullptr) {
      MF_ASSIGN_OR_RETURN(function["parameters"], json_of(tool.parameters, "parameters of a tool"));
    }
    all.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return all;
}

Result<const char*> tool_choice_of(int32_t choice) {
  switch (choice) {
    case MF_TOOL_CHOICE_AUTO:
      return "auto";
    case MF_TOOL_CHOICE_NONE:
      return "none";
    case MF_TOOL_CHOICE_REQUIRED:
      return "required";
    default:
      return make_error(ErrorCode::kInvalidArgument, "tool_choice is {}, expected MF_TOOL_CHOICE_*",
                        choice);
  }
}

// Values beyond a range mean in the struct what its end means in requests.
Result<Json> sampler_json(const mf_sampler_options& given) {
  MF_ASSIGN_OR_RETURN(const mf_sampler_options read, read_struct("mf_sampler_options", &given));
  MF_ASSIGN_OR_RETURN(const SamplerOptions sampler, sampler_options(read));
  Json biases = Json::array();
  for (const LogitBias& bias : sampler.logit_bias) {
    const bool bans = std::isinf(bias.bias) && bias.bias < 0;
    biases.push_back({bias.token, bans ? Json(false) : Json(bias.bias)});
  }
  Json steps = Json::array();
  for (const SamplerStep step : sampler.samplers) steps.push_back(sampler_order_names({step}));
  return Json{{"temperature", std::max(sampler.temperature, 0.0f)},
              {"top_k", std::max(sampler.top_k, -1)},
              {"top_p", std::min(sampler.top_p, 1.0f)},
              {"min_p", sampler.min_p},
              {"repeat_penalty", sampler.repeat_penalty},
              {"repeat_last_n", sampler.repeat_last_n},
              {"presence_penalty", sampler.presence_penalty},
              {"frequency_penalty", sampler.frequency_penalty},
              {"seed", static_cast<int64_t>(sampler.seed & INT64_MAX)},
              {"logit_bias", std::move(biases)},
              {"typical_p", std::min(sampler.typical_p, 1.0f)},
              {"top_n_sigma", std::max(sampler.top_n_sigma, -1.0f)},
              {"xtc_probability", sampler.xtc_probability},
              {"xtc_threshold", std::min(sampler.xtc_threshold, 1.0f)},
              {"dynatemp_range", sampler.dynatemp_range},
              {"dynatemp_exponent", sampler.dynatemp_exponent},
              {"mirostat", sampler.mirostat},
              {"mirostat_tau", sampler.mirostat_tau},
              {"mirostat_eta", sampler.mirostat_eta},
              {"dry_multiplier", sampler.dry_multiplier},
              {"dry_base", sampler.dry_base},
              {"dry_allowed_length", sampler.dry_allowed_length},
              {"dry_penalty_last_n", sampler.dry_penalty_last_n},
              {"dry_sequence_breakers", sampler.dry_sequence_breakers},
              {"samplers", std::move(steps)}};
}

Result<Json> stops_of(const mf_chat_request& request) {
  if (request.stop_strings == nullptr) return null_argument("stop_strings");
  Json stops = Json::array();
  for (size_t i = 0; i < request.stop_strings_count; ++i) {
    if (request.stop_strings[i] == nullptr) return null_argument("an entry of stop_strings");
    stops.push_back(request.stop_strings[i]);
  }
  return stops;
}

Result<Json> body_of(const mf_chat_request& request) {
  Json body = Json::object();
  if (request.sampler != nullptr) {
    MF_ASSIGN_OR_RETURN(body, sampler_json(*request.sampler));
  }
  MF_ASSIGN_OR_RETURN(body["messages"], messages_of(request));
  if (request.tools_count > 0) {
    MF_ASSIGN_OR_RETURN(body["tools"], tools_of(request));
    MF_ASSIGN_OR_RETURN(body["tool_choice"], tool_choice_of(request.tool_choice));
    body["parallel_tool_calls"] = request.one_tool_call == 0;
  }
  if (request.schema != nullptr) {
    MF_ASSIGN_OR_RETURN(Json schema, json_of(request.schema, "schema"));
    body["response_format"] = {
        {"type", "json_schema"},
        {"json_schema", {{"name", "answer"}, {"schema", std::move(schema)}}}};
  }
  if (request.tokens_max < 0) {
    return make_error(ErrorCode::kInvalidArgument, "tokens_max is {}, expected 0 or more",
                      request.tokens_max);
  }
  if (request.tokens_max > 0) body["max_tokens"] = request.tokens_max;
  if (request.stop_strings_count > 0) {
    MF_ASSIGN_OR_RETURN(body["stop"], stops_of(request));
  }
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  return body;
}

int32_t finish_of(std::string_view reason) {
  if (reason == "length") return MF_CHAT_LENGTH;
  return reason == "tool_calls" ? MF_CHAT_TOOL_CALLS : MF_CHAT_STOP;
}

mf_chat_piece chat_piece_of(mf_answer& answer) {
  const ChatReader& read = *answer.chat;
  mf_chat_piece piece = MF_OPTIONS(piece);
  piece.text = read.text().data();
  piece.text_bytes = read.text().size();
  piece.reasoning = read.reasoning().data();
  piece.reasoning_bytes = read.reasoning().size();
  if (!answer.piece.ended) return piece;
  piece.ended = 1;
  piece.finish_reason = finish_of(read.finish_reason());
  answer.calls.clear();
  for (const ChatReader::Call& call : read.calls()) {
    answer.calls.push_back({call.id.c_str(), call.name.c_str(), call.arguments.c_str()});
  }
  piece.tool_calls = answer.calls.data();
  piece.tool_calls_count = answer.calls.size();
  piece.prompt_tokens = read.prompt_tokens();
  piece.generated_tokens = read.generated_tokens();
  return piece;
}

}  // namespace
}  // namespace moeflux

using moeflux::guarded;
using moeflux::null_argument;
using moeflux::Outcome;

mf_code mf_service_chat(mf_service* service, const mf_chat_request* request, mf_answer** answer,
                        mf_error* error) noexcept {
  return guarded(error, [&]() -> Outcome {
    if (answer == nullptr) return null_argument("answer");
    *answer = nullptr;
    if (request == nullptr) return null_argument("request");
    MF_ASSIGN_OR_RETURN(auto host, moeflux::hold_service(service));
    MF_ASSIGN_OR_RETURN(const mf_chat_request read,
                        moeflux::read_struct("mf_chat_request", request));
    MF_ASSIGN_OR_RETURN(const moeflux::Json body, moeflux::body_of(read));
    const moeflux::serve::Request asked{
        .method = "POST",
        .path = "/v1/chat/completions",
        .body = body.dump(-1, ' ', false, moeflux::Json::error_handler_t::replace)};
    MF_ASSIGN_OR_RETURN(
        auto begun, moeflux::begin_answer(std::move(host), asked, read.on_ready, read.user_data));
    begun->chat.emplace();
    *answer = begun.release();
    return {};
  });
}

mf_code mf_answer_next_chat(mf_answer* answer, int64_t timeout_ms, mf_chat_piece* piece,
                            mf_error* error) noexcept {
  return guarded(error, [&]() -> Outcome {
    if (answer == nullptr) return null_argument("answer");
    if (piece == nullptr) return null_argument("piece");
    if (!answer->chat) {
      return moeflux::make_error(moeflux::ErrorCode::kFailedPrecondition,
                                 "the answer is not a chat's, mf_answer_next() reads it");
    }
    MF_RETURN_IF_ERROR(moeflux::check_struct("mf_chat_piece", nullptr, piece->struct_size,
                                             sizeof(*piece), sizeof(*piece)));
    MF_RETURN_IF_ERROR(moeflux::take_piece(*answer, timeout_ms));
    MF_RETURN_IF_ERROR(
        answer->chat->read(answer->piece.status, answer->piece.bytes, answer->piece.ended));
    return moeflux::write_struct("mf_chat_piece", moeflux::chat_piece_of(*answer), piece);
  });
}
