// One file for all formats, as they share helpers: transcripts (tests/golden/output), cut in every
// way, with and without tokens, and mutated. MOEFLUX_TEST_OUTPUT_MUTATIONS says how many mutations,
// 10,000 if it says nothing.
#include "output/output_parser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>

#include "base/json.h"
#include "output/output_test_util.h"

namespace moeflux {
namespace {

constexpr int kMutationsUsual = 10'000;
constexpr int kRandomSplits = 30;

struct Transcript {
  std::string name;
  std::string prompt_tail;
  std::string text;
  Json want;
};

struct Corpus {
  ToolTypes tools;
  std::vector<Transcript> transcripts;
};

Corpus read_corpus(const std::string& format) {
  const std::string path =
      std::string(MOEFLUX_SOURCE_DIR) + "/tests/golden/output/" + format + ".json";
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const auto json = parse_json(text, path);
  Corpus corpus;
  if (!json.ok()) {
    ADD_FAILURE() << json.error().to_string();
    return corpus;
  }
  corpus.tools = ToolTypes::of_tools((*json)["tools"]);
  for (const Json& entry : (*json)["transcripts"]) {
    corpus.transcripts.push_back({entry["name"].get<std::string>(),
                                  entry["prompt_tail"].get<std::string>(),
                                  entry["text"].get<std::string>(), entry["want"]});
  }
  return corpus;
}

/// Events as transcripts spell what they want.
Json said(const std::vector<OutputEvent>& events) {
  Json all = Json::array();
  std::string name;
  std::string json;
  for (const OutputEvent& event : joined(events)) {
    switch (event.kind) {
      case OutputKind::kReasoning:
      case OutputKind::kContent: {
        const char* kind = event.kind == OutputKind::kReasoning ? "reasoning" : "content";
        if (!all.empty() && all.back()[0] == kind) {
          all.back()[1] = all.back()[1].get<std::string>() + event.text;
        } else {
          all.push_back({kind, event.text});
        }
        break;
      }
      case OutputKind::kCallBegin:
        name = event.text;
        json.clear();
        break;
      case OutputKind::kCallArguments:
        json += event.text;
        break;
      case OutputKind::kCallEnd: {
        if (!event.complete) {
          all.push_back({"cut", name});
          break;
        }
        const auto parsed = parse_json(json, "arguments");
        all.push_back({"call", name, parsed.ok() ? *parsed : Json(json)});
        break;
      }
      case OutputKind::kMarkup:
        break;
    }
  }
  return all;
}

/// Every marker as a token of its own, ids in no particular order.
MarkerTokens all_tokens(const OutputFormat& format) {
  TokenId next = 1000;
  return find_marker_tokens(format, [&](std::string_view text) -> std::optional<TokenId> {
    if (text.find('\n') != std::string_view::npos) return std::nullopt;
    return next--;
  });
}

std::vector<OutputEvent> parse_tokens(const OutputFormat& format, OutputParserOptions options,
                                      std::string_view text) {
  const MarkerTokens tokens = all_tokens(format);
  options.markers = &tokens;
  OutputParser parser(format, options);
  std::vector<OutputEvent> events;
  while (!text.empty()) {
    size_t size = 1;
    TokenId id = -1;
    for (const auto& [marker, token] : tokens) {
      if (!text.starts_with(marker) || (id >= 0 && marker.size() < size)) continue;
      size = marker.size();
      id = token;
    }
    parser.push(text.substr(0, size), id, &events);
    text.remove_prefix(size);
  }
  parser.finish(&events);
  return events;
}

class OutputTranscripts : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    format_ = find_output_format(GetParam());
    ASSERT_NE(format_, nullptr);
    corpus_ = read_corpus(GetParam());
  }
  OutputParserOptions options(const Transcript& transcript) const {
    return {.prompt_tail = transcript.prompt_tail, .tools = &corpus_.tools};
  }

  const OutputFormat* format_ = nullptr;
  Corpus corpus_;
};

