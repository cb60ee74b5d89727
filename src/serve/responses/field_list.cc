#include "serve/responses/field_list.h"

#include <array>

namespace moeflux::serve {
namespace {

constexpr std::array kResponses = {
    served("model"),
    served("input"),
    served("instructions"),
    served("previous_response_id"),
    served("max_output_tokens"),
    served("max_tool_calls", "told back"),
    served("stop"),
    served("stream"),
    served("store"),
    served("tools", "functions"),
    served("tool_choice"),
    served("parallel_tool_calls"),
    served("text"),
    served("reasoning", "`effort`"),
    served("include", "log-probabilities"),
    served("top_logprobs"),
    served("truncation", "told back"),
    served("metadata", "told back"),
    served("safety_identifier", "told back"),
    served("prompt_cache_key", "told back"),
    refused("background", "answers are given while you wait", "[false]"),
    refused("conversation", "previous_response_id goes on from a response"),
    refused("prompt", "no prompts are stored here"),
    refused("response_format", "it is text.format in OpenAI's responses"),
    harmless("service_tier"),
    harmless("stream_options"),
    harmless("prompt_cache_retention"),
    harmless("prompt_cache_options"),
};

}  // namespace

const FieldList& responses_field_list() {
  static const FieldList kList(
      "OpenAI's responses",
      {kResponses, generation_rows(), constraint_rows(), template_rows(), other_rows()});
  return kList;
}

}  // namespace moeflux::serve
