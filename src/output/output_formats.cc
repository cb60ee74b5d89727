// The formats that we know, a function each. They are named by what they look like; families of
// models that write them are told in comments, as far as one knows.
#include <algorithm>

#include "output/output_format.h"

namespace moeflux {
namespace {

/// The tags that most formats have.
OutputFormat thinking(std::string name) {
  OutputFormat format;
  format.name = std::move(name);
  format.reasoning_open = {"<think>"};
  format.reasoning_close = {"</think>"};
  return format;
}

// <tool_call>{"name": N, "arguments": {}}</tool_call>: Hermes, Qwen3, Granite 4.
OutputFormat tagged_json() {
  OutputFormat format = thinking("tagged_json");
  format.signs = {{"<tool_call>", "</tool_call>"}};
  format.call_open = {"<tool_call>"};
  format.call_close = {"</tool_call>"};
  format.takes_json = true;
  return format;
}

// The same with the answer in tags of its own: ERNIE 4.5.
OutputFormat tagged_json_response() {
  OutputFormat format = tagged_json();
  format.name = "tagged_json_response";
  format.signs = {{"<tool_call>", "<response>"}};
  format.dropped = {"<response>", "</response>"};
  return format;
}

// <tool_call><function=N><parameter=K>V</parameter></function></tool_call>: Qwen3-Coder, Qwen3.5,
// MiMo, Nemotron 3.
OutputFormat function_tags() {
  OutputFormat format = thinking("function_tags");
  format.signs = {{"<function=", "<parameter="}};
  format.section_open = {"<tool_call>"};
  format.section_close = {"</tool_call>"};
  format.call_open = {"<function="};
  format.call_close = {"</function>"};
  format.takes_named = true;
  format.takes_json = true;  // in the section: what an older generation of these models wrote
  format.name_in_tag = true;
  format.arguments = ArgumentSyntax::kTagged;
  format.key_open = {"<parameter="};
  format.value_close = {"\n</parameter>", "</parameter>"};
  format.value_end = {"\n<parameter=", "\n</function>"};
  format.value_on_lines = true;
  return format;
}

// DeepSeek V3 and R1: the call's type, its name, and JSON in a fence.
OutputFormat fenced_json() {
  OutputFormat format = thinking("fenced_json");
  format.signs = {{"<｜tool▁call▁begin｜>", "```json"}};
  format.section_open = {"<｜tool▁calls▁begin｜>"};
  format.section_close = {"<｜tool▁calls▁end｜>"};
  format.call_open = {"<｜tool▁call▁begin｜>"};
  format.call_close = {"<｜tool▁call▁end｜>"};
  format.takes_named = true;
  format.name_prefix = {"function<｜tool▁sep｜>"};
  format.fence_open = {"```json", "```"};
  format.fence_close = {"```"};
  return format;
}

// DeepSeek V3.1: the name, a separator, JSON.
OutputFormat separated_json() {
  OutputFormat format = fenced_json();
  format.name = "separated_json";
  format.signs = {{"<｜tool▁call▁begin｜>", "<｜tool▁sep｜>"}};
  format.name_prefix.clear();
  format.name_close = {"<｜tool▁sep｜>"};
  return format;
}

// <｜DSML｜invoke name="N"><｜DSML｜parameter name="K" string="true">V</｜DSML｜parameter>:
// DeepSeek V3.2 and V4; V4.1 has a space before a tag's name, and "calls" for the section's.
OutputFormat attribute_tags() {
  OutputFormat format = thinking("attribute_tags");
  format.signs = {{"｜DSML｜"}};
  for (const std::string space : {"", " "}) {
    const std::string open = "<｜DSML｜" + space;
    const std::string close = "</｜DSML｜" + space;
    for (const char* section : {"function_calls>", "tool_calls>", "calls>"}) {
      format.section_open.push_back(open + section);
      format.section_close.push_back(close + section);
    }
    format.call_open.push_back(open + "invoke name=");
    format.call_close.push_back(close + "invoke>");
    format.key_open.push_back(open + "parameter name=");
    format.value_close.push_back(close + "parameter>");
  }
  format.takes_named = true;
  format.name_in_tag = true;
  format.arguments = ArgumentSyntax::kTagged;
  format.untyped = kTypeAny;
  return format;
}

// <tool_call>N<arg_key>K</arg_key><arg_value>V</arg_value></tool_call>: GLM 4.5 to 5, Ling 3.
OutputFormat key_value_tags() {
  OutputFormat format = thinking("key_value_tags");
  format.signs = {{"<tool_call>", "<arg_key>"}};
  format.call_open = {"<tool_call>"};
  format.call_close = {"</tool_call>"};
  format.takes_named = true;
  format.arguments = ArgumentSyntax::kTagged;
  format.key_open = {"<arg_key>"};
  format.key_close = {"</arg_key>"};
  format.value_open = {"<arg_value>"};
  format.value_close = {"</arg_value>"};
  format.untyped = kTypeAny;
  return format;
}

// The same in a section, with a separator behind the name: Hunyuan.
OutputFormat separated_key_value_tags() {
  OutputFormat format = key_value_tags();
  format.name = "separated_key_value_tags";
  format.signs = {{"<tool_sep>", "<arg_key>"}};
  format.section_open = {"<tool_calls>"};
  format.section_close = {"</tool_calls>"};
  format.name_close = {"<tool_sep>"};
  return format;
}

// The same tags with ":opensource" before their ends: Hy3.
OutputFormat suffixed_key_value_tags() {
  OutputFormat format = separated_key_value_tags();
  format.name = "suffixed_key_value_tags";
  format.signs = {{"<tool_sep:opensource>", "<arg_key:opensource>"}};
  for (std::vector<std::string>* tags :
       {&format.reasoning_open, &format.reasoning_close, &format.section_open,
        &format.section_close, &format.call_open, &format.call_close, &format.name_close,
        &format.key_open, &format.key_close, &format.value_open, &format.value_close}) {
    for (std::string& tag : *tags) tag.insert(tag.size() - 1, ":opensource");
  }
  return format;
}

// <|tool_call_begin|>functions.N:I<|tool_call_argument_begin|>{}<|tool_call_end|>: Kimi K2.
OutputFormat numbered_names() {
  OutputFormat format = thinking("numbered_names");
  format.signs = {{"<|tool_call_argument_begin|>"}};
  format.section_open = {"<|tool_calls_section_begin|>"};
  format.section_close = {"<|tool_calls_section_end|>"};
  format.call_open = {"<|tool_call_begin|>"};
  format.call_close = {"<|tool_call_end|>"};
  format.takes_named = true;
  format.name_close = {"<|tool_call_argument_begin|>"};
  format.ids = CallIdRule::kFromName;
  return format;
}

// <|open|>call tool="N" index="I"<|sep|><|open|>argument key="K" type="T"<|sep|>V<|close|>argument
// <|sep|><|close|>call<|sep|>, in channels as reasoning and answer are: Kimi K3.
OutputFormat separated_tags() {
  OutputFormat format;
  format.name = "separated_tags";
  format.signs = {{"<|open|>", "<|sep|>"}};
  format.reasoning_open = {"<|open|>think<|sep|>"};
  format.reasoning_close = {"<|close|>think<|sep|>"};
  format.dropped = {"<|open|>response<|sep|>", "<|close|>response<|sep|>",
                    "<|close|>message<|sep|>"};
  format.section_open = {"<|open|>tools<|sep|>"};
  format.section_close = {"<|close|>tools<|sep|>"};
  format.call_open = {"<|open|>call tool="};
  format.call_close = {"<|close|>call<|sep|>"};
  format.takes_named = true;
  format.name_in_tag = true;
  format.name_close = {"<|sep|>"};
  format.count_attribute = " index=";
  format.arguments = ArgumentSyntax::kTagged;
  format.key_open = {"<|open|>argument key="};
  format.key_close = {"<|sep|>"};
  format.value_close = {"<|close|>argument<|sep|>"};
  return format;
}

// <minimax:tool_call><invoke name="N"><parameter name="K">V</parameter></invoke>: MiniMax M2.
OutputFormat invoke_tags() {
  OutputFormat format = thinking("invoke_tags");
  format.signs = {{":tool_call>", "<invoke name="}};
  format.section_open = {"<minimax:tool_call>"};
  format.section_close = {"</minimax:tool_call>"};
  format.call_open = {"<invoke name="};
  format.call_close = {"</invoke>"};
  format.takes_named = true;
  format.name_in_tag = true;
  format.arguments = ArgumentSyntax::kTagged;
  format.key_open = {"<parameter name="};
  format.value_close = {"</parameter>"};
  return format;
}

// <dots_function_call><invoke name="N"><parameter name="K">V</parameter></invoke>: dots3-note.
OutputFormat wrapped_invoke_tags() {
  OutputFormat format = invoke_tags();
  format.name = "wrapped_invoke_tags";
  format.signs = {{"<dots_function_call>"}};
  format.section_open = {"<dots_function_call>"};
  format.section_close = {"</dots_function_call>"};
  return format;
}

// ]<]minimax[>[ before each tag, and a tag of its name around each value, objects and lists as
// elements: MiniMax M3.
OutputFormat element_tags() {
  const std::string prefix = "]<]minimax[>[";
  OutputFormat format = invoke_tags();
  format.name = "element_tags";
  format.signs = {{prefix + "<invoke name="}};
  format.reasoning_open = {"<mm:think>"};
  format.reasoning_close = {"</mm:think>"};
  format.section_open = {prefix + "<tool_call>"};
  format.section_close = {prefix + "</tool_call>"};
  format.call_open = {prefix + "<invoke name="};
  format.call_close = {prefix + "</invoke>"};
  format.arguments = ArgumentSyntax::kElements;
  format.key_open = {prefix + "<"};
  format.untyped = kTypeAny;
  format.value_close = {prefix + "</"};
  return format;
}

// The same tags with a prefix, within markers like DeepSeek's: Step3.
OutputFormat prefixed_invoke_tags() {
  OutputFormat format = thinking("prefixed_invoke_tags");
  format.signs = {{"<steptml:"}};
  format.section_open = {"<｜tool_calls_begin｜>"};
  format.section_close = {"<｜tool_calls_end｜>"};
  format.call_open = {"<｜tool_call_begin｜>"};
  format.call_close = {"</steptml:invoke>", "<｜tool_call_end｜>"};
  format.takes_named = true;
  format.name_prefix = {"function<｜tool_sep｜><steptml:invoke name=", "<steptml:invoke name="};
  format.name_in_tag = true;
  format.arguments = ArgumentSyntax::kTagged;
  format.key_open = {"<steptml:parameter name="};
  format.value_close = {"</steptml:parameter>"};
  return format;
}

// <|channel|>commentary to=functions.N <|constrain|>json<|message|>{}<|call|>: gpt-oss.
OutputFormat channels() {
  OutputFormat format;
  format.name = "channels";
  format.signs = {{"<|channel|>", "<|message|>"}};
  format.channel = {"<|channel|>"};
  format.message = {"<|message|>"};
  format.start = {"<|start|>"};
  format.message_end = {"<|end|>", "<|return|>", "<|call|>"};
  format.call_close = {"<|call|>", "<|end|>", "<|return|>"};
  format.reasoning_channel = "analysis";
  format.addressed = true;
  return format;
}

// to=N<|message|><atem:function_calls><atem:invoke name="N"><atem:parameter name="K">V
// </atem:parameter></atem:invoke></atem:function_calls>: Muse Glimmer.
OutputFormat addressed_invoke_tags() {
  OutputFormat format;
  format.name = "addressed_invoke_tags";
  format.signs = {{"<atem:invoke name="}};
  format.reasoning_open = {"to=self<|message|>"};
  format.section_open = {"<atem:function_calls>"};
  format.section_close = {"</atem:function_calls>"};
  format.call_open = {"<atem:invoke name="};
  format.call_close = {"</atem:invoke>"};
  format.takes_named = true;
  format.name_in_tag = true;
  format.arguments = ArgumentSyntax::kTagged;
  format.key_open = {"<atem:parameter name="};
  format.value_close = {"</atem:parameter>"};
  format.message = {"<|message|>"};
  format.start = {"<|start|>"};
  format.message_end = {"<|eom|>", "<|eot|>"};
  format.addressed = true;
  return format;
}

// <|message_model|>N<|content_invoke_tool_json|>{"name": N, "args": {}}<|end_message|>: Inkling.
OutputFormat typed_messages() {
  OutputFormat format;
  format.name = "typed_messages";
  format.signs = {{"<|content_invoke_tool_json|>"}};
  format.reasoning_open = {"<|content_thinking|>"};
  format.call_open = {"<|content_invoke_tool_json|>"};
  format.call_close = {"<|end_message|>"};
  format.takes_json = true;
  format.argument_keys = {"args"};
  format.message = {"<|content_text|>"};
  format.start = {"<|message_model|>"};
  format.message_end = {"<|end_message|>", "<|content_model_end_sampling|>"};
  return format;
}

// <|tool_call>call:N{key:<|"|>text<|"|>}<tool_call|>: Gemma 4.
OutputFormat compact_calls() {
  OutputFormat format;
  format.name = "compact_calls";
  format.signs = {{"<|tool_call>", "call:"}};
  format.reasoning_open = {"<|channel>thought"};
  format.reasoning_close = {"<channel|>"};
  format.call_open = {"<|tool_call>"};
  format.call_close = {"<tool_call|>"};
  format.bare_open = {"call:"};
  format.takes_named = true;
  format.name_prefix = {"call:"};
  format.arguments = ArgumentSyntax::kCompact;
  return format;
}

// [TOOL_CALLS][{"name", "arguments"}] or [TOOL_CALLS]N[ARGS]{}: Mistral.
OutputFormat bracket_markers() {
  OutputFormat format;
  format.name = "bracket_markers";
  format.signs = {{"[TOOL_CALLS]"}};
  format.reasoning_open = {"[THINK]"};
  format.reasoning_close = {"[/THINK]"};
  format.section_open = {"[TOOL_CALLS]"};
  format.takes_named = true;
  format.takes_json = true;
  format.name_close = {"[ARGS]"};
  format.id_open = {"[CALL_ID]"};
  format.ids = CallIdRule::kShort;
  return format;
}

// <|python_tag|>{"name", "parameters"}, the same without the tag, [f(a=1)]: Llama 3 and 4.
OutputFormat python_tag() {
  OutputFormat format;
  format.name = "python_tag";
  format.signs = {{"<|python_tag|>"}, {"<|eot_id|>"}, {"<|eot|>"}, {"<|eom_id|>"}};
  format.section_open = {"<|python_tag|>"};
  format.takes_json = true;
  format.takes_python = true;
  format.bare_json = true;
  format.bare_python = true;
  return format;
}

// <|tool_call_start|>[f(a=1)]<|tool_call_end|>: LFM2, whose first template lists tools and leaves
// out calls.
OutputFormat call_lists() {
  OutputFormat format = thinking("call_lists");
  format.signs = {{"<|tool_call_start|>"}, {"<|tool_list_start|>"}};
  format.section_open = {"<|tool_call_start|>"};
  format.section_close = {"<|tool_call_end|>"};
  format.takes_json = true;
  format.takes_python = true;
  return format;
}

// <|START_ACTION|>[{"tool_call_id", "tool_name", "parameters"}]<|END_ACTION|>: Command R7B and A.
OutputFormat action_lists() {
  OutputFormat format;
  format.name = "action_lists";
  format.signs = {{"<|START_ACTION|>"}};
  format.reasoning_open = {"<|START_THINKING|>"};
  format.reasoning_close = {"<|END_THINKING|>"};
  format.dropped = {"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"};
  format.section_open = {"<|START_ACTION|>"};
  format.section_close = {"<|END_ACTION|>"};
  format.takes_json = true;
  format.name_keys = {"tool_name"};
  format.argument_keys = {"parameters"};
  return format;
}

// <|tool_call:begin|>ID<|tool_call:name|>N<|tool_call:args|>{}<|tool_call:end|>, in turns of their
// own as reasoning and answer are: Solar Open.
OutputFormat id_before_name() {
  OutputFormat format;
  format.name = "id_before_name";
  format.signs = {{"<|tool_call:name|>", "<|tool_call:args|>"}};
  format.reasoning_open = {"<|think|>"};
  format.reasoning_close = {"<|end|>"};
  format.dropped = {"<|begin|>assistant", "<|content|>", "<|end|>"};
  format.section_open = {"<|tool_calls|>"};
  format.section_close = {"<|calls|>"};
  format.call_open = {"<|tool_call:begin|>"};
  format.call_close = {"<|tool_call:end|>"};
  format.takes_named = true;
  format.id_close = {"<|tool_call:name|>"};
  format.name_close = {"<|tool_call:args|>"};
  return format;
}

std::vector<OutputFormat> make_formats() {
  return {channels(),
          attribute_tags(),
          prefixed_invoke_tags(),
          fenced_json(),
          separated_json(),
          numbered_names(),
          element_tags(),
          invoke_tags(),
          function_tags(),
          suffixed_key_value_tags(),
          separated_key_value_tags(),
          key_value_tags(),
          call_lists(),
          action_lists(),
          id_before_name(),
          compact_calls(),
          bracket_markers(),
          tagged_json_response(),
          tagged_json(),
          addressed_invoke_tags(),
          typed_messages(),
          python_tag(),
          wrapped_invoke_tags(),
          separated_tags(),
          thinking("text")};
}

}  // namespace

const std::vector<OutputFormat>& output_formats() {
  static const std::vector<OutputFormat> kFormats = make_formats();
  return kFormats;
}

const OutputFormat* find_output_format(std::string_view name) {
  for (const OutputFormat& format : output_formats()) {
    if (format.name == name) return &format;
  }
  return nullptr;
}

const OutputFormat& choose_output_format(std::string_view rendered) {
  const auto has = [&](const std::string& sign) {
    return rendered.find(sign) != std::string_view::npos;
  };
  for (const OutputFormat& format : output_formats()) {
    for (const auto& signs : format.signs) {
      if (std::all_of(signs.begin(), signs.end(), has)) return format;
    }
  }
  return output_formats().back();
}

}  // namespace moeflux
