#include "cli/template_option.h"

#include <utility>

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

}  // namespace moeflux
