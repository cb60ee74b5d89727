#include "templates/capabilities.h"

#include <optional>
#include <string_view>
#include <utility>

namespace moeflux {
namespace {

// Words that no template prints by itself.
constexpr std::string_view kUser = "quokka";
constexpr std::string_view kOther = "axolotl";
constexpr std::string_view kTool = "find_ocelot";
constexpr std::string_view kSecondTool = "find_narwhal";
constexpr std::string_view kArguments = R"({"place": "tapir"})";
constexpr std::string_view kArgument = "tapir";
constexpr std::string_view kResult = "wombat";

Json message(std::string_view role, Json content) {
  return {{"role", role}, {"content", std::move(content)}};
}

Json call_of(std::string_view name, Json arguments) {
  // Some templates want ids of nine letters and digits.
  return {{"id", name == kTool ? "abcdefgh1" : "abcdefgh2"},
          {"type", "function"},
          {"function", {{"name", name}, {"arguments", std::move(arguments)}}}};
}

Json tool_of(std::string_view name) {
  const Json parameters = {{"type", "object"},
                           {"properties", {{"place", {{"type", "string"}}}}},
                           {"required", Json::array({"place"})}};
  return {{"type", "function"},
          {"function", {{"name", name}, {"description", "Finds it."}, {"parameters", parameters}}}};
}

/// Renders conversations of one template.
class Prober {
 public:
  Prober(const TemplateEngine& engine, const Json& tokens) : engine_(engine), tokens_(tokens) {}

