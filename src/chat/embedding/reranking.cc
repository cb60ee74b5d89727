#include "chat/embedding/reranking.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/format.h"

namespace moeflux {
namespace {

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

/// The answers of a model that only the user calls a reranker.
Result<RerankSpec> asked_spec(const Tokenizer& tokenizer, bool has_head) {
  RerankSpec spec{.prompt = std::string(published_rerank_prompt())};
  if (has_head) return spec;
  const auto yes = tokenizer.find("yes");
  const auto no = tokenizer.find("no");
  if (!yes || !no) {
    return make_error(ErrorCode::kUnsupported,
                      "the vocabulary has no tokens yes and no, by which models rerank");
  }
  spec.answers = {.yes = *yes, .no = *no};
  return spec;
}

}  // namespace

Result<Reranker> Reranker::create(const OpenModel& model, std::shared_ptr<const ChatFormat> format,
                                  bool is_asked) {
  if (!model.text.tokenizer.ok()) return model.text.tokenizer.error();
  if (!model.text.embedding.ok()) return model.text.embedding.error();
  const Tokenizer& tokenizer = *model.text.tokenizer;
  Reranker made(tokenizer);
  MF_ASSIGN_OR_RETURN(made.head_, read_score_head(model.engine->loaded()));
  const std::optional<RerankSpec>& published = model.text.embedding->rerank;
  if (!published && !is_asked) {
    return make_error(ErrorCode::kUnsupported,
                      "the model does not rerank: its files have no LogitScore in modules.json and "
                      "no pooling_type 4; --reranking says that it answers yes or no to "
                      "the usual prompt");
  }
  if (published) {
    made.spec_ = *published;
  } else {
    MF_ASSIGN_OR_RETURN(made.spec_, asked_spec(tokenizer, made.head_.has_value()));
  }
  const ModelSpec& spec = model.engine->spec();
  if (made.spec_.answers) {
    made.head_.reset();
    for (const TokenId id : {made.spec_.answers->yes, made.spec_.answers->no}) {
      if (id < spec.vocab_size) continue;
      return make_error(ErrorCode::kCorruption, "LogitScore has token {}, the vocabulary {}", id,
                        spec.vocab_size);
    }
  } else if (!made.head_) {
    return make_error(ErrorCode::kNotFound,
                      "the model's pooling_type is 4, and it has no tensor cls.output.weight");
  } else if (made.spec_.label >= made.head_->rows.size() / static_cast<size_t>(spec.hidden_size)) {
    return make_error(ErrorCode::kCorruption, "tensor {} has fewer rows than labels",
                      made.head_->name);
  }
  if (made.spec_.prompt.empty()) {
    made.format_ = std::move(format);
    if (made.format_ == nullptr) made.spec_.prompt = published_rerank_prompt();
  }
  return made;
}

Result<std::vector<TokenId>> Reranker::prompt(std::string_view query,
                                              std::string_view document) const {
  if (format_ != nullptr) {
    const TemplateRequest request{
        .messages = Json::array({{{"role", "query"}, {"content", std::string(query)}},
                                 {{"role", "document"}, {"content", std::string(document)}}})};
    MF_ASSIGN_OR_RETURN(ChatPrompt prompt, format_->prompt(request, local_time_now()));
    return std::move(prompt.tokens);
  }
  std::string text;
  std::vector<ByteRange> inert;
  std::string_view rest = spec_.prompt;
  while (!rest.empty()) {
    const size_t at = std::min(rest.find("{query}"), rest.find("{document}"));
    if (at == std::string_view::npos) break;
    text += rest.substr(0, at);
    rest.remove_prefix(at);
    const bool is_query = rest.starts_with("{query}");
    const std::string_view given = is_query ? query : document;
    inert.push_back({text.size(), text.size() + given.size()});
    text += given;
    rest.remove_prefix(std::string_view(is_query ? "{query}" : "{document}").size());
  }
  text += rest;
  std::erase_if(inert, [](const ByteRange& range) { return range.begin == range.end; });
  return tokenizer_->encode(text, {.inert_ranges = inert});
}

double Reranker::score_of(std::span<const float> row) const {
  if (!head_) {
    const auto logit = [&](TokenId id) {
      return static_cast<double>(row[static_cast<size_t>(id)]);
    };
    return sigmoid(logit(spec_.answers->yes) - logit(spec_.answers->no));
  }
  const std::vector<double> scores = head_->scores(row);
  if (scores.size() == 1) return sigmoid(scores.front());
  double sum = 0.0;
  for (const double score : scores) sum += std::exp(score - scores[spec_.label]);
  return 1.0 / sum;
}

Result<std::vector<double>> Reranker::score(OpenModel& model,
                                            std::span<const std::vector<TokenId>> prompts,
                                            const InTurn& in_turn) const {
  std::vector<double> scores(prompts.size());
  const auto take = [&](size_t text, int64_t, std::span<const float> rows) {
    scores[text] = score_of(rows);
  };
  TextSteps steps{.in_turn = in_turn};
  if (head_) {
    steps.hidden = LogitsMode::kLast;
    steps.on_hidden = take;
  } else {
    steps.logits = LogitsMode::kLast;
    steps.on_logits = take;
  }
  MF_RETURN_IF_ERROR(evaluate_texts(model, prompts, steps));
  return scores;
}

}  // namespace moeflux
