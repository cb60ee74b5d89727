#include "chat/chat_format.h"

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "chat/generic_tools.h"
#include "output/response_template.h"

namespace moeflux {
namespace {

// A call, so that the template shows how its model writes one.
std::string render_probe(const ChatTemplate& chat_template) {
  const Json parameters = {{"type", "object"}, {"properties", {{"place", {{"type", "string"}}}}}};
  const Json function = {{"name", "look_up"}, {"description", "d"}, {"parameters", parameters}};
  const Json call = {{"id", "abcdefghi"},
                     {"type", "function"},
                     {"function", {{"name", "look_up"}, {"arguments", {{"place", "here"}}}}}};
  TemplateRequest request;
  request.messages = Json::array({{{"role", "user"}, {"content", "u"}},
                                  {{"role", "assistant"},
                                   {"content", ""},
                                   {"reasoning_content", "r"},
                                   {"tool_calls", Json::array({call})}}});
  request.tools = Json::array({{{"type", "function"}, {"function", function}}});
  request.add_generation_prompt = true;
  const Result<RenderedPrompt> rendered = chat_template.render(request, TemplateTime());
  return rendered.ok() ? rendered->text : std::string();
}

// The model's own description of its output, if it has one that a row can say.
Result<std::optional<OutputFormat>> stored_format(const ModelSource& source) {
  MF_ASSIGN_OR_RETURN(const std::vector<std::string> maps, source.special_token_maps());
  for (const std::string& text : maps) {
    MF_ASSIGN_OR_RETURN(const Json map, parse_json(text, source.path() + ": special tokens"));
    const auto found = map.is_object() ? map.find("response_template") : map.end();
    if (!map.is_object() || found == map.end()) continue;
    Result<OutputFormat> format =
        compile_response_template(*found, source.path() + ": response_template");
    if (format.ok()) return std::optional(std::move(format).value());
  }
  return std::optional<OutputFormat>();
}

// The probe has no reasoning of ours in tags: those in it are the template's.
bool shows_reasoning(const OutputFormat& format, std::string_view shown) {
  const auto has = [&](const std::string& tag) {
    return shown.find(tag) != std::string_view::npos;
  };
  return std::ranges::any_of(format.reasoning_open, has) ||
         std::ranges::any_of(format.reasoning_close, has);
}

}  // namespace

ChatFormat::ChatFormat(ChatTemplate chat_template, std::string text, OutputFormat output,
                       bool may_reason, const Tokenizer& tokenizer)
    : template_(std::move(chat_template)),
      text_(std::move(text)),
      output_(std::move(output)),
      may_reason_(may_reason),
      is_generic_(output_.name == kGenericFormat),
      markers_(find_marker_tokens(output_,
                                  [&](std::string_view marker) -> std::optional<TokenId> {
                                    for (const AddedToken& token : tokenizer.added_tokens()) {
                                      if (token.content == marker) return token.id;
                                    }
                                    return std::nullopt;
                                  })),
      tokenizer_(tokenizer) {
  if (output_.reasoning_close.empty()) return;
  const Result<std::vector<TokenId>> close =
      tokenizer.encode("\n" + output_.reasoning_close.front() + "\n\n");
  if (close.ok()) reasoning_close_ = *close;
}

Result<std::shared_ptr<const ChatFormat>> ChatFormat::load(
    const ModelSource& source, const Tokenizer& tokenizer,
    const std::optional<GivenTemplate>& given) {
  MF_ASSIGN_OR_RETURN(ChatTemplate chat_template, load_chat_template(source, &tokenizer, given));
  std::string text = given ? given->text : "";
  if (!given) {
    MF_ASSIGN_OR_RETURN(const StoredTemplates stored, source.chat_templates());
    const auto named = stored.named.find("default");
    text = stored.text ? *stored.text : named != stored.named.end() ? named->second : "";
  }
  MF_ASSIGN_OR_RETURN(std::optional<OutputFormat> own, stored_format(source));
  const std::string shown = render_probe(chat_template) + "\n" + text;
  OutputFormat output = own ? *own : choose_output_format(shown);
  const bool may_reason = own ? !own->reasoning_open.empty() : shows_reasoning(output, shown);
  if (needs_generic_tools(chat_template.capabilities(true)) && output.channel.empty()) {
    output = generic_output_format(output);
  }
  return std::shared_ptr<const ChatFormat>(new ChatFormat(
      std::move(chat_template), std::move(text), std::move(output), may_reason, tokenizer));
}

Result<ChatPrompt> ChatFormat::prompt(const TemplateRequest& request,
                                      const TemplateTime& now) const {
  if (!is_generic_) return own_prompt(request, now);
  return own_prompt(with_generic_tools(request), now);
}

Result<ChatPrompt> ChatFormat::own_prompt(const TemplateRequest& request,
                                          const TemplateTime& now) const {
  MF_ASSIGN_OR_RETURN(RenderedPrompt rendered, template_.render(request, now));
  ChatPrompt prompt{.text = std::move(rendered.text), .tokens = {}, .tail = {}};
  MF_ASSIGN_OR_RETURN(prompt.tokens,
                      tokenizer_.encode(prompt.text, {.inert_ranges = rendered.inert_ranges}));
  if (request.add_generation_prompt || request.continue_final_message) {
    prompt.tail = tail_of(prompt.text, request, now);
  }
  return prompt;
}

std::string ChatFormat::tail_of(std::string_view prompt, const TemplateRequest& request,
                                const TemplateTime& now) const {
  TemplateRequest without = request;
  without.add_generation_prompt = false;
  without.continue_final_message = false;
  if (request.continue_final_message) without.messages.erase(without.messages.size() - 1);
  const Result<RenderedPrompt> head = template_.render(without, now);
  if (head.ok() && prompt.starts_with(head->text)) {
    return std::string(prompt.substr(head->text.size()));
  }
  const std::string& begin = template_.capabilities(!request.tools.is_null()).generation_prompt;
  if (!request.continue_final_message) return begin;
  // The template shows the messages before in another way: the last turn is found by its begin.
  const std::string_view line = std::string_view(begin).substr(0, begin.find('\n'));
  const size_t found = line.empty() ? std::string_view::npos : prompt.rfind(line);
  return found == std::string_view::npos ? std::string() : std::string(prompt.substr(found));
}

}  // namespace moeflux
