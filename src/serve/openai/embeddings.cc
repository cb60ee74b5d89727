#include "serve/openai/embeddings.h"

#include <bit>
#include <string>
#include <vector>

#include "base/format.h"
#include "serve/embed.h"
#include "text/encoding/base64.h"

namespace moeflux::serve {
namespace {

std::string base64_of(std::span<const float> numbers) {
  std::string bytes;
  bytes.reserve(4 * numbers.size());
  for (const float number : numbers) {
    const auto word = std::bit_cast<uint32_t>(number);
    for (const int shift : {0, 8, 16, 24}) bytes.push_back(static_cast<char>(word >> shift));
  }
  return encode_base64(bytes);
}

}  // namespace

void embeddings(Call& call) {
  if (!may_evaluate(call)) return;
  Fields fields(call.body);
  const std::string format = fields.text("encoding_format").value_or("float");
  if (format != "float" && format != "base64") {
    fields.fail(bad_field("encoding_format",
                          formatted("encoding_format is {}, expected \"float\" or \"base64\"",
                                    json_excerpt(Json(format)))));
  }
  for (const char* name : {"model", "user"}) (void)fields.has(name);
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
  text += formatted(R"(],"model":{},"usage":{}}})", dump_json(call.service().options().model_name),
                    dump_json(usage));
  send_json(call, std::move(text));
}

}  // namespace moeflux::serve
