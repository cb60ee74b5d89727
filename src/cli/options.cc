#include "cli/options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "base/format.h"
#include "base/units.h"

namespace moeflux {
namespace {

/// Adds what stands between the commas of a text.
void add_parts(std::string_view text, std::vector<std::string>& parts) {
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
}

std::vector<std::string> split_values(std::span<const std::string> values) {
  std::vector<std::string> result;
  for (const std::string& value : values) add_parts(value, result);
  return result;
}

template <typename T>
Status parse_integer(const std::string& text, T& into) {
  T number{};
  const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(begin, end, number);
  if (error == std::errc::result_out_of_range) {
    return make_error(ErrorCode::kInvalidArgument, "{} is out of range", text);
  }
  if (error != std::errc() || stop != end) {
    return make_error(ErrorCode::kInvalidArgument, "'{}' is not a whole number", text);
  }
  into = number;
  return {};
}

template <typename T>
Status parse_real(const std::string& text, T& into) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (text.empty() || end != text.c_str() + text.size() || text.front() == ' ') {
    return make_error(ErrorCode::kInvalidArgument, "'{}' is not a number", text);
  }
  into = static_cast<T>(number);
  return {};
}

std::string text_of(double number) {
  // Whole numbers in full, not as 1e+09; a double has the digits of those below 2^53.
  constexpr double kExactMax = 9007199254740992.0;
  if (number == std::trunc(number) && std::abs(number) < kExactMax) {
    return formatted("{}", static_cast<int64_t>(number));
  }
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), number).ptr;
  return {text.data(), end};
}

template <typename T>
std::string comma_list(const std::vector<T>& values) {
  std::string text;
  for (const T& value : values) text += formatted("{}{}", text.empty() ? "" : ",", value);
  return text;
}

Status set_flag(std::span<const std::string> values, bool& flag) {
  MF_ASSIGN_OR_RETURN(flag, parse_switch(values.back()));
  return {};
}

}  // namespace

Status parse_number(const std::string& text, int& into) { return parse_integer(text, into); }
Status parse_number(const std::string& text, int64_t& into) { return parse_integer(text, into); }
Status parse_number(const std::string& text, uint64_t& into) { return parse_integer(text, into); }
Status parse_number(const std::string& text, float& into) { return parse_real(text, into); }
Status parse_number(const std::string& text, double& into) { return parse_real(text, into); }

Result<bool> parse_switch(const std::string& text) {
  if (text == "true" || text == "on" || text == "1" || text == "yes") return true;
  if (text == "false" || text == "off" || text == "0" || text == "no") return false;
  return make_error(ErrorCode::kInvalidArgument, "'{}' is neither true nor false", text);
}

std::string size_problem(const std::string& text) {
  const Result<uint64_t> bytes = parse_bytes(text);
  if (!bytes.ok()) return bytes.error().message();
  const bool has_unit = text.find_first_not_of("0123456789.") != std::string::npos;
  if (has_unit || *bytes == 0 || *bytes >= kMiB) return {};
  return formatted("{} without a unit is {} bytes; {}G and {}GiB are gibibytes", text, *bytes, text,
                   text);
}

Option::Option(std::string_view names, std::string value_name, std::string help, Setter set)
    : spec_{.value_name = std::move(value_name), .help = std::move(help)}, set_(std::move(set)) {
  add_parts(names, spec_.names);
  const auto is_bare = [](const std::string& name) { return !name.starts_with('-'); };
  spec_.is_positional = std::ranges::any_of(spec_.names, is_bare);
  spec_.is_configurable = !spec_.is_positional;
}

Option& Option::value(std::string name) {
  spec_.value_name = std::move(name);
  return *this;
}
Option& Option::choices(std::vector<std::string> names) {
  spec_.choices = std::move(names);
  return *this;
}
Option& Option::takes_last() {
  spec_.takes_last = true;
  return *this;
}
Option& Option::joined(std::string_view between) {
  spec_.takes_last = false;
  set_ = [set = std::move(set_), between](std::span<const std::string> values) {
    std::string all;
    for (const std::string& value : values) {
      if (!all.empty()) all += between;
      all += value;
    }
    return set(std::span(&all, 1));
  };
  return *this;
}
Option& Option::check(std::function<std::string(const std::string& value)> problem) {
  checks_.push_back(std::move(problem));
  return *this;
}
Option& Option::range(double least, double most) {
  return check([least, most](const std::string& value) {
    const double number = std::strtod(value.c_str(), nullptr);
    if (number >= least && number <= most) return std::string();
    return formatted("{} is not between {} and {}", value, text_of(least), text_of(most));
  });
}
Option& Option::repeatable() {
  spec_.takes_all = true;
  return *this;
}

