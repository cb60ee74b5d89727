// POST /v1/embeddings.
#include <array>
#include <bit>
#include <string>
#include <string_view>
#include <vector>

#include "base/format.h"
#include "serve/embed.h"
#include "serve/openai/handlers.h"
#include "serve/request/field_list.h"
#include "text/encoding/base64.h"

namespace moeflux::serve {
namespace {

constexpr std::string_view kAsFilesSay = "the model's files say how vectors are normalised";

/// The fields, and those of other servers that would change the vectors.
constexpr std::array kRows = {
    served("model"),
    served("input"),
    served("encoding_format"),
    served("dimensions"),
    served("prompt_name"),
    harmless("user"),
    refused("embd_normalize", kAsFilesSay, "[2]"),
    refused("normalize", kAsFilesSay, "[true]"),
    refused("normalized", kAsFilesSay, "[true]"),
    refused("embedding_type", "encoding_format is float or base64", R"(["float"])"),
    refused("add_special_tokens", "the tokenizer says what stands around a text", "[true]"),
};

const FieldList& field_list() {
  static const FieldList kList("embeddings", {kRows});
  return kList;
}

std::string base64_of(std::span<const float> numbers) {
  std::string bytes;
  bytes.reserve(4 * numbers.size());
  for (const float number : numbers) {
    const auto word = std::bit_cast<uint32_t>(number);
    for (const int shift : {0, 8, 16, 24}) bytes.push_back(static_cast<char>(word >> shift));
  }
  return encode_base64(bytes);
}

/// The fields of llama.cpp's own form.
constexpr std::array kNativeRows = {
    served("content"),
    served("input"),
    harmless("model"),
    refused("embd_normalize", kAsFilesSay, "[2]"),
};

}  // namespace

// Each text has a list of vectors there: one, as ours are pooled.
void embeddings_natively(Call& call) {
  if (!may_evaluate(call)) return;
  static const FieldList kList("embedding", {kNativeRows});
  Fields fields(call.body, kList);
  const char* field = fields.has("content") ? "content" : "input";
  const EmbedRequest request =
      read_embed_request(call.service(), fields, {.field = field, .takes_ids = true});
  if (fields.problem()) return call.fail(*fields.problem());
  const auto vectors = embed(call, request);
  if (!vectors) return;
  std::string text = "[";
  for (size_t i = 0; i < vectors->size(); ++i) {
    text += formatted(R"({}{{"index":{},"embedding":[{}]}})", i == 0 ? "" : ",", i,
                      number_list((*vectors)[i]));
  }
  send_json(call, text + "]");
}

void embeddings(Call& call) {
  if (call.body.is_object() && call.body.contains("content") && !has_version(call.request.path)) {
    return embeddings_natively(call);
  }
  if (!may_evaluate(call)) return;
  Fields fields(call.body, field_list());
  const std::string format = fields.text("encoding_format").value_or("float");
  if (format != "float" && format != "base64") {
    fields.fail(bad_field("encoding_format",
                          formatted("encoding_format is {}, expected \"float\" or \"base64\"",
                                    json_excerpt(Json(format)))));
  }
  (void)fields.has("model");
  const EmbedRequest request = read_embed_request(call.service(), fields, {.takes_ids = true});
  if (fields.problem()) return call.fail(*fields.problem());
  const auto vectors = embed(call, request);
  if (!vectors) return;
  std::string text = R"({"object":"list","data":[)";
  for (size_t i = 0; i < vectors->size(); ++i) {
    const std::vector<float>& vector = (*vectors)[i];
    text += formatted(R"({}{{"object":"embedding","index":{},"embedding":)", i == 0 ? "" : ",", i);
    text += format == "base64" ? '"' + base64_of(vector) + '"' : number_list(vector);
    text += '}';
  }
  const Json usage = {{"prompt_tokens", request.tokens()}, {"total_tokens", request.tokens()}};
  text += formatted(R"(],"model":{},"usage":{})", dump_json(call.service().options().model_name),
                    dump_json(usage));
  if (!request.ignored.empty()) {
    text += formatted(R"(,"moeflux":{})", dump_json({{"ignored", request.ignored}}));
  }
  text += '}';
  send_json(call, std::move(text));
}

}  // namespace moeflux::serve
