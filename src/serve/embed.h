// Requests whose texts are evaluated and not continued: embeddings in every interface's form.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "serve/call.h"
#include "serve/request/fields.h"

namespace moeflux::serve {

/// Texts of a request.
inline constexpr size_t kTextsMax = 2048;
/// Numbers of an answer: as JSON they take 12 bytes each.
inline constexpr size_t kNumbersMax = size_t{1} << 23;

struct EmbedRequest {
  std::vector<std::vector<TokenId>> texts;
  int64_t dimensions = 0;                 // 0: all
  std::vector<std::string> ignored = {};  // names of the request that nobody reads

  int64_t tokens() const;
};

/// True where the call runs on the thread that may evaluate; otherwise it comes back there.
bool may_evaluate(Call& call);

/// How `field` becomes texts.
struct TextsForm {
  std::string_view field = "input";
  bool takes_ids = false;  // ids of tokens as well, and lists of them
  bool cuts = false;       // texts longer than the context, at their end
};

/// Reads the texts, `prompt_name` (a name of the model's prompts) and `dimensions`. Problems are
/// those of the fields.
EmbedRequest read_embed_request(Context& service, Fields& fields, const TextsForm& form);

/// In the order of texts. Nothing where the call has been answered with what went wrong.
std::optional<std::vector<std::vector<float>>> embed(Call& call, const EmbedRequest& request);

/// Numbers as a JSON list, each as short as its f32 allows. One that is not finite is null.
std::string number_list(std::span<const float> numbers);

/// Answers with a JSON text that is written already.
void send_json(const Call& call, std::string text);

/// The answer to a failed evaluation; none to a client that has left.
void fail_evaluation(const Call& call, const Error& error);

}  // namespace moeflux::serve
