#include "cli/completions.h"

#include <array>
#include <string_view>
#include <utility>

#include "base/format.h"
#include "cli/help.h"

namespace moeflux {
namespace {

std::string word_list(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

// Between single quotes of a shell.
std::string shell_quoted(std::string_view text, std::string_view escaped = {}) {
  std::string result;
  for (const char c : text) {
    if (c == '\'') {
      result += "'\\''";
      continue;
    }
    if (escaped.find(c) != std::string_view::npos) result += '\\';
    result += c;
  }
  return formatted("'{}'", result);
}

bool is_completed(const Option& option) {
  return option.spec().level != HelpLevel::kNone && option.name().starts_with('-');
}

bool takes_file(const Option& option) {
  const std::string& value = option.spec().value_name;
  return value == "FILE" || value == "PATH" || value == "FOLDER" || value == "SCHEMA" ||
         value == "BASE";
}

std::string option_names(const CommandOptions& command) {
  std::string names;
  for (const Option& option : command.options()) {
    if (!is_completed(option)) continue;
    for (const std::string& name : option.spec().names) {
      if (name.starts_with('-')) names += (names.empty() ? "" : " ") + name;
    }
  }
  return names;
}

// Commands that the program knows besides those with options.
constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kPlainCommands = {
    {{"help", "Print the help of a command."}, {"version", "Print the version."}}};

std::string command_names(CommandList commands) {
  std::string names;
  for (const CommandOptions* command : commands) names += command->name() + " ";
  for (const auto& [name, summary] : kPlainCommands) names += formatted("{} ", name);
  names.pop_back();
  return names;
}

/// All values that an option or a positional argument takes; empty where they are not a list.
std::string words_of(const Option& option, CommandList commands) {
  if (option.spec().value_name == "COMMAND") return command_names(commands);
  if (option.spec().value_name == "SHELL") return "bash zsh fish";
  return word_list(option.spec().choices);
}

/// The words that may stand behind a command, and whether a file may.
struct Behind {
  std::string words;
  bool takes_files = false;
};
Behind behind(const CommandOptions& command, CommandList commands) {
  Behind found;
  for (const Option& option : command.options()) {
    if (!option.spec().is_positional) continue;
    found.words = words_of(option, commands);
    found.takes_files = found.words.empty();
  }
  return found;
}

// A line of a case of bash: "run -n"|"run --n-predict") ... ;;
std::string bash_value_case(const CommandOptions& command, const Option& option,
                            CommandList commands) {
  std::string patterns;
  for (const std::string& name : option.spec().names) {
    if (!name.starts_with('-')) continue;
    patterns += formatted("{}\"{} {}\"", patterns.empty() ? "" : "|", command.name(), name);
  }
  const std::string words = words_of(option, commands);
  if (!words.empty()) return formatted("    {}) words=\"{}\" ;;\n", patterns, words);
  return formatted("    {}) {} ;;\n", patterns,
                   takes_file(option) ? "_moeflux_files; return" : "return");
}

std::string bash_script(CommandList commands) {
  const std::string names = command_names(commands);
  std::string values;
  std::string options;
  std::string arguments = formatted("    help) words=\"{}\" ;;\n    version) return ;;\n", names);
  for (const CommandOptions* command : commands) {
    options += formatted("      {}) words=\"{}\" ;;\n", command->name(), option_names(*command));
    for (const Option& option : command->options()) {
      if (!is_completed(option) || option.spec().is_flag()) continue;
      values += bash_value_case(*command, option, commands);
    }
    const Behind other = behind(*command, commands);
    if (!other.words.empty()) {
      arguments += formatted("    {}) words=\"{}\" ;;\n", command->name(), other.words);
    } else if (!other.takes_files) {
      arguments += formatted("    {}) return ;;\n", command->name());
    }
  }
  // Bash cuts --plan=auto in three words; COMPREPLY splits names of files at lines alone.
  return formatted(
      "# bash completion of moeflux\n"
      "_moeflux_files() {{\n"
      "  local IFS=$'\\n'\n"
      "  compopt -o filenames 2>/dev/null\n"
      "  COMPREPLY=($(compgen -f -- \"$current\"))\n"
      "}}\n"
      "_moeflux() {{\n"
      "  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} words=\n"
      "  COMPREPLY=()\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    COMPREPLY=($(compgen -W \"{}\" -- \"$current\"))\n"
      "    return\n"
      "  fi\n"
      "  if [ \"$current\" = = ]; then\n"
      "    current=\n"
      "  elif [ \"$previous\" = = ]; then\n"
      "    previous=${{COMP_WORDS[COMP_CWORD-2]}}\n"
      "  fi\n"
      "  case \"${{COMP_WORDS[1]}} $previous\" in\n{}"
      "  esac\n"
      "  if [ -z \"$words\" ] && [[ $current == -* ]]; then\n"
      "    case \"${{COMP_WORDS[1]}}\" in\n{}"
      "    esac\n"
      "  elif [ -z \"$words\" ]; then\n"
      "    case \"${{COMP_WORDS[1]}}\" in\n{}"
      "    esac\n"
      "  fi\n"
      "  if [ -n \"$words\" ]; then\n"
      "    COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
      "  else\n"
      "    _moeflux_files\n"
      "  fi\n"
      "}}\n"
      "complete -F _moeflux moeflux\n",
      names, values, options, arguments);
}

std::string zsh_option(const Option& option, CommandList commands) {
  std::string names;
  for (const std::string& name : option.spec().names) {
    if (!name.starts_with('-')) continue;
    names += (names.empty() ? "" : ",") + name;
    if (name.starts_with("--") && !option.spec().is_flag()) names += '=';
  }
  const bool has_several = names.find(',') != std::string::npos;
  std::string action;
  if (!option.spec().is_flag()) {
    // Between the colons is a message, which may have none itself.
    action = ":" + option.spec().value_name + ":";
    const std::string words = words_of(option, commands);
    if (!words.empty()) action += formatted("({})", words);
    if (takes_file(option)) action += "_files";
  }
  const std::string text = shell_quoted(option.spec().help, "[]:");
  return formatted("      {}'['{}']{}' \\\n", has_several ? "{" + names + "}" : names, text,
                   action);
}

std::string zsh_script(CommandList commands) {
  const std::string all = command_names(commands);
  std::string names;
  std::string options = formatted("    help) _arguments ':COMMAND:({})' ;;\n", all);
  for (const CommandOptions* command : commands) {
    names += formatted("    {}\n", shell_quoted(command->name() + ":" + command->summary()));
    options += formatted("    {}) _arguments \\\n", command->name());
    for (const Option& option : command->options()) {
      if (is_completed(option)) options += zsh_option(option, commands);
    }
    const Behind other = behind(*command, commands);
    const std::string last = !other.words.empty() ? formatted("':word:({})'", other.words)
                             : other.takes_files  ? std::string("'*:file:_files'")
                                                  : std::string();
    options += formatted("      {} ;;\n", last);
  }
  for (const auto& [name, summary] : kPlainCommands) {
    names += formatted("    {}\n", shell_quoted(formatted("{}:{}", name, summary)));
  }
  // As a file of $fpath it is the function's body, and else what defines it.
  return formatted(
      "#compdef moeflux\n"
      "_moeflux() {{\n"
      "  local -a commands\n"
      "  commands=(\n{}  )\n"
      "  if (( CURRENT == 2 )); then\n"
      "    _describe command commands\n"
      "    return\n"
      "  fi\n"
      "  shift words\n"
      "  (( CURRENT-- ))\n"
      "  case $words[1] in\n{}"
      "  esac\n"
      "}}\n"
      "if [ \"$funcstack[1]\" = _moeflux ]; then\n"
      "  _moeflux \"$@\"\n"
      "else\n"
      "  compdef _moeflux moeflux\n"
      "fi\n",
      names, options);
}

std::string fish_option(const CommandOptions& command, const Option& option, CommandList commands) {
  std::string line = formatted("complete -c moeflux -n '__moeflux_runs {}'", command.name());
  for (const std::string& name : option.spec().names) {
    if (name.starts_with("--")) {
      line += " -l " + name.substr(2);
    } else if (name.starts_with('-')) {
      line += (name.size() == 2 ? " -s " : " -o ") + name.substr(1);
    }
  }
  if (!option.spec().is_flag()) line += takes_file(option) ? " -r -F" : " -x";
  const std::string words = words_of(option, commands);
  if (!words.empty()) line += " -a " + shell_quoted(words);
  return formatted("{} -d {}\n", line, shell_quoted(option.spec().help));
}

std::string fish_script(CommandList commands) {
  // The command is the first word, whatever later ones are.
  std::string text =
      "# fish completion of moeflux\n"
      "function __moeflux_runs\n"
      "  set -l words (commandline -opc)\n"
      "  test \"$words[2]\" = \"$argv[1]\"\n"
      "end\n";
  const auto add_command = [&](std::string_view name, std::string_view summary) {
    text += formatted("complete -c moeflux -n '__moeflux_runs \"\"' -f -a {} -d {}\n", name,
                      shell_quoted(summary));
  };
  const auto add_words = [&](std::string_view name, std::string_view words) {
    text += formatted("complete -c moeflux -n '__moeflux_runs {}' -f{}\n", name,
                      words.empty() ? "" : " -a " + shell_quoted(words));
  };
  for (const CommandOptions* command : commands) add_command(command->name(), command->summary());
  for (const auto& [name, summary] : kPlainCommands) add_command(name, summary);
  add_words("help", command_names(commands));
  add_words("version", "");
  for (const CommandOptions* command : commands) {
    const Behind other = behind(*command, commands);
    if (!other.takes_files) add_words(command->name(), other.words);
    for (const Option& option : command->options()) {
      if (is_completed(option)) text += fish_option(*command, option, commands);
    }
  }
  return text;
}

// A line of roff: no dot or quote begins it, and dashes stay dashes.
std::string roff(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else {
      if (result.empty() && (c == '.' || c == '\'')) result += "\\&";
      result += c;
    }
  }
  return result;
}

std::string man_heading(std::string_view name, std::string_view version, std::string_view summary) {
  return formatted(".TH {} 1 \"\" \"moeflux {}\"\n.SH NAME\n{} \\- {}\n", roff(name), version,
                   roff(name), roff(summary));
}

std::string man_examples(const CommandOptions& command) {
  std::string text;
  for (const std::string& example : command.examples()) {
    text += formatted(".PP\n.EX\n{}\n.EE\n", roff(example));
  }
  return text.empty() ? text : ".SH EXAMPLES\n" + text;
}

}  // namespace

Result<std::string> completion_script(std::string_view shell, CommandList commands) {
  if (shell == "bash") return bash_script(commands);
  if (shell == "zsh") return zsh_script(commands);
  if (shell == "fish") return fish_script(commands);
  return make_error(ErrorCode::kInvalidArgument, "no shell '{}', expected bash, zsh or fish",
                    shell);
}

std::string man_page(const CommandOptions& command, std::string_view version) {
  std::string text = man_heading("moeflux-" + command.name(), version, command.summary());
  text += formatted(".SH SYNOPSIS\n{}\n", roff(usage_line(command)));
  std::string group;
  for (const Option& option : command.options()) {
    if (option.spec().level == HelpLevel::kNone) continue;
    if (option.spec().group != group) {
      group = option.spec().group;
      text += formatted(".SH \"{}\"\n", roff(group));
    }
    text += formatted(".TP\n.B {}\n{}\n", roff(option_heading(option.spec(), true)),
                      roff(option_text(option.spec())));
  }
  for (const HelpList& list : command.lists()) {
    text += formatted(".SH \"{}\"\n", roff(list.title));
    for (const auto& [heading, help] : list.rows) {
      text += formatted(".TP\n.B {}\n{}\n", roff(heading), roff(help));
    }
  }
  return text + man_examples(command) + ".SH \"SEE ALSO\"\n.BR moeflux (1)\n";
}

std::string man_page(std::string_view summary, std::string_view version, CommandList commands) {
  std::string text = man_heading("moeflux", version, summary);
  text += formatted(".SH SYNOPSIS\n{}\n.SH COMMANDS\n", roff("moeflux COMMAND [OPTIONS]"));
  for (const CommandOptions* command : commands) {
    text += formatted(".TP\n.BR moeflux\\-{} (1)\n{}\n", roff(command->name()),
                      roff(command->summary()));
  }
  return text +
         ".SH ENVIRONMENT\n.TP\n.B MOEFLUX_<OPTION>\nThe value of an option that the command line "
         "does not give: MOEFLUX_CTX_SIZE for \\-\\-ctx\\-size.\n.TP\n.B NO_COLOR\nNo colour on "
         "terminals.\n"
         ".SH FILES\n.TP\n.I ~/.config/moeflux/config.toml\nSettings, as key = value, for all "
         "commands or below the [name] of one. $XDG_CONFIG_HOME may name another folder.\n"
         ".SH \"EXIT STATUS\"\n0: success. 1: failure. 2: a mistake in the command line. 3: a "
         "document that was cut before it was whole. 130: an interrupt.\n";
}

}  // namespace moeflux
