#include "serve/request/field_list.h"

#include <algorithm>
#include <array>

namespace moeflux::serve {
namespace {

constexpr std::array kGeneration = {
    served("temperature"),
    served("top_p"),
    served("top_k"),
    served("min_p"),
    served("typical_p"),
    served("top_n_sigma"),
    served("xtc_probability"),
    served("xtc_threshold"),
    served("dynatemp_range"),
    served("dynatemp_exponent"),
    served("mirostat"),
    served("mirostat_tau"),
    served("mirostat_eta"),
    served("dry_multiplier"),
    served("dry_base"),
    served("dry_allowed_length"),
    served("dry_penalty_last_n"),
    served("dry_sequence_breakers"),
    served("repeat_penalty"),
    served("repeat_last_n"),
    served("presence_penalty"),
    served("frequency_penalty"),
    served("repetition_penalty", "over the whole text"),
    served("logit_bias"),
    served("samplers", "names or letters; `infill`, `adaptive_p` and `tfs_z` are left out"),
    served("seed"),
    served("cache_prompt"),
    served("return_progress"),
    served("timings_per_token"),
    served("ignore_eos"),
    served("min_tokens"),
    served("stop_token_ids"),
    served("allowed_token_ids"),
    served("include_stop_str_in_output"),
};

constexpr std::array kConstraints = {
    served("json_schema"),
    served("grammar", "Lark"),
    served("regex"),
    served("guided_json"),
    served("guided_regex"),
    served("guided_choice"),
    served("guided_grammar"),
    served("guided_json_object"),
    served("structured_outputs", "but for structural_tag"),
    harmless("guided_decoding_backend"),
};

constexpr std::array kTemplate = {
    served("chat_template_kwargs"),
    served("add_generation_prompt"),
    served("continue_final_message"),
    served("enable_thinking"),
    served("documents"),
    served("reasoning_budget"),
    served("thinking_budget_tokens"),
    served("thinking_token_budget"),
    refused("chat_template", "a template is chosen when the server starts"),
    refused("add_special_tokens", "the template writes what stands before a text", "[false]"),
    refused("mm_processor_kwargs", "models here read text", "[{}]"),
    refused("include_reasoning", "reasoning is always told", "[true]"),
    refused("reasoning_format", "reasoning is told apart from content",
            R"(["auto", "deepseek", "deepseek-legacy"])"),
    refused("reasoning_in_content", "reasoning is told apart from content", "[false]"),
    refused("parse_tool_calls", "calls are always read", "[true]"),
    refused("thinking_forced_open", "the template says where reasoning begins", "[false]"),
    refused("chat_format", "the model's own is read"),
    refused("chat_parser", "the model's own is read"),
    refused("generation_prompt", "the template writes it"),
};

constexpr std::array kOther = {
    refused("bad_words", "words cannot be forbidden; logit_bias forbids tokens", "[[]]"),
    refused("best_of", "all choices are returned: ask for n", "[1]"),
    refused("use_beam_search", "texts are drawn, not searched for", "[false]"),
    refused("length_penalty", "texts are drawn, not searched for", "[1]"),
    refused("early_stopping", "texts are drawn, not searched for", "[false]"),
    refused("prompt_logprobs", "/v1/completions scores a prompt with echo and logprobs"),
    refused("truncate_prompt_tokens", "a prompt is read whole", "[-1]"),
    refused("logits_processors", "there are none", "[[]]"),
    refused("logprob_token_ids", "the best tokens are scored"),
    refused("return_tokens_as_token_ids", "tokens are told as text", "[false]"),
    refused("return_token_ids", "tokens are told as text", "[false]"),
    refused("repetition_detection", "there is none"),
    refused("guided_whitespace_pattern", "white space between parts is free"),
    refused("structural_tag", "grammars and schemas hold a text"),
    refused("ebnf", "grammar takes Lark's syntax", R"([""])"),
    refused("grammar_string", "it is grammar here", R"([""])"),
    refused("regex_pattern", "it is regex here", R"([""])"),
    refused("stop_regex", "texts end before strings and tokens", R"([[], ""])"),
    refused("stop_sequences", "it is stop here", R"([[]])"),
    refused("stop_sequence", "it is stop here", R"([[]])"),
    refused("stop_strings", "it is stop here", R"([[]])"),
    refused("no_stop_trim", "include_stop_str_in_output keeps a string", "[false]"),
    refused("max_new_tokens", "it is the interface's own limit here"),
    refused("min_new_tokens", "it is min_tokens here", "[0]"),
    refused("max_time", "an answer depends on no clock"),
    refused("eos_token_id", "it is stop_token_ids here"),
    refused("ban_eos_token", "it is ignore_eos here", "[false]"),
    refused("banned_tokens", "logit_bias forbids tokens", R"([[], ""])"),
    refused("banned_strings", "words cannot be forbidden; logit_bias forbids tokens",
            R"([[], ""])"),
    refused("custom_token_bans", "logit_bias forbids tokens", R"([[], ""])"),
    refused("bad_words_ids", "logit_bias forbids tokens", "[[]]"),
    refused("suppress_tokens", "logit_bias forbids tokens", "[[]]"),
    refused("force_words_ids", "words cannot be asked for; a grammar can", "[[]]"),
    refused("custom_logit_processor", "there are none", R"([""])"),
    refused("kv_transfer_params", "states stay on this machine"),
    refused("vllm_xargs", "nothing here reads them", "[{}]"),
    refused("min_keep", "steps keep what they say", "[0, 1]"),
    refused("adaptive_target", "there is no such sampler", "[-1, -0.01]"),
    refused("grammar_lazy", "a grammar holds the text from its begin", "[false]"),
    refused("grammar_triggers", "a grammar holds the text from its begin", "[[]]"),
    refused("lora", "there are no adapters", "[[]]"),
    refused("post_sampling_probs", "log-probabilities are the model's own", "[false]"),
    harmless("preserved_tokens"),
    harmless("adaptive_decay"),
    harmless("backend_sampling"),
    harmless("spaces_between_special_tokens"),
    harmless("n_keep"),
    harmless("n_discard"),
    harmless("n_cache_reuse"),
    harmless("id_slot"),
    harmless("slot_id"),
    harmless("sse_ping_interval"),
    harmless("speculative.n_max"),
    harmless("speculative.n_min"),
    harmless("speculative.p_min"),
    harmless("speculative.type"),
    harmless("priority"),
    harmless("request_id"),
    harmless("cache_salt"),
    harmless("user"),
};

}  // namespace

FieldList::FieldList(std::string_view title,
                     std::initializer_list<std::span<const ListedField>> rows)
    : title_(title) {
  for (const auto& some : rows) {
    for (const ListedField& field : some) fields_.emplace(field.name, field);
  }
}

const ListedField* FieldList::find(std::string_view name) const {
  const auto found = fields_.find(name);
  return found == fields_.end() ? nullptr : &found->second;
}

bool FieldList::asks(const ListedField& field, const Json& value) {
  if (value.is_null()) return false;
  if (field.unless.empty()) return true;
  const Json nothing = Json::parse(field.unless, nullptr, false);
  return std::find(nothing.begin(), nothing.end(), value) == nothing.end();
}

std::span<const ListedField> generation_rows() { return kGeneration; }
std::span<const ListedField> constraint_rows() { return kConstraints; }
std::span<const ListedField> template_rows() { return kTemplate; }
std::span<const ListedField> other_rows() { return kOther; }

}  // namespace moeflux::serve
