// A template's treatment of messages, found by rendering small conversations.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "templates/template_engine.h"

namespace moeflux {

struct TemplateCapabilities {
  bool text_content = false;      // shows a user's text
  bool content_parts = false;     // shows the text of [{"type": "text", "text": ...}]
  bool null_content = false;      // takes a call's message whose content is null
  bool absent_content = false;    // or is not there
  bool system_role = false;       // shows a first message of role system
  bool late_system = false;       // and one that comes after others, where it stands
  bool developer_role = false;    // shows a first message of role developer
  bool tools = false;             // shows the tools of a request
  bool tool_calls = false;        // shows an assistant's call
  bool parallel_calls = false;    // and two of them
  bool one_call_alone = false;    // or refuses them
  bool object_arguments = false;  // shows arguments that are an object
  bool string_arguments = false;  // shows arguments that are JSON text as they are
  bool tool_results = false;      // shows messages of role tool
  bool reasoning = false;         // shows reasoning_content of a call's message
  // Takes a message of the assistant with
  bool answer_with_reasoning = false;          // a text and reasoning
  bool calls_with_reasoning = false;           // calls and reasoning
  bool calls_with_text_and_reasoning = false;  // all three
  bool broken_arguments = false;               // a call whose arguments are no JSON
  /// Variables that change the prompt: "enable_thinking", "thinking", "reasoning_effort".
  std::vector<std::string> switches;
  /// Conversations as they were rendered: what the template writes by itself stands there.
  std::string sample;
  /// The text that add_generation_prompt adds behind a user's message.
  std::string generation_prompt;
};

/// Renders about twenty short conversations.
TemplateCapabilities probe_template(const TemplateEngine& engine, const Json& tokens);

}  // namespace moeflux
