// moeflux template: the prompt that a model's chat template makes of messages.
#include <memory>
#include <string>
#include <utility>

#include "base/format.h"
#include "base/json.h"
#include "chat/model_template.h"
#include "chat/model_text.h"
#include "cli/commands/command.h"
#include "cli/model_options.h"
#include "cli/template_option.h"
#include "cli/terminal.h"
#include "cli/text_input.h"

namespace moeflux {
namespace template_command {
namespace {

struct Options {
  ModelOptions model;
  std::string template_file;
  std::string messages_file;
};

Error wrong(const std::string& file, std::string_view key, const Json& found,
            std::string_view expected) {
  return make_error(ErrorCode::kInvalidArgument, "{}: {} is {}, expected {}", file, key,
                    json_excerpt(found), expected);
}

// The server goes on with a text of the assistant's at the end; so its prompt is shown open.
bool ends_open(const Json& messages) {
  if (!messages.is_array() || messages.empty() || !messages.back().is_object()) return false;
  const Json& last = messages.back();
  const Json calls = last.value("tool_calls", Json());
  return last.value("role", Json()) == "assistant" && (!calls.is_array() || calls.empty());
}

/// A file of messages, tools and the like, or of messages alone.
Result<TemplateRequest> read_request(const std::string& file) {
  MF_ASSIGN_OR_RETURN(const std::string text, read_text_input(file));
  MF_ASSIGN_OR_RETURN(Json json, parse_json(text, file));
  TemplateRequest request{.add_generation_prompt = false};
  if (json.is_array()) json = Json{{"messages", std::move(json)}};
  if (!json.is_object() || !json.contains("messages")) {
    return make_error(ErrorCode::kInvalidArgument, "{} has no messages, expected an array of them",
                      file);
  }
  const bool says_how_it_ends =
      json.contains("add_generation_prompt") || json.contains("continue_final_message");
  for (auto& [key, value] : json.items()) {
    if (key == "messages") {
      request.messages = std::move(value);
    } else if (key == "tools" || key == "documents") {
      if (!value.is_array() && !value.is_null()) return wrong(file, key, value, "an array");
      (key == "tools" ? request.tools : request.documents) = std::move(value);
    } else if (key == "add_generation_prompt" || key == "continue_final_message") {
      if (!value.is_boolean()) return wrong(file, key, value, "true or false");
      const bool adds = key == "add_generation_prompt";
      (adds ? request.add_generation_prompt : request.continue_final_message) = value.get<bool>();
    } else if (key == "chat_template_kwargs") {
      if (!value.is_object()) return wrong(file, key, value, "an object");
      for (auto& [name, variable] : value.items()) request.variables[name] = std::move(variable);
    } else if (key == "bos_token" || key == "eos_token") {
      if (!value.is_string() && !value.is_null()) return wrong(file, key, value, "a string");
      if (value.is_string()) request.variables[key] = std::move(value);
    } else {
      return make_error(ErrorCode::kInvalidArgument,
                        "{}: key {}, expected messages, tools, documents, add_generation_prompt, "
                        "continue_final_message, chat_template_kwargs, bos_token or eos_token",
                        file, key);
    }
  }
  if (!says_how_it_ends) request.continue_final_message = ends_open(request.messages);
  return request;
}

Status run(const Options& options) {
  MF_ASSIGN_OR_RETURN(const TemplateRequest request, read_request(options.messages_file));
  MF_ASSIGN_OR_RETURN(const auto given, given_template(options.template_file));
  MF_ASSIGN_OR_RETURN(const std::string directory, model_directory(options.model));
  MF_ASSIGN_OR_RETURN(const auto source, open_model_source(directory));
  const Result<Tokenizer> tokenizer = load_tokenizer(*source);
  if (!tokenizer.ok() && tokenizer.error().code() != ErrorCode::kNotFound) {
    return tokenizer.error();
  }
  MF_ASSIGN_OR_RETURN(
      const ChatTemplate chat_template,
      load_chat_template(*source, tokenizer.ok() ? &tokenizer.value() : nullptr, given));
  MF_ASSIGN_OR_RETURN(const RenderedPrompt prompt, chat_template.render(request, local_time_now()));
  return print_out(prompt.text);
}

}  // namespace
}  // namespace template_command

Command make_template_command(const CommandContext& context) {
  auto options = std::make_shared<template_command::Options>();
  options->model.log = &context.log;
  CommandOptions command("template", "Show the prompt that a chat template makes of messages.");
  command.example("moeflux template -m FOLDER --messages chat.json");
  command.example("moeflux template -m model.gguf --template mine.jinja --messages chat.json");
  command.example(
      "echo '[{\"role\":\"user\",\"content\":\"hi\"}]' | moeflux template -m FOLDER --messages -");
  command.group("Template");
  command
      .add(
          "--messages", options->messages_file,
          "JSON with messages and, optionally, tools, documents, add_generation_prompt, "
          "continue_final_message, chat_template_kwargs, bos_token, eos_token; '-': standard input")
      .value("FILE")
      .required()
      .not_empty();
  command
      .add("--template,--chat-template-file", options->template_file,
           "Jinja template to use instead of the model's own")
      .value("FILE")
      .not_empty();
  add_model_folder_option(command, options->model);
  return {std::move(command), [options] { return template_command::run(*options); }};
}

}  // namespace moeflux
