// The machine behind OutputParser. Each step looks at the first bytes that are not yet consumed and
// either consumes some, changes the state, or waits for more; so how the text was cut cannot
// matter.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "output/output_format.h"
#include "output/output_parser.h"
#include "output/value_reader.h"

namespace moeflux {

class OutputMachine {
 public:
  OutputMachine(const OutputFormat& format, const OutputParserOptions& options);

  void push(std::string_view text, TokenId token, std::vector<OutputEvent>* out);
  void finish(std::vector<OutputEvent>* out, OutputEnd end);
  int complete_calls() const { return complete_calls_; }
  int misfits() const { return misfits_; }
  bool in_reasoning() const { return in_reasoning_; }

 private:
  enum Role : uint32_t {
    kReasoningOpen = 1 << 0,
    kReasoningClose = 1 << 1,
    kDropped = 1 << 2,
    kSectionOpen = 1 << 3,
    kSectionClose = 1 << 4,
    kCallOpen = 1 << 5,
    kCallClose = 1 << 6,
    kBareOpen = 1 << 7,
    kNamePrefix = 1 << 8,
    kNameClose = 1 << 9,
    kIdOpen = 1 << 10,
    kFenceOpen = 1 << 11,
    kFenceClose = 1 << 12,
    kKeyOpen = 1 << 13,
    kKeyClose = 1 << 14,
    kValueOpen = 1 << 15,
    kValueClose = 1 << 16,
    kValueEnd = 1 << 17,
    kChannel = 1 << 18,
    kMessage = 1 << 19,
    kStart = 1 << 20,
    kMessageEnd = 1 << 21,
    kRecipient = 1 << 22,
    kIdClose = 1 << 23,
  };
  struct Marker {
    std::string text;
    uint32_t role;
    TokenId token;  // -1: found in the text
  };
  struct Found {
    const Marker* marker = nullptr;
    bool wait = false;
    bool is_cut = false;  // the text ends within a marker
    bool is(uint32_t roles) const { return marker != nullptr && (marker->role & roles) != 0; }
  };

  enum class State {
    kText,
    kSection,         // before a call, within a section
    kBody,            // behind a call's opener
    kName,            // within a name
    kNameClose,       // behind it
    kCallId,          // within an id
    kArguments,       // before the first argument, or between two
    kWholeArguments,  // within all of them, as one value
    kKey,
    kValueOpen,
    kValue,
    kValueEnd,    // behind what may close a value
    kElementEnd,  // within the tag that closes a value
    kClosing,     // behind a call's arguments
    kObject,      // within {"name", "arguments"}
    kList,        // between the calls of a list
    kPython,      // within name(key=value)
    kBareEnd,     // behind calls that must be all there is
    kChannelStart,
    kHeader,
  };
  enum class Phase { kName, kFirstKey, kKey, kInKey, kColon, kBeforeValue, kInValue, kNext };

  // The input (output_machine.cc).
  void bind(const OutputFormat& format, const MarkerTokens* tokens);
  void add_markers(const std::vector<std::string>& texts, Role role, const MarkerTokens* tokens);
  void run();
  bool step();
  char peek() const { return input_[at_]; }
  Found match(uint32_t roles) const;
  TokenId token_here() const;
  void eat(size_t bytes);
  void eat(const Marker& marker) { eat(marker.text.size()); }
  void follow_prompt(std::string_view tail);

  // Events and attempts (output_events.cc).
  OutputEvent& add(OutputKind kind, uint64_t end);
  void emit_text(std::string_view text);
  void begin_attempt();
  void drop_held();
  void begin_call();
  void arguments(std::string_view json);
  void begin_argument(std::string_view key);
  void end_call(bool complete);
  void misfit();
  void leave_bare();

  // Text, sections, and what follows a call (output_text.cc).
  bool step_text();
  uint32_t text_roles() const;
  void meet_marker(const Marker& marker);
  bool begin_bare();
  bool drop_cut_marker(const Found& found);
  bool step_section();
  bool step_closing();
  bool step_bare_end();
  void after_call();