TEST_P(OutputTranscripts, SayWhatWasMeant) {
  EXPECT_GE(corpus_.transcripts.size(), 8u);
  for (const Transcript& transcript : corpus_.transcripts) {
    const auto events = parse_pieces(*format_, options(transcript), {transcript.text});
    EXPECT_EQ(said(events), transcript.want) << transcript.name << ":\n"
                                             << transcript.text << "\n"
                                             << told(events);
    EXPECT_EQ(broken_rule(transcript.text, events), "") << transcript.name << "\n" << told(events);
  }
}

TEST_P(OutputTranscripts, AreTheSameHoweverTheyAreCut) {
  for (const Transcript& transcript : corpus_.transcripts) {
    const std::string_view text = transcript.text;
    const std::string whole = told(parse_pieces(*format_, options(transcript), {text}));
    for (size_t cut = 0; cut <= text.size(); ++cut) {
      const auto events =
          parse_pieces(*format_, options(transcript), {text.substr(0, cut), text.substr(cut)});
      ASSERT_EQ(told(events), whole) << transcript.name << " cut at " << cut << ":\n" << text;
    }
    std::vector<std::string_view> bytes;
    for (size_t i = 0; i < text.size(); ++i) bytes.push_back(text.substr(i, 1));
    ASSERT_EQ(told(parse_pieces(*format_, options(transcript), bytes)), whole) << transcript.name;
    for (int seed = 0; seed < kRandomSplits; ++seed) {
      std::mt19937_64 random(static_cast<uint64_t>(seed));
      const auto events = parse_pieces(*format_, options(transcript), random_pieces(text, &random));
      ASSERT_EQ(told(events), whole) << transcript.name << " seed " << seed << ":\n" << text;
    }
  }
}

TEST_P(OutputTranscripts, AreTheSameWhereMarkersAreTokens) {
  for (const Transcript& transcript : corpus_.transcripts) {
    const auto events = parse_tokens(*format_, options(transcript), transcript.text);
    EXPECT_EQ(said(events), transcript.want) << transcript.name << ":\n"
                                             << transcript.text << "\n"
                                             << told(events);
  }
}

TEST_P(OutputTranscripts, SpelledMarkersAreTextWhereTheyAreTokens) {
  const MarkerTokens tokens = all_tokens(*format_);
  for (const Transcript& transcript : corpus_.transcripts) {
    OutputParser parser(*format_, {.markers = &tokens});
    std::vector<OutputEvent> events;
    parser.push(transcript.text, &events);
    parser.finish(&events);
    for (const OutputEvent& event : events) {
      EXPECT_NE(event.kind, OutputKind::kCallBegin) << transcript.name << ":\n" << transcript.text;
    }
  }
}

TEST_P(OutputTranscripts, WholeCharactersComeOutOfWholeCharacters) {
  for (const Transcript& transcript : corpus_.transcripts) {
    OutputParser parser(*format_, options(transcript));
    std::vector<OutputEvent> events;
    std::string_view text = transcript.text;
    while (!text.empty()) {
      size_t size = 1;
      while (size < text.size() && (text[size] & 0xC0) == 0x80) ++size;
      std::vector<OutputEvent> some;
      parser.push(text.substr(0, size), &some);
      text.remove_prefix(size);
      for (OutputEvent& event : some) events.push_back(std::move(event));
    }
    for (const OutputEvent& event : events) {
      EXPECT_TRUE(event.text.empty() || (event.text.front() & 0xC0) != 0x80) << told({event});
    }
  }
}

