#include "serve/openai/completions.h"

#include <algorithm>
#include <utility>

#include "base/format.h"
#include "schedule/text_request.h"
#include "serve/openai/constraint_fields.h"
#include "serve/openai/field_lists.h"
#include "serve/request/fill_in.h"

namespace moeflux::serve {
namespace {

constexpr int64_t kTokensDefault = 16;
constexpr size_t kPromptsMax = 256;

// Tokens that begin a text stand before its first string alone.
class PromptReader {
 public:
  PromptReader(Fields& fields, const Tokenizer& tokenizer)
      : fields_(fields),
        tokenizer_(tokenizer),
        add_special_(fields.boolean("add_special_tokens").value_or(true)),
        parse_special_(fields.boolean("parse_special").value_or(true)) {}

  /// A string, or a list of ids and strings. False where it is neither.
  bool read(const Json& value, std::vector<TokenId>& ids) {
    if (value.is_string()) {
      add_text(value.get_ref<const std::string&>(), true, ids);
      // A model continues something; without a word that is what stands before any text.
      if (ids.empty()) fields_.fail(bad_field("prompt", "prompt has no tokens"));
      return true;
    }
    // llama.cpp's form of a text with images, of which there are none here.
    if (value.is_object()) {
      const auto text = value.find("prompt_string");
      const auto media = value.find("multimodal_data");
      const bool is_text = media == value.end() || media->empty();
      return is_text && text != value.end() && text->is_string() && read(*text, ids);
    }
    if (!value.is_array()) return false;
    for (size_t i = 0; i < value.size(); ++i) {
      if (value[i].is_string()) {
        add_text(value[i].get_ref<const std::string&>(), i == 0, ids);
        continue;
      }
      const Result<int64_t> id = json_int(value[i], "prompt");
      if (!id.ok() || *id < 0 || *id >= kTokenEnd) return false;
      ids.push_back(static_cast<TokenId>(*id));
    }
    return !ids.empty();
  }

 private:
  void add_text(const std::string& text, bool is_first, std::vector<TokenId>& ids) {
    const Result<std::vector<TokenId>> encoded = tokenizer_.encode(
        text,
        {.add_special_tokens = add_special_ && is_first, .match_added_tokens = parse_special_});
    if (!encoded.ok()) return fields_.fail(api_error(encoded.error()));
    ids.insert(ids.end(), encoded->begin(), encoded->end());
  }

  Fields& fields_;
  const Tokenizer& tokenizer_;
  const bool add_special_;
  const bool parse_special_;
};

bool is_number(const Json& value) { return value.is_number(); }

}  // namespace

bool read_prompts(Fields& fields, const Tokenizer& tokenizer, RawRequest& request) {
  PromptReader reader(fields, tokenizer);
  const Json* prompt = fields.find("prompt");
  // Several, unless there is an id among them.
  const bool is_list = prompt != nullptr && prompt->is_array() && !prompt->empty() &&
                       std::none_of(prompt->begin(), prompt->end(), is_number);
  bool is_good = prompt != nullptr && (!is_list || prompt->size() <= kPromptsMax);
  for (size_t i = 0; is_good && i < (is_list ? prompt->size() : 1); ++i) {
    is_good = reader.read(is_list ? (*prompt)[i] : *prompt, request.prompts.emplace_back());
  }
  if (is_good) return is_list;
  fields.fail(bad_field(
      "prompt", formatted("prompt is {}, expected a string, ids of tokens, or at most {} of these",
                          prompt == nullptr ? "absent" : json_excerpt(*prompt), kPromptsMax)));
  return is_list;
}

namespace {

// The answer fills the gap between prompt and suffix.
void read_suffix(Fields& fields, const Tokenizer& tokenizer, RawRequest& request) {
  const auto suffix = fields.text("suffix");
  if (!suffix || suffix->empty() || fields.problem()) return;
  const Json* prompt = fields.find("prompt");
  const auto marks = find_fill_in_tokens(tokenizer);
  if (!marks || !prompt->is_string()) {
    return fields.fail(unsupported_field(
        "suffix", marks ? "suffix is given, expected one prompt, a string"
                        : "suffix needs a model whose vocabulary has tokens for the text before, "
                          "behind and in a gap"));
  }
  auto ids = fill_in_prompt(tokenizer, *marks, prompt->get_ref<const std::string&>(), *suffix);
  if (!ids.ok()) return fields.fail(api_error(ids.error()));
  request.prompts = {std::move(ids).value()};
}

}  // namespace

std::variant<RawRequest, ApiError> decode_completion_request(const Json& body,
                                                             const SamplerOptions& defaults,
                                                             const Tokenizer& tokenizer) {
  Fields fields(body, completion_field_list());
  RawRequest request{.generation = read_generation_fields(fields, defaults)};
  read_prompts(fields, tokenizer, request);
  read_suffix(fields, tokenizer, request);
  request.echo = fields.boolean("echo").value_or(false);
  if (const auto count = fields.integer("logprobs", {0, kTopLogprobsMax})) {
    request.logprobs = static_cast<int32_t>(*count);
  }
  request.generation.tokens_max = kTokensDefault;
  for (const char* name : {"max_tokens", "n_predict", "max_completion_tokens"}) {
    if (const auto most = fields.integer(name, {-1, kTokenCountMax})) {
      request.generation.tokens_max = *most;
    }
  }
  const int64_t best_of =
      fields.integer("best_of", {1, kChoicesMax}).value_or(request.generation.choices);
  if (best_of != request.generation.choices) {
    fields.fail(unsupported_field("best_of", "best_of differs from n; all choices are returned"));
  }
  request.skip_special = fields.boolean("skip_special_tokens").value_or(false);
  request.constraint = read_constraint(fields, read_response_format(fields));
  (void)fields.has("model");  // read by who asks for the answer
  request.generation.ignored = fields.ignored();
  if (fields.problem()) return *fields.problem();
  return request;
}

}  // namespace moeflux::serve
