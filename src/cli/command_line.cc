#include "cli/command_line.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/format.h"
#include "base/nearest.h"
#include "cli/foreign_options.h"

namespace moeflux {
namespace {

/// Goes through the arguments once.
class ArgumentReader {
 public:
  ArgumentReader(CommandOptions& command, std::span<const std::string> arguments)
      : command_(command), arguments_(arguments) {}

  Result<ParsedArguments> read() {
    while (at_ < arguments_.size()) {
      const std::string& argument = arguments_[at_++];
      // Help is what is wanted, whatever follows.
      if (!only_positional_ && is_help(argument)) {
        command_.find(argument)->give("true", OptionOrigin::kCommandLine);
        return std::move(parsed_);
      }
      if (argument == "--" && !only_positional_) {
        only_positional_ = true;
      } else if (only_positional_ || argument.size() < 2 || argument.front() != '-') {
        MF_RETURN_IF_ERROR(read_positional(argument));
      } else {
        MF_RETURN_IF_ERROR(read_option(argument));
      }
    }
    return std::move(parsed_);
  }

 private:
  bool is_help(const std::string& argument) const {
    if (argument != "-h" && argument != "--help" && argument != "--help-all") return false;
    return command_.find(argument) != nullptr;
  }

  Status read_option(const std::string& argument) {
    const size_t equals = argument.starts_with("--") ? argument.find('=') : std::string::npos;
    const std::string name = argument.substr(0, equals);
    if (Option* option = command_.find(name)) {
      if (equals != std::string::npos) return give(*option, argument.substr(equals + 1));
      if (option->spec().is_flag()) return give(*option, "true");
      return give_next(*option);
    }
    if (const ForeignOption* foreign = find_foreign_option(name)) {
      return read_foreign(*foreign, name, equals != std::string::npos);
    }
    if (!argument.starts_with("--")) {
      // "-model", "-temp": a long name short of a dash, not -m with a value.
      if (command_.find("-" + name) != nullptr) return unknown(name);
      if (find_foreign_option("-" + name) != nullptr) return unknown(name);
      if (read_short_names(argument)) return {};
    }
    return unknown(name);
  }

  // "-n8", "-qn 8": false if they are not all of the command's, so that "-hf" is not -h.
  bool read_short_names(const std::string& argument) {
    std::vector<std::pair<Option*, std::string>> found;
    for (size_t i = 1; i < argument.size(); ++i) {
      Option* option = command_.find(std::string("-") + argument[i]);
      if (option == nullptr) return false;
      if (!option->spec().is_flag()) {
        std::string value = argument.substr(i + 1);
        if (value.empty()) {
          if (at_ == arguments_.size()) return false;
          value = arguments_[at_++];
        }
        found.emplace_back(option, std::move(value));
        break;
      }
      found.emplace_back(option, "true");
    }
    for (auto& [option, value] : found) {
      note_again(*option, value);
      option->give(value, OptionOrigin::kCommandLine);
    }
    return true;
  }

  void note_again(const Option& option, const std::string& value) {
    if (option.origin() != OptionOrigin::kCommandLine || !option.spec().takes_last) return;
    const std::string& before = option.values().back();
    if (before == value) return;
    parsed_.notes.push_back(
        formatted("{} is given twice: {} counts, {} does not", option.name(), value, before));
  }

  Status give(Option& option, std::string value) {
    note_again(option, value);
    option.give(std::move(value), OptionOrigin::kCommandLine);
    return {};
  }

  Status give_next(Option& option) {
    if (at_ == arguments_.size()) {
      return make_error(ErrorCode::kInvalidArgument, "{} needs a value ({})", arguments_[at_ - 1],
                        option.spec().value_name);
    }
    return give(option, arguments_[at_++]);
  }

  Status read_positional(const std::string& value) {
    for (Option& option : command_.options()) {
      const bool is_taken =
          option.origin() == OptionOrigin::kCommandLine && !option.spec().takes_all;
      if (!option.spec().is_positional || is_taken) continue;
      return give(option, value);
    }
    return make_error(ErrorCode::kInvalidArgument, "unexpected argument '{}'", value);
  }

  Status read_foreign(const ForeignOption& foreign, const std::string& name, bool has_value) {
    if (foreign.effect == ForeignEffect::kRefused) {
      return make_error(ErrorCode::kInvalidArgument, "no option {}: {}", name, foreign.text);
    }
    parsed_.notes.push_back(formatted("{} does nothing: {}", name, foreign.text));
    if (has_value || foreign.value == ForeignValue::kNone || at_ == arguments_.size()) return {};
    const std::string& next = arguments_[at_];
    constexpr std::array<std::string_view, 5> kSwitches = {"on", "off", "auto", "0", "1"};
    const bool is_switch = std::ranges::find(kSwitches, next) != kSwitches.end();
    if (foreign.value == ForeignValue::kOne || is_switch) ++at_;
    return {};
  }

  Status unknown(const std::string& name) const {
    std::vector<std::string_view> names = command_.known_names();
    std::string wanted = name;
    if (!wanted.starts_with("--")) wanted = "-" + wanted;
    return make_error(ErrorCode::kInvalidArgument, "unknown option {}{}", name,
                      did_you_mean(wanted, names));
  }

  CommandOptions& command_;
  const std::span<const std::string> arguments_;
  size_t at_ = 0;
  bool only_positional_ = false;
  ParsedArguments parsed_;
};

}  // namespace

Result<ParsedArguments> parse_arguments(CommandOptions& command,
                                        std::span<const std::string> arguments) {
  return ArgumentReader(command, arguments).read();
}

Status apply_options(const CommandOptions& command) {
  for (const Option& option : command.options()) MF_RETURN_IF_ERROR(option.check_presence());
  for (const Option& option : command.options()) {
    MF_RETURN_IF_ERROR(option.apply());
  }
  return {};
}

}  // namespace moeflux