std::vector<std::string> names_of_formats() {
  std::vector<std::string> names;
  for (const OutputFormat& format : output_formats()) {
    if (format.name != "text") names.push_back(format.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Formats, OutputTranscripts, testing::ValuesIn(names_of_formats()),
                         [](const auto& format) { return format.param; });

/// Mutations that keep most of what makes a format: stretches moved, doubled, removed and exchanged
/// between transcripts, markers and single bytes put in.
class Mutator {
 public:
  Mutator(std::vector<std::string> texts, std::vector<std::string> markers)
      : texts_(std::move(texts)), markers_(std::move(markers)) {}

  std::string next(std::mt19937_64* random) {
    std::string text = pick(texts_, random);
    for (uint64_t left = 1 + (*random)() % 4; left > 0; --left) mutate(&text, random);
    return text;
  }

 private:
  static const std::string& pick(const std::vector<std::string>& from, std::mt19937_64* random) {
    return from[(*random)() % from.size()];
  }

  void mutate(std::string* text, std::mt19937_64* random) {
    const size_t at = (*random)() % (text->size() + 1);
    const size_t size = std::min<size_t>(text->size() - at, (*random)() % 24);
    switch ((*random)() % 6) {
      case 0:
        text->erase(at, size);
        return;
      case 1:
        text->insert(at, text->substr(at, size));
        return;
      case 2:
        text->insert(at, pick(markers_, random));
        return;
      case 3:
        text->insert(at, 1, static_cast<char>((*random)() % 256));
        return;
      case 4:
        text->resize(at);
        return;
      default: {
        const std::string& other = pick(texts_, random);
        const size_t from = (*random)() % (other.size() + 1);
        text->replace(at, size, other.substr(from, (*random)() % 64));
        return;
      }
    }
  }

  std::vector<std::string> texts_;
  std::vector<std::string> markers_;
};

int mutations() {
  const char* text = std::getenv("MOEFLUX_TEST_OUTPUT_MUTATIONS");
  int count = kMutationsUsual;
  if (text != nullptr) std::from_chars(text, text + std::strlen(text), count);
  return count;
}

TEST(OutputMutations, NeverFailAndLoseNothing) {
  const std::vector<std::string> names = names_of_formats();
  const int of_each =
      (mutations() + static_cast<int>(names.size()) - 1) / static_cast<int>(names.size());
  for (const std::string& name : names) {
    const OutputFormat& format = *find_output_format(name);
    const Corpus corpus = read_corpus(name);
    std::vector<std::string> texts;
    for (const Transcript& transcript : corpus.transcripts) texts.push_back(transcript.text);
    std::vector<std::string> markers = {"{", "}", "\"", "[", "]", "(", ")", ",", "\\", " ", "\n"};
    for (const auto& [marker, id] : all_tokens(format)) markers.push_back(marker);
    Mutator mutator(texts, markers);
    std::mt19937_64 random(20260101);
    for (int i = 0; i < of_each; ++i) {
      const std::string text = mutator.next(&random);
      OutputParserOptions options{.tools = &corpus.tools};
      if (i % 3 == 1) options.prompt_tail = "<think>\n";
      if (i % 3 == 2) options.prompt_tail = corpus.transcripts.front().prompt_tail;
      const auto events = parse_pieces(format, options, {text});
      ASSERT_EQ(broken_rule(text, events), "") << name << ":\n" << text << "\n" << told(events);
      const auto again = parse_pieces(format, options, random_pieces(text, &random));
      ASSERT_EQ(told(again), told(events)) << name << ":\n" << text;
    }
  }
}

std::string all_text(const std::vector<OutputEvent>& events, bool with_calls) {
  std::string text;
  for (const OutputEvent& event : events) {
    const bool plain = event.kind == OutputKind::kContent || event.kind == OutputKind::kReasoning;
    if (plain || with_calls) text += event.text;
  }
  return text;
}

/// The part of a call that had come when the answer was cut, by tokens: no cut is within a marker.
std::vector<std::string> cut_calls(const std::string& name) {
  std::vector<std::string> cuts;
  const MarkerTokens tokens = all_tokens(*find_output_format(name));
  for (const Transcript& transcript : read_corpus(name).transcripts) {
    if (transcript.name != "call") continue;
    for (size_t cut = 0; cut <= transcript.text.size(); ++cut) {
      const auto splits = [&](const auto& entry) {
        const std::string& marker = entry.first;
        for (size_t in = 1; in < marker.size() && in <= cut; ++in) {
          if (std::string_view(transcript.text).substr(cut - in).starts_with(marker)) return true;
        }
        return false;
      };
      if (std::none_of(tokens.begin(), tokens.end(), splits)) {
        cuts.push_back(transcript.text.substr(0, cut));
      }
    }
  }
  return cuts;
}

TEST(OutputParser, ACallThatIsCutInItsHeadLeavesNoMarkup) {
  size_t tried = 0;
  for (const std::string& name : names_of_formats()) {
    const OutputFormat& format = *find_output_format(name);
    for (const std::string& text : cut_calls(name)) {
      const auto events = parse_tokens(format, {}, text);
      const std::string plain = all_text(events, false);
      for (const auto& [marker, token] : all_tokens(format)) {
        EXPECT_EQ(plain.find(marker), std::string::npos) << name << ": " << text << "\n" << plain;
      }
      EXPECT_EQ(broken_rule(text, events), "") << name << ": " << text;
      ++tried;
    }
  }
  EXPECT_GT(tried, 500u);
}

TEST(OutputParser, ASpelledMarkerThatIsCutBehindACallIsNoText) {
  const OutputFormat& format = *find_output_format("tagged_json");
  const std::string call = R"(<tool_call>
{"name": "a", "arguments": {}}
</tool_call>)";
  const std::string head = call + "\n<tool_call>";
  for (size_t cut = call.find("\n</tool_call>"); cut <= head.size(); ++cut) {
    const std::string text = head.substr(0, cut);
    const auto events = parse_pieces(format, {}, {text});
    EXPECT_EQ(all_text(events, false), "") << text;
    EXPECT_EQ(broken_rule(text, events), "") << text;
  }
  EXPECT_EQ(all_text(parse_pieces(format, {}, {call + "\n<to be"}), false), "\n<to be");
}

TEST(OutputParser, ASpelledMarkerThatTheLimitCutsIsNoText) {
  const ToolTypes tools;
  for (const std::string& name : names_of_formats()) {
    const OutputFormat& format = *find_output_format(name);
    if (format.call_open.empty() || format.has_messages()) continue;
    const std::string& marker =
        format.section_open.empty() ? format.call_open.front() : format.section_open.front();
    for (size_t size = 1; size < marker.size(); ++size) {
      const std::string text = "Well, " + marker.substr(0, size);
      const auto content = [&](const OutputParserOptions& options, OutputEnd end) {
        OutputParser parser(format, options);
        std::vector<OutputEvent> events;
        parser.push(text, &events);
        parser.finish(&events, end);
        EXPECT_EQ(broken_rule(text, events), "") << name << ": " << text;
        return all_text(events, false);
      };
      EXPECT_EQ(content({.tools = &tools}, OutputEnd::kCut), "Well,") << name << ": " << text;
      EXPECT_EQ(content({.tools = &tools}, OutputEnd::kWhole), text) << name;
      EXPECT_EQ(content({}, OutputEnd::kCut), text) << name;
    }
  }
}

TEST(OutputParser, AMarkerOfReasoningThatTheLimitCutsIsNoText) {
  for (const std::string& name : names_of_formats()) {
    const OutputFormat& format = *find_output_format(name);
    if (format.has_messages() || format.reasoning_open.empty()) continue;
    const std::string& open = format.reasoning_open.front();
    const std::string& close = format.reasoning_close.front();
    const auto events_of = [&](const std::string& text, OutputEnd end) {
      OutputParser parser(format, {});
      std::vector<OutputEvent> events;
      parser.push(text, &events);
      parser.finish(&events, end);
      EXPECT_EQ(broken_rule(text, events), "") << name << ": " << text;
      return events;
    };
    for (size_t size = 1; size < open.size(); ++size) {
      const std::string cut = open.substr(0, size);
      EXPECT_EQ(all_text(events_of(cut, OutputEnd::kCut), false), "") << name << ": " << cut;
      EXPECT_EQ(all_text(events_of(cut, OutputEnd::kWhole), false), cut) << name;
      const std::string said = "Well, " + cut;
      EXPECT_EQ(all_text(events_of(said, OutputEnd::kCut), false), said) << name;
    }
    for (size_t size = 1; size < close.size(); ++size) {
      const std::string text = open + "Hm." + close.substr(0, size);
      EXPECT_EQ(all_text(events_of(text, OutputEnd::kCut), true), "Hm.") << name << ": " << text;
    }
  }
}

TEST(OutputParser, TheTokenThatEndsAnAnswerIsTextOfNothing) {
  for (const std::string& name : names_of_formats()) {
    const OutputFormat& format = *find_output_format(name);
    const MarkerTokens tokens = all_tokens(format);
    for (const std::string& text : cut_calls(name)) {
      for (const auto& [marker, token] : tokens) {
        OutputParser parser(format, {.markers = &tokens});
        std::vector<OutputEvent> events;
        std::string_view rest = text;
        while (!rest.empty()) {
          size_t size = 1;
          TokenId id = -1;
          for (const auto& [one, its] : tokens) {
            if (!rest.starts_with(one) || (id >= 0 && one.size() < size)) continue;
            size = one.size();
            id = its;
          }
          parser.push(rest.substr(0, size), id, &events);
          rest.remove_prefix(size);
        }
        parser.push_end(marker, token, &events);
        parser.finish(&events);
        EXPECT_EQ(all_text(events, true).find(marker), std::string::npos)
            << name << ": " << text << " and " << marker << "\n"
            << told(events);
      }
    }
  }
}

TEST(OutputParser, AMessageEndsWithinAText) {
  const OutputFormat& format = *find_output_format("channels");
  const auto events = parse_tokens(
      format, {},
      R"(<|channel|>commentary to=functions.f <|message|>{"city": "Ro<|end|><|start|>assistant)"
      "<|channel|>final<|message|>Hello.<|return|>");
  EXPECT_EQ(said(events), Json::parse(R"([["cut", "f"], ["content", "Hello."]])")) << told(events);
}