Option& Option::not_empty() {
  return check([](const std::string& text) { return std::string(text.empty() ? "is empty" : ""); });
}
Option& Option::required() {
  is_required_ = true;
  return *this;
}
Option& Option::required_unless(const Option& other) {
  instead_ = &other;
  return required();
}
Option& Option::excludes(const Option& other) {
  excluded_.push_back(&other);
  return *this;
}
Option& Option::default_text(std::string text) {
  spec_.default_text = std::move(text);
  return *this;
}
Option& Option::in_help_all() {
  spec_.level = HelpLevel::kAll;
  return *this;
}
Option& Option::hidden() {
  spec_.level = HelpLevel::kNone;
  return *this;
}
Option& Option::secret() {
  spec_.is_secret = true;
  return *this;
}
Option& Option::command_line_only() {
  spec_.is_configurable = false;
  return *this;
}

const std::string& Option::name() const {
  const auto found =
      std::ranges::find_if(spec_.names, [](const std::string& n) { return n.starts_with("--"); });
  return found != spec_.names.end() ? *found : spec_.names.front();
}

void Option::give(std::string value, OptionOrigin origin, std::string place) {
  if (origin < origin_) return;
  if (origin > origin_) values_.clear();
  origin_ = origin;
  place_ = std::move(place);
  values_.push_back(std::move(value));
}

void Option::clear(OptionOrigin origin) {
  if (origin_ != origin) return;
  values_.clear();
  origin_ = OptionOrigin::kDefault;
}

std::string Option::problem_of(const std::string& value) const {
  for (const auto& check : checks_) {
    if (std::string problem = check(value); !problem.empty()) return problem;
  }
  const std::vector<std::string>& choices = spec_.choices;
  if (choices.empty() || std::ranges::find(choices, value) != choices.end()) return {};
  std::string names;
  for (size_t i = 0; i < choices.size(); ++i) {
    names += (i == 0 ? "" : i + 1 == choices.size() ? " or " : ", ") + choices[i];
  }
  return formatted("'{}' is not {}", value, names);
}

Status Option::apply() const {
  if (!given()) return {};
  const std::string& called = place_.empty() ? name() : place_;
  const std::vector<std::string> split = spec_.is_list ? split_values(values_) : values_;
  Status set = set_(split);  // first, as a range says little of what is not a number
  if (!set.ok()) return set.error().with_context(called);
  for (const std::string& value : split) {
    if (const std::string problem = problem_of(value); !problem.empty()) {
      return make_error(ErrorCode::kInvalidArgument, "{}: {}", called, problem);
    }
  }
  return {};
}

Status Option::check_presence() const {
  if (is_required_ && !given() && (instead_ == nullptr || !instead_->given())) {
    return make_error(ErrorCode::kInvalidArgument, "{} is required", name());
  }
  if (origin_ != OptionOrigin::kCommandLine) return {};
  for (const Option* other : excluded_) {
    if (other->origin_ != OptionOrigin::kCommandLine) continue;
    return make_error(ErrorCode::kInvalidArgument, "{} excludes {}", name(), other->name());
  }
  return {};
}

CommandOptions::CommandOptions(std::string name, std::string summary)
    : name_(std::move(name)), summary_(std::move(summary)) {}

void CommandOptions::group(std::string title) { group_ = std::move(title); }
void CommandOptions::example(std::string line) { examples_.push_back(std::move(line)); }
void CommandOptions::list(HelpList list) { lists_.push_back(std::move(list)); }

Option& CommandOptions::add_call(std::string_view names, std::string value_name, Option::Setter set,
                                 std::string help) {
  options_.emplace_back(names, std::move(value_name), std::move(help), std::move(set));
  options_.back().spec_.group = group_;
  return options_.back();
}

