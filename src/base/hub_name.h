// Names of models on a hub as clients write them.
#pragma once

#include <string_view>

#include "base/ascii.h"

namespace moeflux {

/// "ORG/NAME:QUANT" of "hf.co/ORG/NAME:QUANT", as Ollama's clients name models of the hub, and of
/// the address of a model's page. Other names are themselves.
inline std::string_view without_hub_host(std::string_view name) {
  std::string_view rest = name;
  const auto drop = [&rest](std::string_view beginning) {
    const bool begins = equal_without_case(rest.substr(0, beginning.size()), beginning);
    if (begins) rest.remove_prefix(beginning.size());
    return begins;
  };
  if (!drop("https://")) drop("http://");
  return drop("hf.co/") || drop("huggingface.co/") ? rest : name;
}

}  // namespace moeflux
