// The requests that are this engine's own, or llama.cpp's: what it is, tokens, counters, streams
// that may be come back to.
#include <charconv>
#include <optional>
#include <string>
#include <utility>

#include "base/format.h"
#include "serve/call.h"
#include "serve/http/http_text.h"
#include "serve/kept/resumable_streams.h"
#include "serve/metrics.h"
#include "serve/native/conversations.h"
#include "serve/native/handlers.h"
#include "serve/native/watching.h"
#include "serve/openai/chat.h"
#include "serve/openapi.h"
#include "serve/service_limits.h"

namespace moeflux::serve {
namespace {

std::optional<uint64_t> number_of(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  return is_number ? std::optional(number) : std::nullopt;
}

// A text, or a list of texts and ids, which stand as they are.
std::optional<std::vector<TokenId>> read_content(Fields& fields, const Tokenizer& tokenizer,
                                                 EncodeOptions options) {
  const Json* content = fields.find("content");
  const Json none = Json::array();
  const bool is_list = content != nullptr && content->is_array();
  const Json one = content == nullptr || is_list ? none : Json::array({*content});
  std::vector<TokenId> tokens;
  const Json& parts = is_list ? *content : one;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string name = is_list ? formatted("content[{}]", i) : "content";
    if (parts[i].is_string()) {
      const auto ids = tokenizer.encode(parts[i].get_ref<const std::string&>(), options);
      options.add_special_tokens = false;  // they stand before the first text
      if (!ids.ok()) fields.fail(api_error(ids.error()));
      if (ids.ok()) tokens.insert(tokens.end(), ids->begin(), ids->end());
      continue;
    }
    const Result<int64_t> id = json_int(parts[i], name);
    if (is_list && id.ok() && *id >= 0 && *id < tokenizer.vocab_size()) {
      tokens.push_back(static_cast<TokenId>(*id));
      continue;
    }
    fields.fail(bad_field(
        name, formatted("{} is {}, expected {}", name, json_excerpt(parts[i]),
                        is_list ? formatted("a string or an id below {}", tokenizer.vocab_size())
                                : "a string or a list of strings and ids")));
  }
  if (content == nullptr) {
    fields.fail(bad_field("content", "content is absent, expected a string or a list of them"));
  }
  if (fields.problem()) return std::nullopt;
  return tokens;
}

void tokenize(Call& call) {
  Fields fields(call.body);
  const bool add_special = fields.boolean("add_special").value_or(false);
  const bool parse_special = fields.boolean("parse_special").value_or(true);
  const bool with_pieces = fields.boolean("with_pieces").value_or(false);
  const auto ids =
      read_content(fields, call.service().tokenizer(),
                   {.add_special_tokens = add_special, .match_added_tokens = parse_special});
  if (!ids) return call.fail(*fields.problem());
  Json tokens = Json::array();
  const TokenSpelling spelling(call.service().tokenizer());
  for (const TokenId id : *ids) {
    if (with_pieces) {
      tokens.push_back({{"id", id}, {"piece", spelling.text(id)}, {"bytes", spelling.bytes(id)}});
    } else {
      tokens.push_back(id);
    }
  }
  call.answer({{"tokens", std::move(tokens)}});
}

void detokenize(Call& call) {
  Fields fields(call.body);
  const Json* tokens = fields.array("tokens");
  std::vector<TokenId> ids;
  for (size_t i = 0; tokens != nullptr && i < tokens->size(); ++i) {
    const Result<int64_t> id = json_int((*tokens)[i], "tokens");
    const bool is_token = id.ok() && *id >= 0 && *id < call.service().tokenizer().vocab_size();
    if (!is_token) {
      fields.fail(bad_field(
          formatted("tokens[{}]", i),
          formatted("tokens[{}] is {}, expected an id below {}", i, json_excerpt((*tokens)[i]),
                    call.service().tokenizer().vocab_size())));
      break;
    }
    ids.push_back(static_cast<TokenId>(*id));
  }
  if (tokens == nullptr) fields.fail(bad_field("tokens", "tokens is absent, expected ids"));
  if (fields.problem()) return call.fail(*fields.problem());
  call.answer({{"content", call.service().tokenizer().decode(ids)}});
}

void apply_template(Call& call) {
  if (!call.service().format().ok()) return call.fail(api_error(call.service().format().error()));
  const auto decoded = decode_chat_request(call.body, call.service().options().defaults);
  if (const auto* error = std::get_if<ApiError>(&decoded)) return call.fail(*error);
  const TemplateRequest& request = std::get<ChatRequest>(decoded).conversation;
  if (!call.service().may_fit(call, request.messages)) return;
  const auto prompt = (*call.service().format())->prompt(request, local_time_now());
  if (!prompt.ok()) return call.fail(api_error(prompt.error()));
  call.answer({{"prompt", prompt->text}});
}

void health(Call& call) {
  if (!call.state.is_draining()) return call.answer({{"status", "ok"}});
  Json body = error_body(draining());
  body["status"] = "draining";
  call.target.response->send(503, {{"Content-Type", "application/json"}}, dump_json(body));
}

void props(Call& call) {
  const ModelLease model = call.find_loaded({{"role", "router"}});
  if (!model) return;
  const SamplerOptions& sampler = model->options().defaults.sampler;
  Json json = {{"default_generation_settings",
                {{"n_ctx", model->context_length()},
                 {"params",
                  {// As llama.cpp says that it is drawn.
                   {"seed", sampler.seed == 0 ? uint64_t{0xffffffff} : sampler.seed},
                   {"temperature", sampler.temperature},
                   {"top_k", sampler.top_k},
                   {"top_p", sampler.top_p},
                   {"min_p", sampler.min_p},
                   {"repeat_penalty", sampler.repeat_penalty},
                   {"repeat_last_n", sampler.repeat_last_n},
                   {"presence_penalty", sampler.presence_penalty},
                   {"frequency_penalty", sampler.frequency_penalty}}}}},
               {"total_slots", model->options().scheduler.active_max},
               {"model_path", folder_name(model->model().directory)},
               {"build_info", formatted("moeflux {}", MOEFLUX_VERSION)}};
  if (model->format().ok()) {
    const ChatFormat& format = **model->format();
    json["chat_template"] = format.template_text();
    json["chat_template_caps"] = capabilities_json(format.chat_template().capabilities(true));
    json["output_format"] = format.output().name;
  }
  call.answer(json);
}

void slots(Call& call) {
  const ModelLease model = call.find_loaded(Json::array());
  if (!model) return;
  call.answer(
      slots_json(model->scheduler().slots(), {.count = model->options().scheduler.active_max,
                                              .context_length = model->context_length(),
                                              .client = call.request.shares_with}));
}

// None are loaded, and none can be.
void list_adapters(Call& call) { call.answer(Json::array()); }

void set_adapters(Call& call) {
  if (call.body.is_array() && call.body.empty()) return call.answer({{"success", true}});
  call.fail({.status = 501,
             .type = "not_supported_error",
             .message = "LoRA adapters are not offered: serve a model that has them merged"});
}

void act_on_slot(Call& call) {
  call.fail({.status = 501,
             .type = "not_supported_error",
             .message = "slots are not saved, restored or erased: a prompt continues from the "
                        "cached state that shares most tokens, whichever slot it had, and "
                        "--states keeps these on the drive"});
}

void show_metrics(Call& call) {
  call.target.response->send(
      200,
      {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"},
       {"Process-Start-Time-Unix", formatted("{}", call.state.started())}},
      metrics_text(call.models.texts(), call.models.counters(), call.state.asked()));
}

void openapi(Call& call) {
  call.target.response->send(200, {{"Content-Type", "application/json"}},
                             std::string(openapi_text()));
}

// The stream's id, or nothing once the request has failed.
std::optional<std::string> stream_id(const Call& call) {
  const std::string id = query_value(call.request.query, "conv_id").value_or("");
  if (!id.empty()) return id;
  call.fail(bad_field("conv_id", "conv_id is absent, expected the stream's X-Conversation-Id"));
  return std::nullopt;
}

void resume_stream(Call& call) {
  const auto id = stream_id(call);
  if (!id) return;
  // A browser's EventSource says by itself what it has seen.
  const std::string seen(header(call.request, "last-event-id"));
  const auto from = query_value(call.request.query, "from");
  const std::string name = from ? "from" : "Last-Event-ID";
  const std::string& said = from ? *from : seen;
  const auto number = number_of(said);
  const bool is_number = number && *number < UINT64_MAX;
  if ((from || !seen.empty()) && !is_number) {
    return call.fail(bad_field(name, formatted("{} is {}, expected the number of an event", name,
                                               json_excerpt(Json(said)))));
  }
  const uint64_t first = from ? *number : number ? *number + 1 : 0;
  auto problem =
      call.state.streams().resume(owned_text(call.request.owner, *id), first, call.target.response);
  if (!problem) return;
  if (!problem->param.empty()) problem->param = name;
  call.fail(*problem);
}

void delete_stream(Call& call) {
  const auto id = stream_id(call);
  if (!id) return;
  if (!call.state.streams().erase(owned_text(call.request.owner, *id))) {
    return call.fail(no_stream_is_kept());
  }
  call.target.response->send(204, {}, {});
}

Json empty_chunk(const std::string& model) {
  return {
      {"index", 0}, {"content", ""}, {"tokens", Json::array()}, {"stop", false}, {"model", model}};
}

constexpr Route kNativeRoutes[] = {
    {"POST", "/completion", &complete_natively, RouteKind::kUsual, &empty_chunk},
    {"POST", "/infill", &fill_in, RouteKind::kUsual, &empty_chunk},
    {"POST", "/tokenize", &tokenize},
    {"POST", "/detokenize", &detokenize},
    {"POST", "/apply-template", &apply_template},
    {"GET", "/stream", &resume_stream, RouteKind::kNoModel},
    {"DELETE", "/stream", &delete_stream, RouteKind::kNoModel},
    {"GET", "/moeflux/features", &show_features, RouteKind::kNoModel},
    {"GET", "/moeflux/telemetry", &watch_telemetry, RouteKind::kNoModel},
    {"GET", "/moeflux/experts", &show_experts, RouteKind::kNoModel},
    {"GET", "/moeflux/plan", &show_plan, RouteKind::kNoModel},
    {"GET", "/moeflux/model", &show_model, RouteKind::kNoModel},
    {"GET", "/moeflux/options", &show_options, RouteKind::kNoModel},
    {"GET", "/moeflux/log", &watch_log, RouteKind::kNoModel},
    {"GET", "/moeflux/forecast", &list_forecasts, RouteKind::kNoModel},
    {"POST", "/moeflux/forecast", &forecast_machine, RouteKind::kNoModel},
    {"GET", "/moeflux/routes/{id}", &answer_routes, RouteKind::kNoModel},
    {"GET", "/moeflux/trace", &trace_status, RouteKind::kNoModel},
    {"POST", "/moeflux/trace", &start_trace, RouteKind::kNoModel},
    {"DELETE", "/moeflux/trace", &stop_trace, RouteKind::kNoModel},
    {"GET", "/moeflux/trace/csv", &download_trace, RouteKind::kNoModel},
    {"GET", "/moeflux/trace/replay", &replay_trace, RouteKind::kNoModel},
    {"GET", "/moeflux/mcp", &list_tools, RouteKind::kNoModel},
    {"POST", "/moeflux/mcp", &call_tool, RouteKind::kNoModel},
    {"GET", "/moeflux/chats", &list_chats, RouteKind::kNoModel},
    {"GET", "/moeflux/chats/{id}", &kept_chat, RouteKind::kNoModel},
    {"POST", "/moeflux/chats/{id}", &keep_chat, RouteKind::kNoModel},
    {"DELETE", "/moeflux/chats/{id}", &delete_chat, RouteKind::kNoModel},
    {"GET", "/moeflux/conversations", &list_conversations, RouteKind::kNoModel},
    {"GET", "/moeflux/conversations/{id}", &saved_conversation, RouteKind::kNoModel},
    {"POST", "/moeflux/conversations/{id}", &save_conversation, RouteKind::kNoModel},
    {"DELETE", "/moeflux/conversations/{id}", &delete_conversation, RouteKind::kNoModel},
    {"GET", "/health", &health, RouteKind::kAtOnce},
    {"GET", "/props", &props, RouteKind::kNoModel},
    {"GET", "/slots", &slots, RouteKind::kAtOnce},
    {"POST", "/slots/{id}", &act_on_slot, RouteKind::kAtOnce},
    {"GET", "/lora-adapters", &list_adapters, RouteKind::kAtOnce},
    {"POST", "/lora-adapters", &set_adapters, RouteKind::kNoModel},
    {"GET", "/metrics", &show_metrics, RouteKind::kAtOnce},
    {"GET", "/openapi.json", &openapi, RouteKind::kAtOnce},
};

}  // namespace

extern const Interface native_interface = {
    .home = "/moeflux", .routes = kNativeRoutes, .error_text = &error_text};

}  // namespace moeflux::serve
