// Ollama's /api/embed and its predecessor.
#include "serve/embed.h"

#include <chrono>
#include <string>
#include <utility>

#include "base/format.h"
#include "serve/ollama/handlers.h"

namespace moeflux::serve {
namespace {

/// Ollama's clients send these with every request; they have no effect here.
void read_common(Fields& fields) {
  for (const char* name : {"model", "options", "keep_alive"}) (void)fields.has(name);
}

}  // namespace

void ollama_embed(Call& call) {
  if (!may_evaluate(call)) return;
  const auto begin = std::chrono::steady_clock::now();
  Fields fields(call.body);
  read_common(fields);
  const bool cuts = fields.boolean("truncate").value_or(true);
  // Without texts it loads the model.
  const Json* input = fields.find("input");
  const bool is_empty =
      input == nullptr || (input->is_string() && input->get_ref<const std::string&>().empty());
  const EmbedRequest request =
      is_empty ? EmbedRequest() : read_embed_request(call.service(), fields, {.cuts = cuts});
  if (fields.problem()) return call.fail(*fields.problem());
  const auto vectors = embed(call, request);
  if (!vectors) return;
  std::string text =
      formatted(R"({{"model":{},"embeddings":[)", dump_json(call.service().options().model_name));
  for (size_t i = 0; i < vectors->size(); ++i) {
    if (i > 0) text += ',';
    text += number_list((*vectors)[i]);
  }
  const auto time = std::chrono::steady_clock::now() - begin;
  text += formatted(R"(],"total_duration":{},"load_duration":0,"prompt_eval_count":{}}})",
                    std::chrono::nanoseconds(time).count(), request.tokens());
  send_json(call, std::move(text));
}

void ollama_embeddings(Call& call) {
  if (!may_evaluate(call)) return;
  Fields fields(call.body);
  read_common(fields);
  const Json* prompt = fields.find("prompt");
  if (prompt == nullptr || *prompt == Json("")) return send_json(call, R"({"embedding":[]})");
  if (!prompt->is_string()) {
    return call.fail(
        bad_field("prompt", formatted("prompt is {}, expected a string", json_excerpt(*prompt))));
  }
  const EmbedRequest request =
      read_embed_request(call.service(), fields, {.field = "prompt", .cuts = true});
  if (fields.problem()) return call.fail(*fields.problem());
  const auto vectors = embed(call, request);
  if (vectors) send_json(call, formatted(R"({{"embedding":{}}})", number_list(vectors->front())));
}

}  // namespace moeflux::serve