  // Calls by name with arguments behind it (output_calls.cc).
  bool step_body();
  bool step_name();
  void take_name();
  bool step_name_close();
  bool step_call_id();
  bool step_arguments();
  bool step_tagged_arguments();
  void begin_whole_arguments();
  bool step_whole_arguments();
  ValueReader::Outcome stream_value();
  bool message_ends_here() const;
  bool step_key();
  bool step_value_open();
  void begin_tagged_value();
  void begin_value(std::string_view key, std::string_view is_string);
  bool step_value();
  void add_to_value(std::string_view text);
  bool step_value_end();
  bool step_element_end();
  void end_value();
  void end_tagged();

  // Objects, lists and Python (output_objects.cc).
  void begin_object();
  bool step_object();
  bool step_object_key();
  bool step_object_value();
  void begin_object_value();
  void end_object_value();
  void end_object();
  void take_object_arguments();
  bool step_list();
  bool step_python();
  bool step_python_key();
  bool step_python_value();

  // Messages with headers (output_channels.cc).
  bool step_channel_start();
  bool step_header();
  void end_header();
  void begin_message(bool reasons);

  const OutputFormat* format_;
  const ToolTypes* tools_;
  uint64_t id_seed_;
  std::vector<Marker> markers_;
  std::array<bool, 256> begins_marker_{};

  std::string input_;  // consumed up to at_
  size_t at_ = 0;
  uint64_t consumed_ = 0;
  std::vector<std::pair<uint64_t, TokenId>> tokens_;  // where markers' tokens begin
  bool at_end_ = false;
  bool is_cut_ = false;  // there, by a limit

  std::vector<OutputEvent>* out_ = nullptr;
  size_t out_begin_ = 0;
  uint64_t reported_ = 0;
  std::vector<OutputEvent> early_;     // of a call that the prompt began
  std::vector<OutputEvent> deferred_;  // of calls that must be all there is

  State state_ = State::kText;
  bool in_reasoning_ = false;
  bool reasoning_seen_ = false;
  bool content_seen_ = false;
  bool drop_leading_ = false;  // white space here belongs to the marker before
  bool after_call_ = false;    // nothing but white space since
  bool is_marked_ = false;     // the attempt began with a marker of calls
  bool following_prompt_ = false;

  /// Consumed but not told: white space in text, or all of an attempt that may be no call.
  std::string held_;
  bool holding_ = false;  // consumed bytes go there
  bool bare_ = false;
  std::string bare_text_;
  uint64_t bare_begin_ = 0;
  bool in_section_ = false;
  bool section_has_calls_ = false;

  int calls_ = 0;
  int complete_calls_ = 0;
  int misfits_ = 0;
  bool begun_ = false;
  bool arguments_whole_ = false;
  std::string name_;
  std::string id_;
  std::string key_;
  std::string raw_;  // a value, key or header as it is written
  TypeSet types_ = kTypeString;
  bool as_json_ = false;
  bool first_key_ = true;
  bool skip_newline_ = false;
  int element_depth_ = 0;    // of elements that are open within a value
  std::string element_end_;  // the rest of the closing tag
  std::string closer_;       // a possible closer of a value, and white space behind it
  ValueReader reader_;
  Phase phase_ = Phase::kName;
  int object_depth_ = 0;
  bool streaming_ = false;
  bool in_list_ = false;
  bool list_has_items_ = false;
  std::string early_arguments_;  // that stood before the name
  bool has_early_arguments_ = false;
};

namespace output_text {

inline bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
inline bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
inline bool is_name(char c) {
  return is_word(c) || c == '.' || c == '-' || c == ':' || c == '/' || c == '$';
}
/// The value of a JSON string; the text between its quotes where no parser reads it.
std::string unquoted(std::string_view json);

inline constexpr size_t kNameBytesMax = 256;
inline constexpr size_t kHeaderBytesMax = 512;

}  // namespace output_text
}  // namespace moeflux