TEST(OutputParser, AValueMaySpeakOfItsOwnCloser) {
  const OutputFormat& format = *find_output_format("function_tags");
  const std::string begin = "<tool_call>\n<function=f>\n<parameter=a>\n";
  const std::string end = "\n</parameter>\n</function>\n</tool_call>";
  for (const char* value : {"x</parameter>y", "</parameter> is a tag", "a\n</parameter>\nb",
                            "</parameter></parameter>z", "if s.endswith('</parameter>'): pass"}) {
    const std::string text = begin + value + end;
    const auto events = parse_pieces(format, {}, {text});
    EXPECT_EQ(said(events), Json::array({{"call", "f", {{"a", value}}}})) << told(events);
    EXPECT_EQ(broken_rule(text, events), "");
  }
  const OutputFormat& tags = *find_output_format("invoke_tags");
  const auto events = parse_pieces(
      tags, {},
      {"<minimax:tool_call><invoke name=\"f\"><parameter name=\"a\">x</parameter>y</parameter>"
       "<parameter name=\"b\">z</parameter></invoke></minimax:tool_call>"});
  EXPECT_EQ(said(events), Json::array({{"call", "f", {{"a", "x</parameter>y"}, {"b", "z"}}}}));
}

TEST(OutputParser, NoArgumentsAreAnEmptyObject) {
  for (const auto& [name, text] :
       {std::pair{"tagged_json", R"(<tool_call>{"name": "f", "arguments": ""}</tool_call>)"},
        {"tagged_json", R"(<tool_call>{"arguments": " ", "name": "f"}</tool_call>)"},
        {"tagged_json", R"(<tool_call>{"name": "f", "arguments": null}</tool_call>)"},
        {"tagged_json", R"(<tool_call>{"name": "f"}</tool_call>)"},
        {"channels", "<|channel|>commentary to=functions.f<|message|><|call|>"},
        {"numbered_names",
         "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
         "<|tool_call_end|>"}}) {
    const auto events = parse_pieces(*find_output_format(name), {}, {text});
    EXPECT_EQ(said(events), Json::array({{"call", "f", Json::object()}})) << text;
  }
}

