#include "serve/openai/field_lists.h"

#include <array>

namespace moeflux::serve {
namespace {

// The fields that both interfaces have.
constexpr std::array kBoth = {
    served("model"),
    served("n"),
    served("n_cmpl"),
    served("stop"),
    served("stream"),
    served("stream_options"),
    served("max_tokens"),
    served("max_completion_tokens"),
    served("n_predict"),
    served("logprobs"),
    served("response_format"),
    harmless("metadata"),
    harmless("store"),
    harmless("service_tier"),
    harmless("safety_identifier"),
    harmless("prompt_cache_key"),
    harmless("prompt_cache_retention"),
    harmless("prompt_cache_options"),
};

constexpr std::array kChat = {
    served("messages"),
    served("conversation", "our own"),
    served("tools"),
    served("functions"),
    served("tool_choice"),
    served("function_call"),
    served("parallel_tool_calls"),
    served("top_logprobs"),
    served("reasoning_effort"),
    served("thinking", "`type`"),
    served("return_routes", "our own"),
    served("verbose", "the prompt"),
    served("verbosity", "a variable of the template"),
    refused("audio", "models here write text"),
    refused("modalities", "models here write text", R"([["text"]])"),
    refused("web_search_options", "nothing here searches the web"),
    refused("moderation", "nothing here judges texts"),
    refused("echo", "an answer has no prompt; /v1/completions repeats one", "[false]"),
    refused("skip_special_tokens", "what no format reads is told as it is spelled", "[true]"),
    refused("suffix", "an answer ends a conversation", R"([""])"),
    harmless("prediction"),
};

constexpr std::array kCompletion = {
    served("prompt"),
    served("echo"),
    served("best_of", "equal to n"),
    served("parse_special"),
    served("add_special_tokens"),
    served("skip_special_tokens"),
    served("suffix", "where the vocabulary has tokens for it"),
    refused("prompt_embeds", "a prompt is text or ids"),
    served("return_progress"),
    served("timings_per_token"),
};

}  // namespace

const FieldList& chat_field_list() {
  static const FieldList kList(
      "chat completions",
      {kChat, kBoth, generation_rows(), constraint_rows(), template_rows(), other_rows()});
  return kList;
}

const FieldList& completion_field_list() {
  static const FieldList kList(
      "completions", {kCompletion, kBoth, generation_rows(), constraint_rows(), other_rows()});
  return kList;
}

}  // namespace moeflux::serve
