// The table of docs/fields.md is that of the lists, and the lists are those of the decoders.
#include "serve/request/field_list.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/format.h"
#include "serve/anthropic/field_list.h"
#include "serve/anthropic/request.h"
#include "serve/native/completion.h"
#include "serve/ollama/field_list.h"
#include "serve/ollama/request.h"
#include "serve/openai/chat.h"
#include "serve/openai/completions.h"
#include "serve/openai/field_lists.h"
#include "serve/responses/field_list.h"
#include "serve/responses/request.h"
#include "serve/service_test_util.h"

namespace moeflux::serve {
namespace {

constexpr std::string_view kBegin = "<!-- fields: made by field_list_test -->\n";
constexpr std::string_view kEnd = "<!-- end of fields -->\n";

// A new interface adds its list here.
std::vector<const FieldList*> all_lists() {
  return {&chat_field_list(),        &completion_field_list(),      &native_completion_field_list(),
          &infill_field_list(),      &responses_field_list(),       &messages_field_list(),
          &ollama_chat_field_list(), &ollama_generate_field_list(), &ollama_option_list()};
}

std::string_view mark(FieldUse use) {
  switch (use) {
    case FieldUse::kServed:
      return "✓";
    case FieldUse::kRefused:
      return "✗";
    case FieldUse::kHarmless:
      return "○";
  }
  __builtin_unreachable();
}

/// How far a field is served, or which values of it are not refused.
std::string note_of(const ListedField& field) {
  if (field.use == FieldUse::kServed) return std::string(field.note);
  if (field.use != FieldUse::kRefused || field.unless.size() <= 2) return {};
  return formatted("but `{}`", field.unless.substr(1, field.unless.size() - 2));
}

/// The notes on a field: each once, behind a mark where it is not the same in all requests, and
/// behind their titles where requests with that mark have several.
std::string notes_on(std::string_view name, std::span<const FieldList* const> lists) {
  std::map<FieldUse, std::map<std::string, std::vector<std::string_view>>> by_use;
  for (const FieldList* list : lists) {
    if (const ListedField* field = list->find(name)) {
      by_use[field->use][note_of(*field)].push_back(list->title());
    }
  }
  std::string all;
  for (const auto& [use, titles_by_note] : by_use) {
    for (const auto& [note, titles] : titles_by_note) {
      if (note.empty()) continue;
      if (!all.empty()) all += "; ";
      if (by_use.size() > 1) all += formatted("{} ", mark(use));
      for (size_t i = 0; titles_by_note.size() > 1 && i < titles.size(); ++i) {
        all += formatted("{}{}", titles[i], i + 1 < titles.size() ? ", " : ": ");
      }
      all += note;
    }
  }
  return all;
}

/// A row a name, a column a list.
std::string field_table(std::span<const FieldList* const> lists) {
  std::set<std::string_view> names;
  std::string table = "| field |";
  std::string rule = "|---|";
  for (const FieldList* list : lists) {
    table += formatted(" {} |", list->title());
    rule += ":-:|";
    for (const auto& [name, field] : list->fields()) names.insert(name);
  }
  table += " note |\n" + rule + "---|\n";
  for (const std::string_view name : names) {
    table += formatted("| `{}` |", name);
    for (const FieldList* list : lists) {
      const ListedField* field = list->find(name);
      table += field == nullptr ? "  |" : formatted(" {} |", mark(field->use));
    }
    table += formatted(" {} |\n", notes_on(name, lists));
  }
  return table;
}

std::string document_path() { return std::string(MOEFLUX_SOURCE_DIR) + "/docs/fields.md"; }

TEST(FieldLists, TheDocumentHasTheirTable) {
  std::ostringstream read;
  read << std::ifstream(document_path()).rdbuf();
  std::string text = read.str();
  const size_t begin = text.find(kBegin);
  const size_t end = text.find(kEnd);
  ASSERT_NE(begin, std::string::npos);
  ASSERT_NE(end, std::string::npos);
  const size_t table = begin + kBegin.size();
  const std::string made = field_table(all_lists());
  if (std::getenv("MOEFLUX_TEST_WRITE_FIELD_TABLE") != nullptr) {
    std::ofstream(document_path()) << text.replace(table, end - table, made);
    return;
  }
  EXPECT_EQ(text.substr(table, end - table), made)
      << "run this test with MOEFLUX_TEST_WRITE_FIELD_TABLE=1";
}

TEST(FieldLists, ValuesThatAskForNothingAreJson) {
  for (const FieldList* list : all_lists()) {
    for (const auto& [name, field] : list->fields()) {
      if (field.use != FieldUse::kRefused) continue;
      EXPECT_FALSE(field.note.empty()) << name;
      EXPECT_TRUE(field.unless.empty() || Json::accept(field.unless)) << name;
    }
  }
}

TEST(Fields, WhatIsNotListedIsAbsentAndIgnored) {
  static constexpr std::array kRows = {served("a"), served("b"), harmless("c"),
                                       refused("d", "no d here", "[0]")};
  const FieldList list("tests", {kRows});
  const Json body = {{"a", 1}, {"b", 2}, {"c", 3}, {"d", 0}, {"e", 5}, {"f", nullptr}};
  Fields fields(body, list);
  EXPECT_TRUE(fields.has("a"));
  for (const char* name : {"c", "d", "e"}) EXPECT_FALSE(fields.has(name)) << name;
  EXPECT_FALSE(fields.problem());
  EXPECT_EQ(fields.ignored(), (std::vector<std::string>{"b", "e"}));
  const Json asks = {{"d", 1}};
  Fields refusing(asks, list);
  ASSERT_TRUE(refusing.problem());
  EXPECT_EQ(refusing.problem()->param, "d");
  EXPECT_EQ(refusing.problem()->code, "unsupported_parameter");
}

// The decoder's verdict on a body: the field that is wrong, or those that are ignored.
using Verdict = std::variant<std::string, std::vector<std::string>>;

void expect_asked(const FieldList& list, const Json& base,
                  const std::function<Verdict(const Json&)>& decode) {
  for (const auto& [name, field] : list.fields()) {
    Json body = base;
    body[std::string(name)] = {{"odd", true}};
    const Verdict verdict = decode(body);
    const auto* param = std::get_if<std::string>(&verdict);
    if (field.use == FieldUse::kHarmless) {
      EXPECT_EQ(param, nullptr) << name;
    }
    if (field.use == FieldUse::kRefused) {
      ASSERT_NE(param, nullptr) << name;
      EXPECT_EQ(*param, name);
    }
    // The decoder finds that an object is no such value, or takes it.
    if (param == nullptr) {
      const auto& ignored = std::get<std::vector<std::string>>(verdict);
      EXPECT_EQ(std::count(ignored.begin(), ignored.end(), name), 0)
          << name << " is listed, and no decoder asks for it";
    }
  }
  Json body = base;
  body["unheard_of"] = 1;
  const Verdict verdict = decode(body);
  EXPECT_EQ(std::get<std::vector<std::string>>(verdict), std::vector<std::string>{"unheard_of"});
}

TEST(FieldLists, ChatCompletionsAreReadByTheirs) {
  const Json base = {{"messages", Json::array({{{"role", "user"}, {"content", "q"}}})}};
  expect_asked(chat_field_list(), base, [](const Json& body) -> Verdict {
    const DecodedChat decoded = decode_chat_request(body, {});
    if (const auto* error = std::get_if<ApiError>(&decoded)) return error->param;
    return std::get<ChatRequest>(decoded).generation.ignored;
  });
}

TEST(FieldLists, MessagesAreReadByTheirs) {
  const Json base = {{"messages", Json::array({{{"role", "user"}, {"content", "q"}}})},
                     {"max_tokens", 1}};
  expect_asked(messages_field_list(), base, [](const Json& body) -> Verdict {
    const DecodedChat decoded = decode_messages_request(body, {}, {});
    if (const auto* error = std::get_if<ApiError>(&decoded)) return error->param;
    return std::get<ChatRequest>(decoded).generation.ignored;
  });
}

TEST(FieldLists, ResponsesAreReadByTheirs) {
  expect_asked(responses_field_list(), {{"input", "q"}}, [](const Json& body) -> Verdict {
    const auto decoded = decode_responses_request(body, {}, Json::array());
    if (const auto* error = std::get_if<ApiError>(&decoded)) return error->param;
    return std::get<ResponsesRequest>(decoded).chat.generation.ignored;
  });
}

TEST(FieldLists, OllamasRequestsAreReadByTheirs) {
  const auto verdict = [](const DecodedOllama& decoded) -> Verdict {
    if (const auto* error = std::get_if<ApiError>(&decoded)) return error->param;
    return std::get<OllamaRequest>(decoded).chat.generation.ignored;
  };
  const Json base = {{"messages", Json::array({{{"role", "user"}, {"content", "q"}}})},
                     {"tools", Json::array({{{"function", {{"name", "f"}}}}})}};
  expect_asked(ollama_chat_field_list(), base,
               [&](const Json& body) { return verdict(decode_ollama_chat(body, {}, 100)); });
  expect_asked(ollama_generate_field_list(), {{"prompt", "q"}},
               [&](const Json& body) { return verdict(decode_ollama_generate(body, {}, 100)); });
}

class FieldsOfAnswers : public ServiceTest {};

TEST_F(FieldsOfAnswers, CompletionsAreReadByTheirs) {
  const auto text =
      std::move(load_model_text(std::string(MOEFLUX_SOURCE_DIR) + "/models/fable-20m")).value();
  expect_asked(completion_field_list(), {{"prompt", "q"}}, [&](const Json& body) -> Verdict {
    const auto decoded = decode_completion_request(body, {}, *text.tokenizer);
    if (const auto* error = std::get_if<ApiError>(&decoded)) return error->param;
    return std::get<RawRequest>(decoded).generation.ignored;
  });
}

TEST_F(FieldsOfAnswers, LlamaCppsCompletionsAreReadByTheirs) {
  const auto text =
      std::move(load_model_text(std::string(MOEFLUX_SOURCE_DIR) + "/models/fable-20m")).value();
  expect_asked(native_completion_field_list(), {{"prompt", "q"}}, [&](const Json& body) -> Verdict {
    const auto decoded = decode_native_completion(body, {}, *text.tokenizer);
    if (const auto* error = std::get_if<ApiError>(&decoded)) return error->param;
    return std::get<NativeCompletionRequest>(decoded).text.generation.ignored;
  });
}

/// An interface that answers `body` with a text at `text`.
struct Asked {
  const char* path;
  const FieldList& list;
  Json body;
  const char* text;
};

std::vector<Asked> all_asked() {
  const Json messages = Json::array({{{"role", "user"}, {"content", "Once upon a time"}}});
  const auto with = [](Json body) {
    body.update({{"seed", 7}});
    return body;
  };
  return {{"/v1/chat/completions", chat_field_list(),
           with({{"messages", messages}, {"max_tokens", 12}}), "/choices/0/message/content"},
          {"/v1/completions", completion_field_list(),
           with({{"prompt", "Once upon a time"}, {"max_tokens", 12}}), "/choices/0/text"},
          {"/completion", native_completion_field_list(),
           with({{"prompt", "Once upon a time"}, {"n_predict", 12}}), "/content"},
          {"/v1/messages", messages_field_list(),
           with({{"messages", messages}, {"max_tokens", 12}}), "/content/0/text"},
          {"/v1/responses", responses_field_list(),
           with({{"input", "Once upon a time"}, {"max_output_tokens", 12}}),
           "/output/0/content/0/text"},
          {"/api/chat",
           ollama_chat_field_list(),
           {{"messages", messages}, {"options", with({{"num_predict", 12}})}, {"stream", false}},
           "/message/content"},
          {"/api/generate",
           ollama_generate_field_list(),
           {{"prompt", "Once upon a time"},
            {"options", with({{"num_predict", 12}})},
            {"stream", false}},
           "/response"}};
}

void add_harmless(const FieldList& list, Json& body) {
  for (const auto& [name, field] : list.fields()) {
    if (field.use == FieldUse::kHarmless) body[std::string(name)] = 1;
    // A field that asks for nothing changes nothing either.
    if (field.use != FieldUse::kRefused || field.unless.empty()) continue;
    body[std::string(name)] = Json::parse(field.unless).front();
  }
}

TEST_F(FieldsOfAnswers, HarmlessNamesChangeNoByte) {
  if (testing::without_engine()) return;
  const auto service = start();
  for (const Asked& asked : all_asked()) {
    const auto said = [&](const Json& body) {
      const Json answer = post(*service, asked.path, body)->json();
      const Json::json_pointer text(asked.text);
      EXPECT_TRUE(answer.contains(text)) << asked.path << " " << answer;
      EXPECT_FALSE(answer.contains("moeflux") && answer["moeflux"].contains("ignored")) << answer;
      return answer.contains(text) ? answer[text] : Json();
    };
    const Json before = said(asked.body);
    Json body = asked.body;
    add_harmless(asked.list, body);
    if (body.contains("options")) add_harmless(ollama_option_list(), body["options"]);
    EXPECT_EQ(said(body), before) << asked.path;
  }
}

TEST_F(FieldsOfAnswers, WhatIsIgnoredIsNamedInAnswersAndOnceInTheLog) {
  if (testing::without_engine()) return;
  std::vector<std::string> notes;
  ServiceOptions options;
  options.on_note = [&](const std::string& line) { notes.push_back(line); };
  const auto service = start(std::move(options));
  const Json expected = Json::array({"unheard_of"});
  for (const Asked& asked : all_asked()) {
    Json body = asked.body;
    body["unheard_of"] = 1;
    const Json answer = post(*service, asked.path, body)->json();
    EXPECT_EQ(answer.value("moeflux", Json())["ignored"], expected) << asked.path << answer;
    body["stream"] = true;
    const std::string stream = post(*service, asked.path, body)->wait();
    EXPECT_NE(stream.find("\"ignored\":[\"unheard_of\"]"), std::string::npos) << stream;
  }
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("unheard_of"), std::string::npos);
}

}  // namespace
}  // namespace moeflux::serve
