#include "serve/ollama/field_list.h"

#include <array>

namespace moeflux::serve {
namespace {

constexpr std::array kOllamaBoth = {
    served("model"),
    served("format"),
    served("options"),
    served("think"),
    served("stream"),
    served("logprobs"),
    served("top_logprobs"),
    served("keep_alive", "of several models"),
    served("return_progress"),
    served("truncate", "checked alone"),
    served("shift", "checked alone"),
    served("_debug_render_only"),
    served("enable_thinking"),
    served("documents"),
    served("chat_template_kwargs"),
};

constexpr std::array kOllamaChat = {
    served("messages"),
    served("tools"),
    served("tool_choice", "our own"),
    served("add_generation_prompt"),
    served("continue_final_message"),
};

constexpr std::array kGenerate = {
    served("prompt"),         served("suffix"),
    served("system"),         served("template", "the model's own"),
    served("context"),        served("raw"),
    served("images", "none"),
};

constexpr std::array kOptions = {
    served("stop"),
    served("num_predict"),
    served("num_ctx", "up to the server's"),
    refused("tfs_z", "there is no such sampler", "[1]"),
    harmless("num_keep"),
    harmless("num_batch"),
    harmless("num_gpu"),
    harmless("num_thread"),
    harmless("main_gpu"),
    harmless("low_vram"),
    harmless("numa"),
    harmless("use_mmap"),
    harmless("use_mlock"),
    harmless("vocab_only"),
    harmless("f16_kv"),
    harmless("logits_all"),
};

}  // namespace

const FieldList& ollama_chat_field_list() {
  static const FieldList kList("Ollama's chat", {kOllamaChat, kOllamaBoth, constraint_rows()});
  return kList;
}

const FieldList& ollama_generate_field_list() {
  static const FieldList kList("Ollama's generate", {kGenerate, kOllamaBoth, constraint_rows()});
  return kList;
}

const FieldList& ollama_option_list() {
  static const FieldList kList("Ollama's options", {kOptions, generation_rows(), other_rows()});
  return kList;
}

}  // namespace moeflux::serve
