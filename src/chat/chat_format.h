// The format of a conversation, beside the model: the chat template, which text became which token,
// and how the model writes reasoning and tool calls.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "chat/model_template.h"
#include "load/model_source.h"
#include "output/output_format.h"
#include "output/output_parser.h"
#include "templates/chat_template.h"
#include "text/tokenizer.h"

namespace moeflux {

/// A conversation as the model reads it.
struct ChatPrompt {
  std::string text;
  std::vector<TokenId> tokens;
  /// The template's text behind the last message, or where that is continued behind the one before:
  /// tells a parser where the answer begins.
  std::string tail;
};

/// Immutable; threads may share one.
class ChatFormat {
 public:
  /// `given` replaces the model's own template. The tokenizer must outlive this. Fails as
  /// load_chat_template() does.
  static Result<std::shared_ptr<const ChatFormat>> load(
      const ModelSource& source, const Tokenizer& tokenizer,
      const std::optional<GivenTemplate>& given = std::nullopt);

  /// Tools of a template that knows none are told in its messages. Fails as ChatTemplate::render()
  /// and Tokenizer::encode() do.
  Result<ChatPrompt> prompt(const TemplateRequest& request, const TemplateTime& now) const;

  const ChatTemplate& chat_template() const { return template_; }
  /// The template's text, of requests without tools.
  const std::string& template_text() const { return text_; }
  const OutputFormat& output() const { return output_; }
  /// The model's files show that it reasons: its template, or its own description of its output. A
  /// format has the tags of models like it, of which some never reason, and one of those writes
  /// its first words between the tags as soon as a grammar leaves it little else.
  bool may_reason() const { return may_reason_; }
  const MarkerTokens& markers() const { return markers_; }
  /// Tokens that close reasoning where it has gone on for too long; empty where the model's format
  /// has none.
  const std::vector<TokenId>& reasoning_close() const { return reasoning_close_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  ChatFormat(ChatTemplate chat_template, std::string text, OutputFormat output, bool may_reason,
             const Tokenizer& tokenizer);
  Result<ChatPrompt> own_prompt(const TemplateRequest& request, const TemplateTime& now) const;
  std::string tail_of(std::string_view prompt, const TemplateRequest& request,
                      const TemplateTime& now) const;

  ChatTemplate template_;
  std::string text_;
  OutputFormat output_;
  bool may_reason_;
  bool is_generic_;  // the template knows no tools
  MarkerTokens markers_;
  std::vector<TokenId> reasoning_close_;
  const Tokenizer& tokenizer_;
};

}  // namespace moeflux
