// Embeddings in moeflux.h.
#include <algorithm>
#include <string_view>
#include <vector>

#include "base/format.h"
#include "chat/embedding/embedding.h"
#include "library/options.h"
#include "library/outcome.h"

namespace moeflux {
namespace {

Result<EmbeddingSpec> spec_of(const OpenModel& open, const mf_embed_options& options) {
  if (options.pooling == nullptr) return open.text.embedding;
  const auto pooling = find_pooling(options.pooling);
  if (!pooling) {
    return make_error(ErrorCode::kInvalidArgument,
                      "mf_embed_options: pooling is '{}', expected last, mean or cls",
                      options.pooling);
  }
  EmbeddingSpec spec = open.text.embedding.ok() ? *open.text.embedding : EmbeddingSpec{};
  spec.pooling = *pooling;
  return spec;
}

Result<std::vector<std::vector<TokenId>>> tokens_of(const OpenModel& open,
                                                    const EmbeddingSpec& spec,
                                                    std::span<const mf_text> texts,
                                                    const char* prompt_name) {
  if (!open.text.tokenizer.ok()) return open.text.tokenizer.error();
  std::vector<std::vector<TokenId>> tokens;
  for (size_t i = 0; i < texts.size(); ++i) {
    const mf_text& text = texts[i];
    if (text.text == nullptr && text.bytes > 0) return null_argument("text");
    auto ids = embedding_tokens(*open.text.tokenizer, spec,
                                text.bytes == 0 ? "" : std::string_view(text.text, text.bytes),
                                prompt_name == nullptr ? "" : prompt_name);
    if (!ids.ok()) return ids.error().with_context(formatted("text {}", i));
    tokens.push_back(std::move(ids).value());
  }
  return tokens;
}

}  // namespace
}  // namespace moeflux

using moeflux::guarded;
using moeflux::null_argument;
using moeflux::Outcome;
using moeflux::Turn;

mf_code mf_model_embed(mf_model* model, const mf_text* texts, size_t count,
                       const mf_embed_options* options, float* embeddings, size_t capacity,
                       size_t* dimensions, mf_error* error) noexcept {
  return guarded(error, [&]() -> Outcome {
    if (model == nullptr) return null_argument("model");
    if (texts == nullptr && count > 0) return null_argument("texts");
    if (embeddings == nullptr && capacity > 0) return null_argument("embeddings");
    if (dimensions == nullptr) return null_argument("dimensions");
    const std::shared_ptr<moeflux::OpenModel> open = model->open;  // the handle may be closed
    MF_ASSIGN_OR_RETURN(const mf_embed_options read,
                        moeflux::read_struct("mf_embed_options", options));
    MF_ASSIGN_OR_RETURN(const moeflux::EmbeddingSpec spec, moeflux::spec_of(*open, read));
    const int64_t width = open->engine->spec().hidden_size;
    if (read.dimensions < 0 || read.dimensions > width) {
      return moeflux::make_error(moeflux::ErrorCode::kInvalidArgument,
                                 "mf_embed_options: dimensions is {}, the model has {}",
                                 read.dimensions, width);
    }
    *dimensions = static_cast<size_t>(read.dimensions == 0 ? width : read.dimensions);
    const size_t each = *dimensions;
    if (capacity / each < count) {
      return {MF_ERROR_BUFFER_TOO_SMALL,
              moeflux::formatted("{} embeddings of {} numbers, the buffer takes {} numbers", count,
                                 each, capacity)};
    }
    if (count == 0) return {};
    MF_ASSIGN_OR_RETURN(const auto tokens,
                        moeflux::tokens_of(*open, spec, {texts, count}, read.prompt_name));
    const Turn turn(open, {}, open->turn_timeout_ms);
    if (turn.state() == Turn::State::kBusy) return moeflux::busy(open->turn_timeout_ms);
    if (turn.state() == Turn::State::kCancelled) return moeflux::cancelled_waiting();
    const auto unless_aborted =
        [&](const std::function<moeflux::Status()>& step) -> moeflux::Status {
      if (!open->is_aborted()) return step();
      return moeflux::make_error(moeflux::ErrorCode::kCancelled, "stopped");
    };
    MF_ASSIGN_OR_RETURN(const auto vectors,
                        moeflux::embed(*open, spec, tokens,
                                       {.dimensions = read.dimensions, .in_turn = unless_aborted}));
    for (size_t i = 0; i < count; ++i) std::ranges::copy(vectors[i], embeddings + i * each);
    return {};
  });
}
