#include "cli/template_option.h"

#include <utility>

#include "base/format.h"
#include "base/json.h"
#include "cli/text_input.h"

namespace moeflux {

void add_template_option(CommandOptions& command, std::string& file) {
  command.add("--chat-template-file", file, "Jinja template to use instead of the model's own")
      .value("FILE")
      .not_empty()
      .in_help_all();
}

Result<std::optional<GivenTemplate>> given_template(const std::string& file) {
  if (file.empty()) return std::optional<GivenTemplate>();
  MF_ASSIGN_OR_RETURN(std::string text, read_text_input(file));
  return std::optional(GivenTemplate{.text = std::move(text), .place = file});
}

void check_question(const ChatFormat& format, const Log& log) {
  const TemplateRequest request{.messages =
                                    Json::array({Json{{"role", "user"}, {"content", "Hello"}}})};
  const Result<RenderedPrompt> prompt = format.chat_template().render(request, local_time_now());
  if (prompt.ok()) return;
  log.warning(formatted("{}; a question by itself is refused", prompt.error().message()));
}

}  // namespace moeflux
