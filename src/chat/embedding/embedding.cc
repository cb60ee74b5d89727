#include "chat/embedding/embedding.h"

#include <cmath>
#include <string>

#include "base/format.h"
#include "base/json.h"

namespace moeflux {
namespace {

LogitsMode rows_for(Pooling pooling) {
  switch (pooling) {
    case Pooling::kLast:
      return LogitsMode::kLast;
    case Pooling::kMean:
    case Pooling::kCls:
      return LogitsMode::kAll;
  }
  __builtin_unreachable();
}

// In f64 and in the order of positions, so that pieces of a text change nothing.
void add_rows(std::vector<double>& sums, std::span<const float> rows) {
  for (size_t i = 0; i < rows.size(); ++i) sums[i % sums.size()] += static_cast<double>(rows[i]);
}

void pool(Pooling pooling, int64_t position, std::span<const float> rows,
          std::vector<double>& sums) {
  switch (pooling) {
    case Pooling::kLast:
      return add_rows(sums, rows.last(sums.size()));
    case Pooling::kMean:
      return add_rows(sums, rows);
    case Pooling::kCls:
      if (position == 0) add_rows(sums, rows.first(sums.size()));
      return;
  }
  __builtin_unreachable();
}

std::vector<float> finish(std::vector<double> vector, double divisor, bool normalize,
                          size_t dimensions) {
  vector.resize(dimensions);
  double squares = 0.0;
  for (double& number : vector) {
    number /= divisor;
    squares += number * number;
  }
  const double length = normalize && squares > 0.0 ? std::sqrt(squares) : 1.0;
  std::vector<float> numbers;
  numbers.reserve(dimensions);
  for (const double number : vector) numbers.push_back(static_cast<float>(number / length));
  return numbers;
}

std::string prompt_names(const EmbeddingSpec& spec) {
  constexpr size_t kShownMax = 12;
  std::string names;
  size_t count = 0;
  for (const auto& [name, text] : spec.prompts) {
    if (++count <= kShownMax) names += (names.empty() ? "" : ", ") + json_excerpt(Json(name));
  }
  if (count > kShownMax) names += ", ...";
  return names.empty() ? "the model's files have none" : "the model has " + names;
}

}  // namespace

Result<std::vector<TokenId>> embedding_tokens(const Tokenizer& tokenizer, const EmbeddingSpec& spec,
                                              std::string_view text, std::string_view prompt_name) {
  std::string whole;
  const std::string_view name = prompt_name.empty() ? spec.default_prompt : prompt_name;
  if (!name.empty()) {
    const auto found = spec.prompts.find(name);
    if (found == spec.prompts.end()) {
      return make_error(ErrorCode::kInvalidArgument, "prompt_name is {}, {}",
                        json_excerpt(Json(std::string(name))), prompt_names(spec));
    }
    whole = found->second;
  }
  whole += text;
  MF_ASSIGN_OR_RETURN(std::vector<TokenId> tokens,
                      tokenizer.encode(whole, {.add_special_tokens = true}));
  if (tokens.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "the text has no tokens");
  }
  return tokens;
}

Result<std::vector<std::vector<float>>> embed(OpenModel& model, const EmbeddingSpec& spec,
                                              std::span<const std::vector<TokenId>> texts,
                                              const EmbedOptions& options) {
  const int64_t width = model.engine->spec().hidden_size;
  if (options.dimensions < 0 || options.dimensions > width) {
    return make_error(ErrorCode::kInvalidArgument, "dimensions is {}, the model has {}",
                      options.dimensions, width);
  }
  std::vector<std::vector<double>> sums(texts.size());
  MF_RETURN_IF_ERROR(
      evaluate_texts(model, texts,
                     {.hidden = rows_for(spec.pooling),
                      .on_hidden =
                          [&](size_t text, int64_t position, std::span<const float> rows) {
                            sums[text].resize(static_cast<size_t>(width));
                            pool(spec.pooling, position, rows, sums[text]);
                          },
                      .in_turn = options.in_turn}));
  const int64_t dimensions = options.dimensions == 0 ? width : options.dimensions;
  std::vector<std::vector<float>> embeddings;
  for (size_t i = 0; i < texts.size(); ++i) {
    const bool is_mean = spec.pooling == Pooling::kMean;
    embeddings.push_back(finish(std::move(sums[i]),
                                is_mean ? static_cast<double>(texts[i].size()) : 1.0,
                                spec.normalize, static_cast<size_t>(dimensions)));
  }
  return embeddings;
}

}  // namespace moeflux