template <typename T>
Option& CommandOptions::add_number(std::string_view names, T& number, std::string help) {
  const auto set = [&number](std::span<const std::string> values) {
    return parse_number(values.back(), number);
  };
  return add_call(names, "N", set, std::move(help))
      .takes_last()
      .default_text(text_of(double(number)));
}
Option& CommandOptions::add(std::string_view names, int& number, std::string help) {
  return add_number(names, number, std::move(help));
}
Option& CommandOptions::add(std::string_view names, int64_t& number, std::string help) {
  return add_number(names, number, std::move(help));
}
Option& CommandOptions::add(std::string_view names, uint64_t& number, std::string help) {
  return add_number(names, number, std::move(help));
}
Option& CommandOptions::add(std::string_view names, double& number, std::string help) {
  return add_number(names, number, std::move(help));
}

Option& CommandOptions::add(std::string_view names, std::optional<double>& number,
                            std::string help) {
  const auto set = [&number](std::span<const std::string> values) {
    return parse_number(values.back(), number.emplace());
  };
  return add_call(names, "N", set, std::move(help)).takes_last();
}

Option& CommandOptions::add(std::string_view names, bool& flag, std::string help) {
  const auto set = [&flag](std::span<const std::string> values) { return set_flag(values, flag); };
  return add_call(names, "", set, std::move(help));
}

Option& CommandOptions::add_flag_call(std::string_view names, std::function<Status(bool)> set,
                                      std::string help) {
  return add_call(
      names, "",
      [set = std::move(set)](std::span<const std::string> values) -> Status {
        bool on = false;
        MF_RETURN_IF_ERROR(set_flag(values, on));
        return set(on);
      },
      std::move(help));
}

Option& CommandOptions::add(std::string_view names, std::string& text, std::string help) {
  const auto set = [&text](std::span<const std::string> values) {
    text = values.back();
    return Status();
  };
  return add_call(names, "TEXT", set, std::move(help)).takes_last().default_text(text);
}

Option& CommandOptions::add(std::string_view names, std::optional<std::string>& text,
                            std::string help) {
  const auto set = [&text](std::span<const std::string> values) {
    text = values.back();
    return Status();
  };
  return add_call(names, "TEXT", set, std::move(help)).takes_last();
}

Option& CommandOptions::add(std::string_view names, std::vector<std::string>& texts,
                            std::string help) {
  const auto set = [&texts](std::span<const std::string> values) {
    texts.assign(values.begin(), values.end());
    return Status();
  };
  return add_call(names, "TEXT", set, std::move(help)).default_text(comma_list(texts));
}

Option& CommandOptions::add_list(std::string_view names, std::vector<std::string>& texts,
                                 std::string help) {
  Option& option = add(names, texts, std::move(help)).value("LIST");
  option.spec_.is_list = true;
  return option;
}

Option& CommandOptions::add_list(std::string_view names, std::vector<int64_t>& numbers,
                                 std::string help) {
  const auto set = [&numbers](std::span<const std::string> values) -> Status {
    numbers.clear();
    for (const std::string& value : values) {
      MF_RETURN_IF_ERROR(parse_number(value, numbers.emplace_back()));
    }
    return {};
  };
  Option& option = add_call(names, "LIST", set, std::move(help)).default_text(comma_list(numbers));
  option.spec_.is_list = true;
  return option;
}

Option& CommandOptions::add_size(std::string_view names, std::string& size, std::string help) {
  return add(names, size, std::move(help)).value("SIZE").not_empty().check(size_problem);
}

Option& CommandOptions::add_sizes(std::string_view names, std::vector<std::string>& sizes,
                                  std::string help) {
  return add_list(names, sizes, std::move(help)).value("SIZES").not_empty().check(size_problem);
}

const Option* CommandOptions::find(std::string_view name) const {
  for (const Option& option : options_) {
    if (std::ranges::find(option.spec().names, name) != option.spec().names.end()) return &option;
  }
  return nullptr;
}
Option* CommandOptions::find(std::string_view name) {
  return const_cast<Option*>(std::as_const(*this).find(name));
}

std::vector<std::string_view> CommandOptions::known_names() const {
  std::vector<std::string_view> names;
  for (const Option& option : options_) {
    if (option.spec().level == HelpLevel::kNone) continue;
    for (const std::string& name : option.spec().names) {
      if (name.starts_with("--")) names.emplace_back(name);
    }
  }
  return names;
}

}  // namespace moeflux
