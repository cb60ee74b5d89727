// A model's chat template: messages, tools and flags to the text of a prompt. Clients' messages
// differ in small ways that break many templates, so the template is probed when it is made, and
// each request is brought into the form that this template understands.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "templates/capabilities.h"
#include "templates/stand_ins.h"
#include "templates/template_engine.h"

namespace moeflux {

struct TemplateTexts {
  std::string what;                          // where they are from, for messages
  std::optional<std::string> text;           // the default one
  std::map<std::string, std::string> named;  // others, "tool_use" for requests with tools
  /// How messages call each; that of `text` has an empty name. Absent: by `what`.
  std::map<std::string, std::string> places = {};
};

/// One prompt to render, all JSON as OpenAI's chat completions have it.
struct TemplateRequest {
  Json messages = Json::array();
  Json tools;      // an array, or null
  Json documents;  // an array, or null
  bool add_generation_prompt = true;
  /// The prompt ends with the text of the last message, which is the assistant's: what it says next
  /// goes on with it. Not with add_generation_prompt.
  bool continue_final_message = false;
  /// Further variables: enable_thinking, reasoning_effort, or tokens other than the model's own.
  Json variables = Json::object();
};

/// Immutable; threads may share one.
class ChatTemplate {
 public:
  /// `tokens` are variables of every rendering: bos_token, eos_token. Without `spellings` all text
  /// is trusted. Fails with kNotFound when there is no text, and as compile_template().
  static Result<ChatTemplate> create(const TemplateTexts& texts, Json tokens,
                                     SpecialSpellings spellings);

  /// Fails with kInvalidArgument, naming the message, for what is no conversation, for what the
  /// template refuses, and for a last message that cannot be continued.
  Result<RenderedPrompt> render(const TemplateRequest& request, const TemplateTime& now,
                                const TemplateLimits& limits = {}) const;

  /// The input that the template of requests with or without tools takes.
  const TemplateCapabilities& capabilities(bool with_tools) const {
    return chosen(with_tools).capabilities;
  }

 private:
  struct Compiled {
    std::shared_ptr<const TemplateEngine> engine;
    TemplateCapabilities capabilities;
  };
  static Result<Compiled> compile(std::string_view text, std::string_view what, const Json& tokens);
  const Compiled& chosen(bool with_tools) const {
    return with_tools && with_tools_.engine ? with_tools_ : plain_;
  }

  ChatTemplate() = default;

  Compiled plain_;
  Compiled with_tools_;  // without an engine: the plain one
  Json tokens_;
  SpecialSpellings spellings_;
};

}  // namespace moeflux