  std::optional<std::string> render(const Json& messages, const Json& more = Json::object()) const {
    Json variables = tokens_;
    variables["messages"] = messages;
    variables["tools"] = nullptr;
    variables["documents"] = nullptr;
    variables["add_generation_prompt"] = true;
    for (const auto& [name, value] : more.items()) variables[name] = value;
    if (is_slow_) return std::nullopt;
    // The probe's day is of no interest, but must not change from run to run.
    Result<std::string> text = engine_.render(
        variables, {}, {.fuel = 500'000, .output_bytes_max = 1 << 20, .milliseconds_max = 2000});
    if (!text.ok()) {
      is_slow_ = text.error().code() == ErrorCode::kResourceExhausted;
      return std::nullopt;
    }
    return std::move(text).value();
  }

  bool shows(std::string_view word, const Json& messages, const Json& more = Json::object()) const {
    const std::optional<std::string> text = render(messages, more);
    return text && text->find(word) != std::string::npos;
  }

  Json user() const { return user_; }
  void set_user(Json user) { user_ = std::move(user); }

  /// A question, an assistant's calls and their results.
  Json calls(Json assistant) const {
    Json messages = Json::array({user_});
    Json results = Json::array();
    for (const Json& call : assistant["tool_calls"]) {
      results.push_back({{"role", "tool"},
                         {"tool_call_id", call["id"]},
                         {"name", call["function"]["name"]},
                         {"content", std::string(kResult)}});
    }
    messages.push_back(std::move(assistant));
    for (Json& result : results) messages.push_back(std::move(result));
    return messages;
  }

 private:
  const TemplateEngine& engine_;
  const Json& tokens_;
  Json user_ = message("user", std::string(kUser));
  /// One of these conversations was over a limit: so are the others.
  mutable bool is_slow_ = false;
};

void probe_content(Prober& prober, TemplateCapabilities& found) {
  found.text_content = prober.shows(kUser, Json::array({prober.user()}));
  const Json part = {{"type", "text"}, {"text", kUser}};
  const Json parts = message("user", Json::array({part}));
  const std::optional<std::string> text = prober.render(Json::array({parts}));
  // A template that prints the list itself shows the word among quoted keys.
  found.content_parts = text && text->find(kUser) != std::string::npos &&
                        text->find("'text'") == std::string::npos &&
                        text->find("\"text\"") == std::string::npos;
  if (!found.text_content && found.content_parts) prober.set_user(parts);
}

void probe_roles(const Prober& prober, TemplateCapabilities& found) {
  const Json user = prober.user();
  const Json other = std::string(kOther);
  found.system_role = prober.shows(kOther, Json::array({message("system", other), user}));
  found.developer_role = prober.shows(kOther, Json::array({message("developer", other), user}));
  const std::optional<std::string> late = prober.render(
      Json::array({user, message("assistant", "yes"), message("system", other), user}));
  if (!late) return;
  const size_t at = late->find(kOther);
  found.late_system = at != std::string::npos && at > late->find(kUser);
}

void probe_calls(const Prober& prober, TemplateCapabilities& found) {
  const Json tools = {{"tools", Json::array({tool_of(kTool), tool_of(kSecondTool)})}};
  found.tools = prober.shows(kTool, Json::array({prober.user()}), tools);
  const Json object = Json::parse(kArguments);
  const auto assistant = [](Json calls) {
    Json made = message("assistant", "");
    made["tool_calls"] = std::move(calls);
    return made;
  };
  const Json as_object = assistant(Json::array({call_of(kTool, object)}));
  const Json as_text = assistant(Json::array({call_of(kTool, std::string(kArguments))}));
  found.object_arguments = prober.shows(kArgument, prober.calls(as_object), tools);
  found.string_arguments = prober.shows(kArguments, prober.calls(as_text), tools);
  const Json arguments =
      found.object_arguments || !found.string_arguments ? object : Json(std::string(kArguments));
  Json one = assistant(Json::array({call_of(kTool, arguments)}));
  const Json two =
      assistant(Json::array({call_of(kTool, arguments), call_of(kSecondTool, arguments)}));
  found.tool_calls = prober.shows(kArgument, prober.calls(one), tools);
  found.tool_results = prober.shows(kResult, prober.calls(one), tools);
  found.parallel_calls = prober.shows(kSecondTool, prober.calls(two));
  const auto takes = [&](const Json& message) {
    const std::optional<std::string> text = prober.render(prober.calls(message), tools);
    return text && text->find("None") == std::string::npos;
  };
  Json without = one;
  without.erase("content");
  found.absent_content = takes(without);
  without["content"] = nullptr;
  found.null_content = takes(without);
  const auto renders = [&](const Json& message) {
    return prober.render(prober.calls(message), tools).has_value();
  };
  const Json broken = assistant(
      Json::array({call_of(kTool, std::string(kArguments.substr(0, kArguments.size() - 2)))}));
  found.broken_arguments = renders(broken);
  found.one_call_alone = found.tool_calls && !renders(two);
  one["reasoning_content"] = kOther;
  one["thinking"] = kOther;
  found.reasoning = prober.shows(kOther, prober.calls(one), tools);
  found.calls_with_reasoning = renders(one);
  Json all = one;
  all["content"] = kUser;
  found.calls_with_text_and_reasoning = renders(all);
  all.erase("tool_calls");
  found.answer_with_reasoning =
      prober.render(Json::array({prober.user(), all, prober.user()})).has_value();
  for (const Json& messages : {prober.calls(one), Json::array({prober.user()})}) {
    found.sample += prober.render(messages, tools).value_or("");
  }
}

void probe_switches(const Prober& prober, TemplateCapabilities& found) {
  const Json messages = Json::array({prober.user()});
  const auto differ = [&](const char* name, const Json& one, const Json& other) {
    if (prober.render(messages, {{name, one}}) != prober.render(messages, {{name, other}})) {
      found.switches.emplace_back(name);
    }
  };
  differ("enable_thinking", true, false);
  differ("thinking", true, false);
  differ("reasoning_effort", "low", "high");
  const std::optional<std::string> with = prober.render(messages);
  const std::optional<std::string> without =
      prober.render(messages, {{"add_generation_prompt", false}});
  if (with && without && with->starts_with(*without)) {
    found.generation_prompt = with->substr(without->size());
  }
}

}  // namespace

TemplateCapabilities probe_template(const TemplateEngine& engine, const Json& tokens) {
  TemplateCapabilities found;
  // Whether the model has them says nothing about the template; a request may bring its own.
  Json all_tokens = tokens;
  for (const char* name : {"bos_token", "eos_token"}) {
    if (!all_tokens.contains(name)) all_tokens[name] = "";
  }
  Prober prober(engine, all_tokens);
  probe_content(prober, found);
  probe_roles(prober, found);
  probe_calls(prober, found);
  probe_switches(prober, found);
  return found;
}

}  // namespace moeflux