TEST(OutputFormats, AreChosenByACallAsTheirModelsWriteIt) {
  for (const std::string& name : names_of_formats()) {
    // These two are told apart by the tags of answers alone.
    if (name == "tagged_json_response") continue;
    for (const Transcript& transcript : read_corpus(name).transcripts) {
      if (transcript.name != "call") continue;
      const std::string rendered = transcript.prompt_tail + transcript.text;
      EXPECT_EQ(choose_output_format(rendered).name, name) << rendered;
    }
  }
  EXPECT_EQ(choose_output_format("<|im_start|>assistant\n").name, "text");
  EXPECT_EQ(choose_output_format("List of tools: <|tool_list_start|>[").name, "call_lists");
}

TEST(OutputFormats, HaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const OutputFormat& format : output_formats()) EXPECT_TRUE(names.insert(format.name).second);
}

TEST(OutputParser, TellsTextAtOnceAndHoldsOnlyWhatMayBeAMarker) {
  OutputParser parser(*find_output_format("tagged_json"), {});
  std::vector<OutputEvent> events;
  parser.push("Hello <tool", &events);
  EXPECT_EQ(said(events), Json::parse(R"([["content", "Hello"]])"));
  parser.push("s", &events);
  EXPECT_EQ(said(events), Json::parse(R"([["content", "Hello <tools"]])"));
}

