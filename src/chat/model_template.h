// The chat template of a model, wherever it lies.
#pragma once

#include <optional>
#include <string>

#include "base/json_fwd.h"
#include "base/result.h"
#include "load/model_source.h"
#include "templates/chat_template.h"
#include "text/tokenizer.h"

namespace moeflux {

/// bos_token, eos_token and their like, as templates print them: the spelling by name.
Result<Json> load_special_tokens(const ModelSource& source);

/// A template in place of the model's own.
struct GivenTemplate {
  std::string text;
  std::string place = "the chat template that was given";  // as messages call it: its file
};

/// The model's own template, or `given`. `tokenizer` says what spells a special token; without one
/// all text is trusted. Fails with kNotFound where the model has none, and as compile_template()
/// does, naming the template's file.
Result<ChatTemplate> load_chat_template(const ModelSource& source, const Tokenizer* tokenizer,
                                        const std::optional<GivenTemplate>& given = std::nullopt);

}  // namespace moeflux
