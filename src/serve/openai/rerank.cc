// POST /v1/rerank, as Jina, Cohere, llama.cpp and vLLM have it.
#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "base/format.h"
#include "serve/answer/answer_json.h"
#include "serve/embed.h"
#include "serve/openai/handlers.h"

namespace moeflux::serve {
namespace {

struct RerankRequest {
  std::string query;
  std::vector<std::string> documents;
  size_t top_n = 0;
  bool returns_documents = false;
};

RerankRequest read_request(Fields& fields) {
  RerankRequest request;
  const auto query = fields.text("query");
  if (!query) fields.fail(bad_field("query", "query is absent, expected a string"));
  request.query = query.value_or("");
  const Json* documents = fields.array("documents");
  if (documents == nullptr || documents->empty() || documents->size() > kTextsMax) {
    fields.fail(bad_field(
        "documents",
        formatted("documents is {}, expected a list of 1 to {} texts",
                  documents == nullptr ? "absent" : json_excerpt(*documents), kTextsMax)));
    return request;
  }
  for (size_t i = 0; i < documents->size(); ++i) {
    const Json& given = (*documents)[i];
    const auto text = given.is_object() ? given.find("text") : given.end();
    const Json& document = given.is_object() && text != given.end() ? *text : given;
    if (!document.is_string()) {
      const std::string name = formatted("documents[{}]", i);
      fields.fail(bad_field(name, formatted("{} is {}, expected a string or an object with a text",
                                            name, json_excerpt(given))));
      return request;
    }
    request.documents.push_back(document.get<std::string>());
  }
  const auto count = static_cast<int64_t>(documents->size());
  const int64_t top_n = fields.integer("top_n", {1, int64_t{1} << 30}).value_or(count);
  request.top_n = static_cast<size_t>(std::min(top_n, count));
  request.returns_documents = fields.boolean("return_documents").value_or(false);
  (void)fields.has("model");
  (void)fields.has("user");
  return request;
}

// The prompts, or nothing where one cannot be.
std::vector<std::vector<TokenId>> read_prompts(Context& service, Fields& fields,
                                               const Reranker& reranker,
                                               const RerankRequest& request) {
  std::vector<std::vector<TokenId>> prompts;
  for (size_t i = 0; i < request.documents.size(); ++i) {
    const std::string name = formatted("documents[{}]", i);
    const std::string& document = request.documents[i];
    const size_t bytes = request.query.size() + document.size();
    const auto tokens = bytes <= service.prompt_bytes_max()
                            ? reranker.prompt(request.query, document)
                            : make_error(ErrorCode::kInvalidArgument, "the text is too long");
    if (tokens.ok() && static_cast<int64_t>(tokens->size()) <= service.context_length()) {
      prompts.push_back(*tokens);
      continue;
    }
    const bool is_long = tokens.ok() || bytes > service.prompt_bytes_max();
    if (!is_long) {
      fields.fail(api_error(tokens.error()));
    } else {
      fields.fail({.type = std::string(kTooLong),
                   .code = "context_length_exceeded",
                   .message = formatted("{} and the query exceed the context of {} tokens (see "
                                        "--ctx-size)",
                                        name, service.context_length()),
                   .param = name});
    }
    return {};
  }
  return prompts;
}

}  // namespace

void rerank(Call& call) {
  Context& service = call.service();
  const Result<Reranker>& reranker = service.reranker();
  if (!reranker.ok()) {
    ApiError error = api_error(reranker.error());
    error.status = 501;
    error.type = "not_supported_error";
    return call.fail(error);
  }
  if (!may_evaluate(call)) return;
  Fields fields(call.body);
  const RerankRequest request = read_request(fields);
  if (fields.problem()) return call.fail(*fields.problem());
  const std::vector<std::string> ignored = fields.ignored();
  service.state().note_ignored(ignored);
  const auto prompts = read_prompts(service, fields, *reranker, request);
  if (fields.problem()) return call.fail(*fields.problem());
  const auto scores = reranker->score(
      service.model(), prompts,
      [&](const std::function<Status()>& step) { return service.in_turn(call, step); });
  if (!scores.ok()) return fail_evaluation(call, scores.error());
  std::vector<size_t> order(scores->size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return (*scores)[a] > (*scores)[b]; });
  order.resize(request.top_n);
  Json results = Json::array();
  for (const size_t i : order) {
    Json result = {{"index", i}, {"relevance_score", (*scores)[i]}};
    if (request.returns_documents) result["document"] = {{"text", request.documents[i]}};
    results.push_back(std::move(result));
  }
  const int64_t tokens = EmbedRequest{.texts = prompts}.tokens();
  call.target.response->count_tokens(tokens, 0);
  Json answer = {{"id", make_id("rerank-")},
                 {"object", "list"},
                 {"model", service.options().model_name},
                 {"results", std::move(results)},
                 {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}};
  if (!ignored.empty()) answer["moeflux"] = {{"ignored", ignored}};
  call.answer(answer);
}

}  // namespace moeflux::serve
