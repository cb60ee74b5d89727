#include "serve/anthropic/field_list.h"

#include <array>

namespace moeflux::serve {
namespace {

constexpr std::array kMessages = {
    served("model"),
    served("messages"),
    served("system"),
    served("max_tokens"),
    served("stop_sequences"),
    served("stream"),
    served("tools"),
    served("tool_choice"),
    served("thinking"),
    served("output_config"),
    served("output_format"),
    refused("mcp_servers", "nobody here calls servers of tools", "[[]]"),
    refused("container", "nobody here runs code"),
    refused("response_format", "it is output_config.format in Anthropic's messages"),
    harmless("metadata"),
    harmless("service_tier"),
    harmless("betas"),
    harmless("cache_control"),
    harmless("context_management"),
    harmless("inference_geo"),
    harmless("speed"),
    harmless("anthropic_version"),
};

}  // namespace

const FieldList& messages_field_list() {
  static const FieldList kList(
      "Anthropic's messages",
      {kMessages, generation_rows(), constraint_rows(), template_rows(), other_rows()});
  return kList;
}

}  // namespace moeflux::serve