TEST(OutputParser, StreamsArgumentsOnceTheNameIsKnown) {
  OutputParser parser(*find_output_format("tagged_json"), {});
  std::vector<OutputEvent> events;
  parser.push(R"(<tool_call>{"name": "f", "arguments": {"a": "on)", &events);
  ASSERT_EQ(events.size(), 2u) << told(events);
  EXPECT_EQ(events[0].text, "f");
  EXPECT_EQ(events[1].text, R"({"a": "on)");
}

TEST(OutputParser, KeepsIdsThatTheTextHasAndMakesTheOthersFromTheSeed) {
  const auto first_id = [](const char* format, const char* text, uint64_t seed) {
    for (const OutputEvent& event :
         parse_pieces(*find_output_format(format), {.id_seed = seed}, {text})) {
      if (event.kind == OutputKind::kCallBegin) return event.id;
    }
    return std::string();
  };
  EXPECT_EQ(first_id("numbered_names",
                     "<|tool_call_begin|>functions.f:3<|tool_call_argument_begin|>{}", 1),
            "functions.f:3");
  EXPECT_EQ(first_id("bracket_markers", "[TOOL_CALLS]f[CALL_ID]abc123DEF[ARGS]{}", 1), "abc123DEF");
  EXPECT_EQ(first_id("bracket_markers", "[TOOL_CALLS]f[ARGS]{}", 1).size(), 9u);
  const char* call = R"(<tool_call>{"name": "f", "arguments": {}}</tool_call>)";
  EXPECT_EQ(first_id("tagged_json", call, 1).size(), 29u);
  EXPECT_EQ(first_id("tagged_json", call, 1), first_id("tagged_json", call, 1));
  EXPECT_NE(first_id("tagged_json", call, 1), first_id("tagged_json", call, 2));
}

TEST(OutputParser, TakesCallsWithoutMarkersWhereThereAreToolsOnly) {
  const ToolTypes tools;
  for (const auto& [name, text] : {std::pair{"python_tag", R"({"name": "f", "parameters": {}})"},
                                   {"python_tag", "[f()]"},
                                   {"compact_calls", "call:f{}"}}) {
    const OutputFormat& format = *find_output_format(name);
    EXPECT_EQ(said(parse_pieces(format, {}, {text})), Json::array({{"content", text}}));
    const Json call = Json::array({{"call", "f", Json::object()}});
    EXPECT_EQ(said(parse_pieces(format, {.tools = &tools}, {text})), call) << text;
  }
}

TEST(OutputParser, TakesTimeLinearInTheText) {
  // Openers that never become calls, an unfinished string, and brackets: a second look at all that
  // was held for each of them would not end.
  const ToolTypes tools;
  for (const OutputFormat& format : output_formats()) {
    std::vector<std::string> units = {"[", " ", "<", "{\"name\":[\""};
    for (const auto* openers : {&format.section_open, &format.call_open, &format.channel}) {
      if (openers->empty()) continue;
      units.push_back(openers->front());
      units.push_back(openers->front() + "{\"arguments\":[\"");
    }
    for (const std::string& unit : units) {
      std::string text;
      while (text.size() < 200'000) text += unit;
      const auto events = parse_pieces(format, {.tools = &tools}, {text});
      EXPECT_EQ(broken_rule(text, events), "") << format.name << " " << unit;
    }
  }
}

}  // namespace
}  // namespace moeflux
