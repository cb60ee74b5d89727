// How models write reasoning and tool calls: one row of data per format. Knows neither models nor
// how a row is read (output_parser.h); docs/ADDING_AN_OUTPUT_FORMAT.md explains the fields by
// example.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "output/tool_types.h"

namespace moeflux {

enum class ArgumentSyntax {
  kJson,      // {"key": value}, perhaps within a fence
  kTagged,    // one tag per parameter, a JSON object at once where the first byte says so
  kElements,  // the same, a value within two tags of its key's name, and elements in elements
  kCompact,   // ValueDialect::kCompact
};

enum class CallIdRule {
  kLong,      // call_ and 24 letters or digits
  kShort,     // 9 letters or digits
  kFromName,  // the id stands for the name: functions.NAME:INDEX
};

/// Every list holds alternatives; empty ones stand for what the format does not have. Text within a
/// format is literal. White space is skipped between all parts of a call.
struct OutputFormat {
  std::string name;
  /// A rendered call, or the template's source, that has all of one of these lists is of this
  /// format.
  std::vector<std::vector<std::string>> signs;

  std::vector<std::string> reasoning_open;
  std::vector<std::string> reasoning_close;
  /// Left out of content wherever they stand in it.
  std::vector<std::string> dropped;

  /// Around several calls. The opener may be missing where calls have one of their own.
  std::vector<std::string> section_open;
  std::vector<std::string> section_close;
  /// Around one call. Without an opener calls follow their section's.
  std::vector<std::string> call_open;
  std::vector<std::string> call_close;
  /// Openers that count only where content begins.
  std::vector<std::string> bare_open;

  /// Forms of a call behind an opener: a name and its arguments, {"name", "arguments"} or a list of
  /// such objects, [name(key=value)].
  bool takes_named = false;
  bool takes_json = false;
  bool takes_python = false;
  /// Forms of calls without any opener, if they are all the content there is.
  bool bare_json = false;
  bool bare_python = false;

  std::vector<std::string> name_prefix;  // before a name; may be missing
  bool name_in_tag = false;              // quoted or not, up to > or, if there is one, name_close
  std::vector<std::string> name_close;   // behind a name; must be there
  std::string count_attribute;           // of tags that count calls from 1
  std::vector<std::string> id_open;      // an id stands between this and name_close
  std::vector<std::string> id_close;     // an id may stand before the name, up to this

  ArgumentSyntax arguments = ArgumentSyntax::kJson;
  std::vector<std::string> fence_open;
  std::vector<std::string> fence_close;
  std::vector<std::string> key_open;
  std::vector<std::string> key_close;    // none: > of the tag that the key is in, quoted or not
  std::vector<std::string> value_open;   // none, but key_close: that ends the key's tag
  std::vector<std::string> value_close;  // of elements: what stands before the key
  std::vector<std::string> value_end;    // ends a value too, but belongs to what follows
  bool value_on_lines = false;           // one newline behind the key is not the value's
  TypeSet untyped = kTypeString;         // of parameters that no tool describes

  std::vector<std::string> name_keys = {"name"};
  std::vector<std::string> argument_keys = {"arguments", "parameters"};
  CallIdRule ids = CallIdRule::kLong;

  /// Messages with headers: <start>role<channel>word to=recipient<message>text<end>. Without a
  /// channel, reasoning_open ends the header of a message of reasoning, and an opener of calls may
  /// end one, too.
  std::vector<std::string> channel;
  std::vector<std::string> message;
  std::vector<std::string> start;
  std::vector<std::string> message_end;
  std::string reasoning_channel;
  bool addressed = false;  // headers may have a recipient, to=

  bool has_messages() const { return !message.empty(); }
};

/// The formats we know, most particular signs first; the last has no calls and fits everything.
const std::vector<OutputFormat>& output_formats();

/// By name; null where there is none.
const OutputFormat* find_output_format(std::string_view name);

/// By the markers in a rendered call, or in the source of a template.
const OutputFormat& choose_output_format(std::string_view rendered);

}  // namespace moeflux
