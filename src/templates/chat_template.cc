#include "templates/chat_template.h"

#include <utility>

#include "base/format.h"
#include "templates/normalise.h"

namespace moeflux {
namespace {

Json variables_of(const TemplateRequest& request, const Json& tokens) {
  Json variables = tokens;
  for (const auto& [name, value] : request.variables.items()) variables[name] = value;
  variables["messages"] = request.messages;
  variables["tools"] = request.tools;
  variables["documents"] = request.documents;
  variables["add_generation_prompt"] = request.add_generation_prompt;
  return variables;
}

Error cannot_continue(std::string_view why) {
  return make_error(ErrorCode::kInvalidArgument,
                    "continue_final_message: {}, so the last message cannot be continued", why);
}

/// Marks where the text of the last message ends.
Status mark_end(Json& messages) {
  if (messages.empty() || messages.back()["role"] != "assistant") {
    return make_error(ErrorCode::kInvalidArgument,
                      "continue_final_message: the last message is of {}, expected the assistant's",
                      messages.empty() ? Json("nobody").dump() : messages.back()["role"].dump());
  }
  Json& message = messages.back();
  const auto calls = message.find("tool_calls");
  if (calls != message.end() && !calls->empty()) return cannot_continue("it has tool_calls");
  const auto append = [](Json& text) {
    text = text.get_ref<const std::string&>() + std::string(kContinuationMark);
  };
  Json& content = message["content"];
  if (content.is_array() && !content.empty() && content.back().is_object() &&
      content.back().contains("text") && content.back()["text"].is_string()) {
    append(content.back()["text"]);
    return {};
  }
  const bool has_text = content.is_string() && !content.get_ref<const std::string&>().empty();
  bool is_marked = false;
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const auto reasoning = message.find(name);
    if (has_text || reasoning == message.end() || !reasoning->is_string()) continue;
    append(*reasoning);
    is_marked = true;
  }
  if (is_marked) return {};
  if (!content.is_string()) content = "";
  append(content);
  return {};
}

/// Cuts behind the marked text.
Status cut_at_mark(std::string& rendered) {
  const size_t end = rendered.find(kContinuationMark);
  if (end == std::string::npos) return cannot_continue("the chat template does not show its end");
  if (rendered.find(kContinuationMark, end + 1) != std::string::npos) {
    return cannot_continue("the chat template shows it more than once");
  }
  rendered.resize(end);
  return {};
}

}  // namespace

Result<ChatTemplate::Compiled> ChatTemplate::compile(std::string_view text, std::string_view what,
                                                     const Json& tokens) {
  Compiled compiled;
  MF_ASSIGN_OR_RETURN(compiled.engine, compile_template(text, what));
  compiled.capabilities = probe_template(*compiled.engine, tokens);
  return compiled;
}

Result<ChatTemplate> ChatTemplate::create(const TemplateTexts& texts, Json tokens,
                                          SpecialSpellings spellings) {
  ChatTemplate made;
  const auto named = [&](const char* name) -> const std::string* {
    const auto found = texts.named.find(name);
    return found == texts.named.end() ? nullptr : &found->second;
  };
  const auto place = [&](const std::string& name) {
    const auto found = texts.places.find(name);
    return found != texts.places.end() ? found->second : formatted("{}: chat template", texts.what);
  };
  const std::string* text = texts.text ? &*texts.text : named("default");
  std::string text_place = place(texts.text ? "" : "default");
  const std::string* for_tools = named("tool_use");
  if (text == nullptr) {
    text = for_tools;
    text_place = place("tool_use");
  }
  if (text == nullptr) {
    return make_error(ErrorCode::kNotFound,
                      "{} has no chat template, expected chat_template.jinja, a chat_template in "
                      "tokenizer_config.json or chat_template.json, or GGUF's "
                      "tokenizer.chat_template",
                      texts.what);
  }
  MF_ASSIGN_OR_RETURN(made.plain_, compile(*text, text_place, tokens));
  if (for_tools != nullptr && for_tools != text) {
    MF_ASSIGN_OR_RETURN(made.with_tools_, compile(*for_tools, place("tool_use"), tokens));
  }
  spellings.watch(*text);
  spellings.watch(made.plain_.capabilities.sample);
  if (made.with_tools_.engine) {
    spellings.watch(*for_tools);
    spellings.watch(made.with_tools_.capabilities.sample);
  }
  made.tokens_ = std::move(tokens);
  made.spellings_ = std::move(spellings);
  return made;
}

Result<RenderedPrompt> ChatTemplate::render(const TemplateRequest& request, const TemplateTime& now,
                                            const TemplateLimits& limits) const {
  if (request.continue_final_message && request.add_generation_prompt) {
    return make_error(
        ErrorCode::kInvalidArgument,
        "continue_final_message and add_generation_prompt are both true, expected one");
  }
  TemplateRequest normal = request;
  if (normal.tools.is_array() && normal.tools.empty()) normal.tools = nullptr;
  const Compiled& compiled = chosen(!normal.tools.is_null());
  MF_RETURN_IF_ERROR(normalise_messages(normal.messages, compiled.capabilities));
  StandIns stand_ins;
  for (Json& message : normal.messages) {
    const bool is_own = message["role"] == "assistant";
    MF_RETURN_IF_ERROR(
        stand_ins.replace(message, is_own ? spellings_.special() : spellings_.all()));
  }
  MF_RETURN_IF_ERROR(stand_ins.replace(normal.tools, spellings_.all()));
  MF_RETURN_IF_ERROR(stand_ins.replace(normal.documents, spellings_.all()));
  if (request.continue_final_message) MF_RETURN_IF_ERROR(mark_end(normal.messages));
  Result<std::string> text = compiled.engine->render(variables_of(normal, tokens_), now, limits);
  if (!text.ok() && text.error().code() == ErrorCode::kResourceExhausted) {
    // These messages are over it whenever they come again.
    return make_error(ErrorCode::kInvalidArgument, "{}", text.error().message());
  }
  MF_ASSIGN_OR_RETURN(std::string rendered, std::move(text));
  if (request.continue_final_message) MF_RETURN_IF_ERROR(cut_at_mark(rendered));
  return stand_ins.put_back(rendered);
}

}  // namespace moeflux
