#include "serve/embed.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/format.h"
#include "chat/embedding/embedding.h"

namespace moeflux::serve {
namespace {

ApiError too_long(const std::string& name, size_t tokens, int64_t context) {
  return {.type = std::string(kTooLong),
          .code = "context_length_exceeded",
          .message = formatted("{} has {} tokens, the context takes {} (see --ctx-size)", name,
                               tokens, context),
          .param = name,
          .details = {{"n_prompt_tokens", tokens}, {"n_ctx", context}}};
}

class TextsReader {
 public:
  TextsReader(Context& service, Fields& fields, const TextsForm& form)
      : service_(service),
        fields_(fields),
        form_(form),
        prompt_name_(fields.text("prompt_name").value_or("")) {}

  std::vector<std::vector<TokenId>> read() {
    const std::string field(form_.field);
    const Json* given = fields_.find(field);
    if (!service_.model().text.embedding.ok()) {
      fields_.fail(api_error(service_.model().text.embedding.error()));
    } else if (given == nullptr ||
               (given->is_array() && given->size() > kTextsMax && !given->front().is_number())) {
      fail_form(field, given);
    } else if (!given->is_array() || (!given->empty() && given->front().is_number())) {
      add(field, *given);
    } else {
      for (size_t i = 0; i < given->size() && !fields_.problem(); ++i) {
        add(formatted("{}[{}]", field, i), (*given)[i]);
      }
    }
    return std::move(texts_);
  }

 private:
  void fail_form(const std::string& name, const Json* found) {
    fields_.fail(bad_field(name, formatted("{} is {}, expected a string{} or a list of at most {}",
                                           name, found == nullptr ? "absent" : json_excerpt(*found),
                                           form_.takes_ids ? ", ids of tokens" : "", kTextsMax)));
  }

  void add(const std::string& name, const Json& value) {
    if (value.is_string()) return add_text(name, value.get_ref<const std::string&>());
    if (form_.takes_ids && value.is_array()) return add_ids(name, value);
    fail_form(name, &value);
  }

  void add_text(const std::string& name, const std::string& text) {
    if (text.size() > service_.prompt_bytes_max() && !form_.cuts) {
      return fields_.fail(
          {.type = std::string(kTooLong),
           .code = "context_length_exceeded",
           .message =
               formatted("{} has {} bytes, the context's {} tokens spell at most {} (see "
                         "--ctx-size)",
                         name, text.size(), service_.context_length(), service_.prompt_bytes_max()),
           .param = name});
    }
    const std::string_view read = std::string_view(text).substr(0, service_.prompt_bytes_max());
    auto tokens = embedding_tokens(service_.tokenizer(), *service_.model().text.embedding, read,
                                   prompt_name_);
    if (!tokens.ok()) {
      ApiError error = api_error(tokens.error());
      error.param = tokens.error().message().starts_with("prompt_name") ? "prompt_name" : name;
      return fields_.fail(std::move(error));
    }
    add_tokens(name, std::move(tokens).value());
  }

  void add_ids(const std::string& name, const Json& ids) {
    std::vector<TokenId> tokens;
    const int64_t vocab_size = service_.model().engine->spec().vocab_size;
    for (size_t i = 0; i < ids.size(); ++i) {
      const Result<int64_t> id = json_int(ids[i], name);
      if (!id.ok() || *id < 0 || *id >= vocab_size) {
        const std::string which = formatted("{}[{}]", name, i);
        return fields_.fail(bad_field(which, formatted("{} is {}, expected an id below {}", which,
                                                       json_excerpt(ids[i]), vocab_size)));
      }
      tokens.push_back(static_cast<TokenId>(*id));
    }
    if (tokens.empty()) return fields_.fail(bad_field(name, name + " has no tokens"));
    add_tokens(name, std::move(tokens));
  }

  void add_tokens(const std::string& name, std::vector<TokenId> tokens) {
    const int64_t most = service_.context_length();
    const auto count = static_cast<int64_t>(tokens.size());
    if (count > most && !form_.cuts) return fields_.fail(too_long(name, tokens.size(), most));
    if (count > most) cut(tokens, static_cast<size_t>(most));
    texts_.push_back(std::move(tokens));
  }

  // Tokens that the tokenizer puts behind every text stay: some models pool them.
  void cut(std::vector<TokenId>& tokens, size_t most) const {
    const std::vector<TokenId>& behind = service_.tokenizer().suffix();
    const size_t kept = most - std::min(most, behind.size());
    tokens.erase(tokens.begin() + static_cast<ptrdiff_t>(kept),
                 tokens.end() - static_cast<ptrdiff_t>(most - kept));
  }

  Context& service_;
  Fields& fields_;
  const TextsForm& form_;
  const std::string prompt_name_;
  std::vector<std::vector<TokenId>> texts_;
};

}  // namespace

int64_t EmbedRequest::tokens() const {
  int64_t tokens = 0;
  for (const auto& text : texts) tokens += static_cast<int64_t>(text.size());
  return tokens;
}

bool may_evaluate(Call& call) {
  if (call.may_take_long) return true;
  call.is_put_off = call.evaluates = true;
  return false;
}

EmbedRequest read_embed_request(Context& service, Fields& fields, const TextsForm& form) {
  EmbedRequest request;
  const int64_t width = service.model().engine->spec().hidden_size;
  request.dimensions = fields.integer("dimensions", {1, width}).value_or(0);
  request.texts = TextsReader(service, fields, form).read();
  const auto numbers = static_cast<size_t>(request.dimensions == 0 ? width : request.dimensions);
  if (request.texts.size() * numbers > kNumbersMax) {
    fields.fail(
        bad_field(std::string(form.field),
                  formatted("{} has {} texts, whose {} numbers each are more than {} together",
                            form.field, request.texts.size(), numbers, kNumbersMax)));
  }
  request.ignored = fields.ignored();
  service.state().note_ignored(request.ignored);
  return request;
}

std::optional<std::vector<std::vector<float>>> embed(Call& call, const EmbedRequest& request) {
  auto embeddings = moeflux::embed(
      call.service().model(), *call.service().model().text.embedding, request.texts,
      {.dimensions = request.dimensions, .in_turn = [&call](const std::function<Status()>& step) {
         return call.service().in_turn(call, step);
       }});
  if (!embeddings.ok()) {
    fail_evaluation(call, embeddings.error());
    return std::nullopt;
  }
  call.target.response->count_tokens(request.tokens(), 0);
  return std::move(embeddings).value();
}

std::string number_list(std::span<const float> numbers) {
  std::string text = "[";
  text.reserve(12 * numbers.size() + 2);
  for (const float number : numbers) {
    if (text.size() > 1) text += ',';
    text += std::isfinite(number) ? formatted("{}", number) : "null";
  }
  return text + "]";
}

void send_json(const Call& call, std::string text) {
  call.target.response->send(200, {{"Content-Type", "application/json"}}, std::move(text));
}

void fail_evaluation(const Call& call, const Error& error) {
  if (!call.target.response->is_closed()) call.fail(api_error(error));
}

}  // namespace moeflux::serve
