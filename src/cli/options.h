// The options of a command as data: their names, what they set and what help says of them. Knows
// neither how a command line, a file or an environment is read nor how help looks.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace moeflux {

/// The help that shows an option: --help, --help-all, or none.
enum class HelpLevel : uint8_t { kShort, kAll, kNone };

/// Where an option's value comes from; a later one wins.
enum class OptionOrigin : uint8_t { kDefault, kFile, kVariable, kCommandLine };

/// How an option is written, and what help and reports say of it.
struct OptionSpec {
  std::vector<std::string> names;  // as they are typed; a positional argument's has no dashes
  std::string value_name;          // as help shows it
  std::string help;
  std::string default_text;  // empty: not shown
  std::vector<std::string> choices;
  std::string group;
  HelpLevel level = HelpLevel::kShort;
  bool is_positional = false;
  bool takes_all = false;  // a positional argument: all those that nobody else takes
  bool is_secret = false;
  bool is_list = false;         // values have commas between
  bool takes_last = false;      // of several values the last counts
  bool is_configurable = true;  // a file or a variable may set it

  bool is_flag() const { return value_name.empty(); }
};

/// One option, flag or positional argument. Its setters return it, so that they can be chained.
class Option {
 public:
  /// Takes all values that were given, in order; a flag's is "true" or "false".
  using Setter = std::function<Status(std::span<const std::string> values)>;

  /// `names` as in "-m,--model"; without dashes a positional argument. An empty `value_name` makes
  /// a flag.
  Option(std::string_view names, std::string value_name, std::string help, Setter set);

  Option& value(std::string name);  // as help shows it: FILE, SIZE
  Option& choices(std::vector<std::string> names);
  Option& range(double least, double most);
  /// Refuses "": an unset shell variable must not mean the default.
  Option& not_empty();
  /// Takes all positional arguments that no other does.
  Option& repeatable();
  /// One that is given again goes on with what was given before, behind `between`.
  Option& joined(std::string_view between);
  /// The last of several values counts, and a note says so.
  Option& takes_last();
  /// A further test: the text says what is wrong, or is empty.
  Option& check(std::function<std::string(const std::string& value)> problem);
  Option& required();
  Option& required_unless(const Option& other);
  Option& excludes(const Option& other);
  /// In place of the value that the variable had when the option was added; empty: not shown.
  Option& default_text(std::string text);
  Option& in_help_all();
  Option& hidden();
  /// Never printed by `moeflux config`.
  Option& secret();
  /// Meaningless outside a command line: neither a file nor a variable sets it.
  Option& command_line_only();

  const OptionSpec& spec() const { return spec_; }
  /// "--model"; the positional's or only name where there is no long one.
  const std::string& name() const;

  bool given() const { return origin_ != OptionOrigin::kDefault; }
  OptionOrigin origin() const { return origin_; }
  const std::vector<std::string>& values() const { return values_; }
  /// Adds a value, in place of those from an origin that counts less. `place` is for messages: a
  /// file's line or a variable, in place of the option's name.
  void give(std::string value, OptionOrigin origin, std::string place = {});
  /// Forgets the values of this origin.
  void clear(OptionOrigin origin);
  const std::string& place() const { return place_; }
  /// Checks the values and hands them on. Fails with kInvalidArgument, naming the option or the
  /// place.
  Status apply() const;
  /// Fails where it or another is missing or one too many.
  Status check_presence() const;

 private:
  friend class CommandOptions;
  std::string problem_of(const std::string& value) const;

  OptionSpec spec_;
  Setter set_;
  std::vector<std::function<std::string(const std::string&)>> checks_;
  std::vector<const Option*> excluded_;
  const Option* instead_ = nullptr;
  bool is_required_ = false;
  std::vector<std::string> values_;
  std::string place_;
  OptionOrigin origin_ = OptionOrigin::kDefault;
};

/// A list that --help-all shows behind the options.
struct HelpList {
  std::string title;
  std::string option;  // one whose value "help" prints the list
  std::vector<std::pair<std::string, std::string>> rows;
};

/// The options of one command. References to them stay valid. An added option borrows its variable.
class CommandOptions {
 public:
  CommandOptions(std::string name, std::string summary);
  CommandOptions(CommandOptions&&) = default;  // a copy's setters would be the first one's

  /// The heading in help of all options that follow.
  void group(std::string title);
  /// "moeflux run -m model.gguf -p hello", under the examples of help.
  void example(std::string line);
  void list(HelpList list);

  Option& add(std::string_view names, bool& flag, std::string help);
  Option& add(std::string_view names, int& number, std::string help);
  Option& add(std::string_view names, int64_t& number, std::string help);
  Option& add(std::string_view names, uint64_t& number, std::string help);
  Option& add(std::string_view names, double& number, std::string help);
  Option& add(std::string_view names, std::optional<double>& number, std::string help);
  Option& add(std::string_view names, std::string& text, std::string help);
  Option& add(std::string_view names, std::optional<std::string>& text, std::string help);
  /// One value each time it is given.
  Option& add(std::string_view names, std::vector<std::string>& texts, std::string help);
  /// Values with commas between, given once or several times.
  Option& add_list(std::string_view names, std::vector<std::string>& texts, std::string help);
  Option& add_list(std::string_view names, std::vector<int64_t>& numbers, std::string help);
  /// A number of bytes like 12G, kept as it was written. Refused where it cannot be meant.
  Option& add_size(std::string_view names, std::string& size, std::string help);
  /// The same, several with commas between.
  Option& add_sizes(std::string_view names, std::vector<std::string>& sizes, std::string help);
  /// Whatever `set` makes of the values.
  Option& add_call(std::string_view names, std::string value_name, Option::Setter set,
                   std::string help);
  Option& add_flag_call(std::string_view names, std::function<Status(bool)> set, std::string help);

  const std::string& name() const { return name_; }
  const std::string& summary() const { return summary_; }
  const std::vector<std::string>& examples() const { return examples_; }
  const std::vector<HelpList>& lists() const { return lists_; }
  std::deque<Option>& options() { return options_; }
  const std::deque<Option>& options() const { return options_; }
  /// By a name with its dashes; null without one.
  Option* find(std::string_view name);
  const Option* find(std::string_view name) const;
  /// All names with dashes that help shows.
  std::vector<std::string_view> known_names() const;

 private:
  template <typename T>
  Option& add_number(std::string_view names, T& number, std::string help);

  std::string name_;
  std::string summary_;
  std::string group_ = "Options";
  std::vector<std::string> examples_;
  std::vector<HelpList> lists_;
  std::deque<Option> options_;
};

/// Numbers as a command line has them: all of the text, nothing that does not fit.
Status parse_number(const std::string& text, int& into);
Status parse_number(const std::string& text, int64_t& into);
Status parse_number(const std::string& text, uint64_t& into);
Status parse_number(const std::string& text, float& into);
Status parse_number(const std::string& text, double& into);
Result<bool> parse_switch(const std::string& text);

/// Empty, or what is wrong with "8" where memory is meant: fewer bytes than anything takes, and no
/// unit.
std::string size_problem(const std::string& text);

}  // namespace moeflux
